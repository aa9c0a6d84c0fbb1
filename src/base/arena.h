/* arena.h - arena allocator: memory that is freed all at once
 *
 * Plain value: set `limit`, allocate, arena_free. One thread at a time. */
#ifndef PUNICA_BASE_ARENA_H
#define PUNICA_BASE_ARENA_H

#include <stddef.h>

typedef struct arena_block arena_block;

typedef struct {
    arena_block *last; /* where the next allocation is looked for; earlier blocks behind it */
    size_t used;       /* total bytes of all blocks */
    size_t limit;      /* upper bound of used */
} arena;

/* Allocates n bytes, aligned for any type, not zeroed; valid until arena_free(). NULL if that would pass the limit. */
void *arena_alloc(arena *a, size_t n);

void arena_free(arena *a); /* frees everything; the limit stays, and the arena can be used again */

#endif
