/* build.h - what all stages of compiling a grammar share: memory, bounds, and the one way to fail
 *
 * All memory comes from one arena, so a failure is one longjmp and nothing leaks. Texts come from clients: work and
 * memory are bounded, and exceeding a bound is an error like any other. */
#ifndef PUNICA_GRAMMAR_BUILD_H
#define PUNICA_GRAMMAR_BUILD_H

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

typedef struct {
    arena memory;
    long steps_left, check_at; /* of the budget; the limits are checked next when steps_left falls below check_at */
    const atomic_bool *stop;   /* true: give up; NULL: never */
    bool took_too_long;
    int depth;        /* of the present nesting: schemas in schemas, groups in groups */
    json_t *document; /* the text, if it is JSON */
    json_t *made;     /* a list of the values that build_string() made */
    err *e;
    jmp_buf failed;
} build;

/* Returns zeroed memory that lives as long as the build; fails the build when its limit is reached. */
void *build_alloc(build *b, size_t n);
#define BUILD_ARRAY(b, type, n) ((type *)build_alloc(b, (size_t)(n) * sizeof(type)))
#define BUILD_NEW(b, type) BUILD_ARRAY(b, type, 1)

/* Returns items, or a copy of them with room for `need` items of `size` bytes, and updates *cap. The old array stays in
 * the arena. */
void *build_grow(build *b, void *items, int *cap, int need, size_t size);

char *build_text(build *b, const char *text, size_t n); /* a copy, with a NUL behind it */

/* Ends the build with this message. */
_Noreturn void build_fail(build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* build_step() counts n steps of work, of 3 to 30 ns each (one core of an AMD EPYC, Zen 4). Now and then it calls
 * build_check_limits(), which fails the build when its budget is spent or *stop is true. */
void build_check_limits(build *b);
static inline void build_step(build *b, long n)
{
    if ((b->steps_left -= n) < b->check_at)
        build_check_limits(b);
}

/* Parses the text as JSON, once per build; the value lives as long as the build. */
const json_t *build_read_json(build *b, const char *text, size_t n);

const json_t *build_string(build *b, const char *text, size_t n); /* a JSON string that lives as long as the build */

/* Enclose each level of a recursion; build_enter() fails the build when it is nested too deep. */
void build_enter(build *b);
static inline void build_leave(build *b)
{
    b->depth--;
}

#endif
