/* spans.h - parts of a text, as ranges of byte offsets */
#ifndef PUNICA_TEXT_SPANS_H
#define PUNICA_TEXT_SPANS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct { size_t from, to; } text_span; /* [from, to) */
typedef struct {
    text_span *at;
    size_t n, cap;
} text_spans; /* in order; none touches the next */

/* Appends [from, to), which must not begin before the end of the last one; joins the two if they touch. An empty one
 * is not added. */
void text_spans_add(text_spans *s, size_t from, size_t to);
void text_spans_free(text_spans *s);

/* Returns the index of the first one that ends behind `at`; n if there is none. */
size_t text_spans_find(const text_spans *s, size_t at);

/* Returns whether one of them covers all of [from, to). */
bool text_spans_cover(const text_spans *s, size_t from, size_t to);

#endif
