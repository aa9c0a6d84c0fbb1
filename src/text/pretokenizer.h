/* pretokenizer.h - cutting normalised text into the pieces the model encodes one by one
 *
 * The steps of tokenizer.json's "pre_tokenizer". Each step cuts (or rewrites) the pieces that the
 * step before it made. Immutable once made. */
#ifndef PUNICA_TEXT_PRETOKENIZER_H
#define PUNICA_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "text/pattern.h"

typedef struct pretokenizer pretokenizer;
typedef struct pretokenizer_scratch pretokenizer_scratch;

/* Reads tokenizer.json's "pre_tokenizer" (spec may be NULL). NULL with e set on failure; free with
 * pretokenizer_free(). */
pretokenizer *pretokenizer_new(const json_t *spec, err *e);
void pretokenizer_free(pretokenizer *p);

/* Return whether no text is dropped; whether all pieces are in the alphabet of byte_level.h. */
bool pretokenizer_keeps_all(const pretokenizer *p);
bool pretokenizer_makes_bytes(const pretokenizer *p);

pretokenizer_scratch *pretokenizer_scratch_new(void);
void pretokenizer_scratch_free(pretokenizer_scratch *s);

/* Receives the pieces in order, each lent for the call. 0 to go on, or -1 with e set to stop. */
typedef int (*pretokenizer_sink)(void *self, const char *text, size_t n, err *e);

/* Cuts the text and gives the pieces to sink. at_start: it begins where the whole text does. 0, or -1
 * with e set by a regex or the sink. */
int pretokenizer_run(const pretokenizer *p, pretokenizer_scratch *s, matcher *m, const char *text, size_t n,
                     bool at_start, pretokenizer_sink sink, void *self, err *e);

#endif
