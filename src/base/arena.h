/* arena.h - memory that is given back all at once
 *
 * Plain value: set `limit`, allocate, arena_free. One thread at a time. */
#ifndef PUNICA_BASE_ARENA_H
#define PUNICA_BASE_ARENA_H

#include <stddef.h>

typedef struct arena_block arena_block;

typedef struct {
    arena_block *last; /* where the next allocation is looked for; earlier blocks behind it */
    size_t used;       /* bytes of all blocks */
    size_t limit;      /* they may have together */
} arena;

/* n bytes, aligned for any type, not zeroed; valid until arena_free(). NULL when the limit would be passed. */
void *arena_alloc(arena *a, size_t n);

void arena_free(arena *a); /* everything; the limit stays */

#endif
