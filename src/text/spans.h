/* spans.h - parts of a text, by their bytes */
#ifndef PUNICA_TEXT_SPANS_H
#define PUNICA_TEXT_SPANS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct { size_t from, to; } text_span; /* [from, to) */
typedef struct {
    text_span *at;
    size_t n, cap;
} text_spans; /* in order; none touches the next */

/* Append one that begins where the last ends or behind it; nothing is added for an empty one. */
void text_spans_add(text_spans *s, size_t from, size_t to);
void text_spans_free(text_spans *s);

/* The number of the first one that ends behind `at`; n: there is none. */
size_t text_spans_find(const text_spans *s, size_t at);

/* Whether one of them has all of [from, to). */
bool text_spans_cover(const text_spans *s, size_t from, size_t to);

#endif
