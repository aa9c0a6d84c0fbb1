/* mem.c - see mem.h */
#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *p, size_t size)
{
    if (p || size == 0)
        return p;
    fprintf(stderr, "punica: out of memory (wanted %zu bytes)\n", size);
    abort();
}

void *xmalloc(size_t size)
{
    return or_die(malloc(size ? size : 1), size);
}

void *xcalloc(size_t n, size_t size)
{
    return or_die(calloc(n ? n : 1, size ? size : 1), n * size);
}

void *xrealloc(void *p, size_t size)
{
    return or_die(realloc(p, size ? size : 1), size);
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    char *copy = xmalloc(n + 1);
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return or_die(n < 0 ? NULL : s, 1);
}

void *xgrow(void *items, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return items;
    size_t n = *cap ? *cap : 16;
    while (n < need)
        n = n > SIZE_MAX / 2 ? need : n * 2;
    if (n > SIZE_MAX / size)
        or_die(NULL, SIZE_MAX);
    *cap = n;
    return xrealloc(items, n * size);
}
