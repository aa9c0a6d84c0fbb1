/* jinja_run.c - the run of jinja_value.h: memory, bounds and how a failure is told */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"
#include "text/utf8.h"

/* The message may have been cut in the middle of a character. */
static void trim_cut_character(char *msg)
{
    size_t n = strlen(msg);
    for (int i = 0; i < 4 && n > 0 && !utf8_is_valid(msg, n); i++)
        msg[--n] = '\0';
}

_Noreturn void run_fail(run *r, const char *fmt, ...)
{
    char message[sizeof r->e->msg], what[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    node_describe(r->at, what, sizeof what);
    err_set(r->e, "line %d: %s%s%s", r->line, what, what[0] ? ": " : "", message);
    trim_cut_character(r->e->msg);
    longjmp(r->left, 1);
}

_Noreturn void run_raise(run *r, const str *message)
{
    err_set(r->e, "%.*s (raised by the chat template in line %d)", (int)(message->n < 400 ? message->n : 400), message->s, r->line);
    trim_cut_character(r->e->msg);
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
