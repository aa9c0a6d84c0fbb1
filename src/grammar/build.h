/* build.h - what all stages of compiling a grammar share: memory, bounds, and the one way to fail
 *
 * Everything that is made on the way lies in one arena, so a failure leaves by one longjmp and nothing is left over.
 * Texts come from clients: work and memory are bounded, and what passes a bound is an error like any other. */
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
    long steps_left, look_at; /* when so many are left, it looks whether it is to stop */
    const atomic_bool *stop;  /* NULL: never */
    bool took_too_long;
    int depth;        /* of what is read now: schemas in schemas, groups in groups */
    json_t *document; /* what is read, where it is JSON */
    json_t *made;     /* a list of further values, freed with it */
    err *e;
    jmp_buf failed;
} build;

/* Zeroed memory that lives as long as the build. */
void *build_alloc(build *b, size_t n);
#define BUILD_ARRAY(b, type, n) ((type *)build_alloc(b, (size_t)(n) * sizeof(type)))
#define BUILD_NEW(b, type) BUILD_ARRAY(b, type, 1)

/* Room for `need` items of `size` bytes; the old ones stay in the arena. *cap is updated. */
void *build_grow(build *b, void *items, int *cap, int need, size_t size);

char *build_text(build *b, const char *text, size_t n); /* a copy, with a NUL behind it */

/* Ends the build with this message. */
_Noreturn void build_fail(build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Counts work, in steps of some 20 ns; fails when there was too much, or nobody waits for it any more. */
void build_look(build *b);
static inline void build_step(build *b, long n)
{
    if ((b->steps_left -= n) < b->look_at)
        build_look(b);
}

/* The text as JSON; it lives as long as the build. */
const json_t *build_read_json(build *b, const char *text, size_t n);

const json_t *build_string(build *b, const char *text, size_t n); /* a JSON string that lives as long */

/* Around whatever may call itself. */
void build_enter(build *b);
static inline void build_leave(build *b)
{
    b->depth--;
}

#endif
