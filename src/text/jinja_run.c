/* jinja_run.c - the run of jinja_value.h: memory, limits and error messages */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

_Noreturn void jinja_run_fail(jinja_run *r, const char *fmt, ...)
{
    char message[sizeof r->e->msg], what[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    jinja_node_describe(r->at, what, sizeof what);
    err_set(r->e, "line %d: %s%s%s", r->line, what, what[0] ? ": " : "", message);
    longjmp(r->on_failure, 1);
}

_Noreturn void jinja_run_raise(jinja_run *r, const str *message)
{
    err_set(r->e, "%.*s (raised by the chat template in line %d)", (int)(message->n < 400 ? message->n : 400),
            message->s, r->line);
    longjmp(r->on_failure, 1);
}

void *jinja_run_alloc(jinja_run *r, size_t n)
{
    void *p = arena_alloc(&r->mem, n);
    if (!p)
        jinja_run_fail(r, "it needs more than %zu MB of memory", r->mem.limit >> 20);
    return p;
}

void *jinja_run_alloc_array(jinja_run *r, size_t n, size_t size)
{
    if (n > r->mem.limit / size)
        jinja_run_fail(r, "it needs more than %zu MB of memory", r->mem.limit >> 20);
    return jinja_run_alloc(r, n * size);
}

void *jinja_run_double(jinja_run *r, const void *items, size_t n, size_t *cap, size_t first, size_t size)
{
    size_t more = *cap ? 2 * *cap : first;
    void *copy = jinja_run_alloc_array(r, more, size);
    if (n)
        memcpy(copy, items, n * size);
    *cap = more;
    return copy;
}

void jinja_run_spend(jinja_run *r, size_t steps)
{
    if (steps > (size_t)r->steps)
        jinja_run_fail(r, "it takes too many steps");
    r->steps -= (long)steps;
}

void jinja_run_enter(jinja_run *r)
{
    if (++r->depth > JINJA_MAX_DEPTH)
        jinja_run_fail(r, "nested too deeply");
}

void jinja_run_leave(jinja_run *r)
{
    r->depth--;
}
