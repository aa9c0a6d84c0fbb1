/* pretokenizer.h - cutting normalised text into the pieces the model encodes one by one
 *
 * The steps of tokenizer.json's "pre_tokenizer". Each step cuts (or rewrites) the pieces the step
 * before it made. Immutable once made. */
#ifndef PUNICA_TEXT_PRETOKENIZER_H
#define PUNICA_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "text/pattern.h"

typedef struct pretokenizer pretokenizer;
typedef struct pretokenizer_scratch pretokenizer_scratch;

/* NULL with e set. */
pretokenizer *pretokenizer_new(const json_t *spec, err *e);
void pretokenizer_free(pretokenizer *p);

/* Whether no text is dropped; and whether pieces are in the alphabet of byte_level.h. */
bool pretokenizer_keeps_all(const pretokenizer *p);
bool pretokenizer_makes_bytes(const pretokenizer *p);

pretokenizer_scratch *pretokenizer_scratch_new(void);
void pretokenizer_scratch_free(pretokenizer_scratch *s);

/* Receives the pieces in order. Not 0: stop, e is set. The text is lent for the call. */
typedef int (*pretokenizer_sink)(void *self, const char *text, size_t n, err *e);

/* Cut the text; at_start says that it begins where the whole text does. */
int pretokenizer_run(const pretokenizer *p, pretokenizer_scratch *s, matcher *m, const char *text, size_t n,
                     bool at_start, pretokenizer_sink sink, void *self, err *e);

#endif
