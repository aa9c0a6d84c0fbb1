/* jinja_run.c - the run of jinja_value.h: memory, bounds and how a failure is told */
#include <stdarg.h>
#include <stdio.h>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

_Noreturn void run_fail(run *r, const char *fmt, ...)
{
    char message[sizeof r->e->msg], what[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    node_describe(r->at, what, sizeof what);
    err_set(r->e, "line %d: %s%s%s", r->line, what, what[0] ? ": " : "", message);
    longjmp(r->left, 1);
}

_Noreturn void run_raise(run *r, const str *message)
{
    err_set(r->e, "%.*s (raised by the chat template in line %d)", (int)(message->n < 400 ? message->n : 400),
            message->s, r->line);
    longjmp(r->left, 1);
}

void *run_alloc(run *r, size_t n)
{
    void *p = arena_alloc(&r->mem, n);
    if (!p)
        run_fail(r, "it needs more than %zu MB of memory", r->mem.limit >> 20);
    return p;
}

void *run_alloc_array(run *r, size_t n, size_t size)
{
    if (n > r->mem.limit / size)
        run_fail(r, "it needs more than %zu MB of memory", r->mem.limit >> 20);
    return run_alloc(r, n * size);
}

void run_spend(run *r, size_t steps)
{
    if (steps > (size_t)r->steps)
        run_fail(r, "it takes too many steps");
    r->steps -= (long)steps;
}

void run_enter(run *r)
{
    if (++r->depth > MAX_DEPTH)
        run_fail(r, "nested too deeply");
}

void run_leave(run *r)
{
    r->depth--;
}
