/* utf8.c - see utf8.h */
#include "text/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The length of the character that this byte starts; 0 if it starts none. */
static size_t length_from_lead(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead < 0xe0)
        return 2;
    if (lead >= 0xe0 && lead < 0xf0)
        return 3;
    return lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

/* Returns whether b may be byte i (1 to 3) behind this lead: no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
static bool continues(unsigned char lead, size_t i, unsigned char b)
{
    unsigned char lo = 0x80, hi = 0xbf;
    if (i == 1) {
        if (lead == 0xe0)
            lo = 0xa0;
        else if (lead == 0xed)
            hi = 0x9f;
        else if (lead == 0xf0)
            lo = 0x90;
        else if (lead == 0xf4)
            hi = 0x8f;
    }
    return b >= lo && b <= hi;
}

/* Length of the valid text at the start of s. */
static size_t valid_prefix(const unsigned char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint64_t w;
        while (at + 8 <= n && (memcpy(&w, s + at, 8), (w & 0x8080808080808080u) == 0))
            at += 8;
        if (at == n)
            break;
        size_t len = length_from_lead(s[at]);
        if (len == 0 || at + len > n)
            return at;
        for (size_t i = 1; i < len; i++)
            if (!continues(s[at], i, s[at + i]))
                return at;
        at += len;
    }
    return at;
}

bool utf8_is_valid(const char *text, size_t n)
{
    return valid_prefix((const unsigned char *)text, n) == n;
}

bool utf8_is_one_char(const char *text, size_t n)
{
    return n > 0 && length_from_lead((unsigned char)*text) == n;
}

/* Takes in one byte that is not part of a run known to be valid. */
static void repair_byte(utf8_tail *tail, unsigned char b, buf *out)
{
    if (tail->n > 0 && !continues(tail->bytes[0], tail->n, b))
        utf8_repair_end(tail, out);
    if (tail->n == 0 && length_from_lead(b) == 0) {
        buf_add(out, replacement, 3);
        return;
    }
    tail->bytes[tail->n++] = b;
    if (tail->n == length_from_lead(tail->bytes[0])) {
        buf_add(out, tail->bytes, tail->n);
        tail->n = 0;
    }
}

void utf8_repair(utf8_tail *tail, const char *text, size_t n, buf *out)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t at = 0; at < n; at++) {
        if (tail->n == 0) {
            size_t good = valid_prefix(s + at, n - at);
            buf_add(out, s + at, good);
            at += good;
            if (at == n)
                break;
        }
        repair_byte(tail, s[at], out);
    }
}

void utf8_repair_end(utf8_tail *tail, buf *out)
{
    if (tail->n > 0)
        buf_add(out, replacement, 3);
    tail->n = 0;
}

void utf8_add(buf *out, uint32_t cp)
{
    char s[4];
    size_t n;
    if (cp < 0x80) {
        s[0] = (char)cp;
        n = 1;
    } else if (cp < 0x800) {
        s[0] = (char)(0xc0 | cp >> 6);
        n = 2;
    } else if (cp < 0x10000) {
        s[0] = (char)(0xe0 | cp >> 12);
        n = 3;
    } else {
        s[0] = (char)(0xf0 | cp >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        s[i] = (char)(0x80 | (cp >> (6 * (n - 1 - i)) & 0x3f));
    buf_add(out, s, n);
}
