/* byte_level.c - see byte_level.h */
#include "text/byte_level.h"

#include <stdint.h>

#include "text/utf8.h"

#define N_SHIFTED 68 /* bytes without a printable character of their own */

static bool is_printable(unsigned b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
}

/* The code point of a byte that does not map to itself: U+0100 plus the number of such bytes below it. */
static uint32_t shifted(unsigned b)
{
    if (b <= 0x20)
        return 0x100 + b;
    return b == 0xad ? 0x100 + N_SHIFTED - 1 : 0x100 + 0x21 + (b - 0x7f);
}

/* The byte of a code point, or -1. */
static int byte_of(uint32_t cp)
{
    if (cp < 0x100)
        return is_printable(cp) ? (int)cp : -1;
    if (cp >= 0x100 + N_SHIFTED)
        return -1;
    cp -= 0x100;
    if (cp <= 0x20)
        return (int)cp;
    return cp == N_SHIFTED - 1 ? 0xad : (int)(cp - 0x21 + 0x7f);
}

void byte_level_encode(const char *bytes, size_t n, buf *out)
{
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (i < n && bytes[i] >= 0x21 && bytes[i] <= 0x7e)
            i++;
        buf_add(out, bytes + run, i - run);
        if (i < n) {
            unsigned char b = (unsigned char)bytes[i++];
            utf8_add(out, is_printable(b) ? b : shifted(b));
        }
    }
}

void byte_level_decode(const char *text, size_t n, buf *out)
{
    size_t before = out->len;
    for (const char *at = text; at < text + n;) {
        int b = byte_of(utf8_next(&at));
        if (b < 0) {
            out->len = before;
            buf_add(out, text, n);
            return;
        }
        buf_add_char(out, (char)b);
    }
}
