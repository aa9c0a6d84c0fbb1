/* normalizer.h - what is done to text before it is cut into words
 *
 * The steps of tokenizer.json's "normalizer", each from text to text. Immutable once made. */
#ifndef PUNICA_TEXT_NORMALIZER_H
#define PUNICA_TEXT_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "text/pattern.h"

typedef struct normalizer normalizer;

/* NULL with e set. */
normalizer *normalizer_new(const json_t *spec, err *e);
void normalizer_free(normalizer *z);

bool normalizer_is_empty(const normalizer *z); /* no steps: text stays as it is */

/* How many bytes of text can become one byte at most; 0: any number, some are dropped. */
size_t normalizer_most_shrink(const normalizer *z);

/* out: replaced by the normalised text. *head_lost is set when the first characters of the text
 * have gone, so that what comes out no longer begins where the text did. */
int normalizer_apply(const normalizer *z, matcher *m, const char *text, size_t n, buf *out, bool *head_lost, err *e);

#endif
