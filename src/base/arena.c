/* arena.c - see arena.h */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

#define FIRST_BLOCK 4096
#define MAX_BLOCK (256u << 10)

struct arena_block {
    arena_block *before;
    size_t size, at; /* size of bytes[]; index of its first free byte */
    alignas(max_align_t) char bytes[];
};

/* Blocks double up to MAX_BLOCK; a larger allocation gets a block of its own. */
static arena_block *add_block(arena *a, size_t n)
{
    size_t size = a->last ? a->last->size * 2 : FIRST_BLOCK;
    if (size > MAX_BLOCK)
        size = MAX_BLOCK;
    if (size < n)
        size = n;
    if (size > a->limit - a->used)
        size = n;
    if (size > a->limit - a->used)
        return NULL;
    arena_block *b = xmalloc(sizeof *b + size);
    *b = (arena_block){.before = a->last, .size = size};
    a->used += size;
    a->last = b;
    return b;
}

void *arena_alloc(arena *a, size_t n)
{
    const size_t align = alignof(max_align_t);
    if (n > SIZE_MAX / 2)
        return NULL;
    n = (n + align - 1) / align * align;
    arena_block *b = a->last;
    if ((!b || b->size - b->at < n) && !(b = add_block(a, n)))
        return NULL;
    void *p = b->bytes + b->at;
    b->at += n;
    return p;
}

void arena_free(arena *a)
{
    for (arena_block *b = a->last, *before; b; b = before) {
        before = b->before;
        free(b);
    }
    a->last = NULL;
    a->used = 0;
}
