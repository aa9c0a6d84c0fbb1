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

/* Reads tokenizer.json's "normalizer" (spec may be NULL). NULL with e set on failure; free with normalizer_free(). */
normalizer *normalizer_new(const json_t *spec, err *e);
void normalizer_free(normalizer *z);

bool normalizer_is_empty(const normalizer *z); /* no steps: text stays as it is */

/* Returns how many bytes of text can become one byte at most; 0 if there is no bound (text may be dropped). */
size_t normalizer_most_shrink(const normalizer *z);

/* Returns whether a step may put this text, a single character, into others by itself: Prepend, Replace. */
bool normalizer_inserts(const normalizer *z, const char *text, size_t n);

/* Replaces out with the normalised text. *head_lost: whether the first characters of the text were
 * dropped, so that out does not begin where the text does. 0, or -1 with e set. */
int normalizer_apply(const normalizer *z, matcher *m, const char *text, size_t n, buf *out, bool *head_lost, err *e);

#endif
