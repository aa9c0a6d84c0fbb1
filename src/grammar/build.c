/* build.c - see build.h */
#include "grammar/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 500
#define CHECK_EVERY 100000 /* steps */

void *build_alloc(build *b, size_t n)
{
    void *p = arena_alloc(&b->memory, n ? n : 1);
    if (!p)
        build_fail(b, "it is too large: compiling it takes too much memory");
    return memset(p, 0, n);
}

void *build_grow(build *b, void *items, int *cap, int need, size_t size)
{
    if (need <= *cap)
        return items;
    int more = *cap ? *cap * 2 : 8;
    more = more < need ? need : more;
    void *p = build_alloc(b, (size_t)more * size);
    if (*cap)
        memcpy(p, items, (size_t)*cap * size);
    *cap = more;
    return p;
}

char *build_text(build *b, const char *text, size_t n)
{
    char *p = build_alloc(b, n + 1);
    memcpy(p, text, n);
    return p;
}

void build_fail(build *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(b->e->msg, sizeof b->e->msg, fmt, args);
    va_end(args);
    longjmp(b->failed, 1);
}

void build_check_limits(build *b)
{
    b->took_too_long = b->steps_left < 0;
    if (b->took_too_long)
        build_fail(b, "it is too large: compiling it takes too long");
    if (b->stop && atomic_load(b->stop))
        build_fail(b, "nobody waits for it any more");
    b->check_at = b->steps_left > CHECK_EVERY ? b->steps_left - CHECK_EVERY : 0;
}

const json_t *build_read_json(build *b, const char *text, size_t n)
{
    json_error_t where;
    CHECK(!b->document);
    b->document = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    if (!b->document) /* unlike elsewhere, an integer of more than 64 bits is refused: it must be exact */
        build_fail(b, "not valid JSON: %s (line %d, column %d)", where.text, where.line, where.column);
    return b->document;
}

const json_t *build_string(build *b, const char *text, size_t n)
{
    json_t *v = json_stringn_nocheck(text, n);
    if (!b->made)
        b->made = json_array();
    json_array_append_new(b->made, v);
    return v;
}

void build_enter(build *b)
{
    if (++b->depth > MAX_DEPTH)
        build_fail(b, "it is nested more than %d deep", MAX_DEPTH);
    build_step(b, 1);
}
