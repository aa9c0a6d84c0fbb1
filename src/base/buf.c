/* buf.c - see buf.h */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void reserve(buf *b, size_t more)
{
    b->data = xgrow(b->data, &b->cap, b->len + more + 1, 1);
}

void buf_add(buf *b, const void *bytes, size_t n)
{
    reserve(b, n);
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = 0;
}

char *buf_extend(buf *b, size_t n)
{
    reserve(b, n);
    b->len += n;
    b->data[b->len] = 0;
    return b->data + b->len - n;
}

void buf_add_str(buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_add_char(buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_add_number(buf *b, size_t number, unsigned base)
{
    char digits[24], *first = digits + sizeof digits;
    do
        *--first = "0123456789abcdef"[number % base];
    while (number /= base);
    buf_add(b, first, (size_t)(digits + sizeof digits - first));
}

void buf_printf(buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    reserve(b, 0);
    size_t room = b->cap - b->len;
    size_t n = (size_t)vsnprintf(b->data + b->len, room, fmt, ap);
    if (n >= room) {
        reserve(b, n);
        vsnprintf(b->data + b->len, n + 1, fmt, again);
    }
    b->len += n;
    va_end(again);
    va_end(ap);
}

void buf_drop(buf *b, size_t n)
{
    if (n == 0)
        return;
    b->len -= n;
    memmove(b->data, b->data + n, b->len + 1);
}

void buf_clear(buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

void buf_free(buf *b)
{
    free(b->data);
    *b = (buf){0};
}

char *buf_take(buf *b)
{
    buf_add(b, "", 0);
    char *s = b->data;
    *b = (buf){0};
    return s;
}
