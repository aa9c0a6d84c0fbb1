/* utf8.h - UTF-8 in and out
 *
 * Text from outside may hold any bytes. It is repaired once, where it enters: every maximal subpart
 * of an ill-formed sequence becomes U+FFFD, as the Unicode standard recommends and as Python's
 * errors="replace" does. From there on text is valid, and utf8_next() trusts it. */
#ifndef PUNICA_TEXT_UTF8_H
#define PUNICA_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Bytes of a character whose rest has not come yet. Zero-initialise. */
typedef struct {
    unsigned char bytes[4];
    size_t n;
} utf8_tail;

/* Append the repaired text to out, holding back an incomplete character at its end. */
void utf8_repair(utf8_tail *tail, const char *text, size_t n, buf *out);

/* End the text: append U+FFFD if an incomplete character was held back. */
void utf8_repair_end(utf8_tail *tail, buf *out);

bool utf8_is_valid(const char *text, size_t n);

/* Return whether this valid text is exactly one character. */
bool utf8_is_one_char(const char *text, size_t n);

/* Append a code point (not a surrogate, below 0x110000). */
void utf8_add(buf *out, uint32_t cp);

/* Return the code point at *s, in valid text, and move *s past it. */
static inline uint32_t utf8_next(const char **s)
{
    const unsigned char *p = (const unsigned char *)*s;
    if (p[0] < 0x80) {
        *s += 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *s += 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *s += 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *s += 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

/* Return the start of the character that ends at s, which must not be the start of the text. */
static inline const char *utf8_back(const char *s)
{
    do
        s--;
    while (((unsigned char)*s & 0xc0) == 0x80);
    return s;
}

#endif
