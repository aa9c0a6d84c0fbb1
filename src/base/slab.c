/* slab.c - see slab.h: blocks cut into pieces, and a free list */
#include "base/slab.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define FIRST_BLOCK ((size_t)64 << 10)
#define LARGEST_BLOCK ((size_t)2 << 20)

typedef struct piece { struct piece *next; } piece;

struct slab {
    size_t size; /* of a piece */
    piece *unused;
    char **block; /* [n_blocks] */
    size_t n_blocks, cap;
    char *fresh, *end; /* the part of the last block that was never used */
};

slab *slab_new(size_t size)
{
    slab *p = XNEW(slab);
    p->size = (size + 63) / 64 * 64;
    return p;
}

void slab_free(slab *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_blocks; i++)
        free(p->block[i]);
    free(p->block);
    free(p);
}

/* The first blocks are small, for slabs with few items. */
static void add_block(slab *p)
{
    size_t bytes = p->n_blocks < 4 ? FIRST_BLOCK : LARGEST_BLOCK;
    if (bytes < p->size)
        bytes = p->size;
    p->block = xgrow(p->block, &p->cap, p->n_blocks + 1, sizeof *p->block);
    p->fresh = p->block[p->n_blocks++] = mem_alloc_block(bytes);
    CHECK(p->fresh);
    p->end = p->fresh + bytes;
}

void *slab_take(slab *p)
{
    void *item = p->unused;
    if (item) {
        p->unused = p->unused->next;
    } else {
        if ((size_t)(p->end - p->fresh) < p->size)
            add_block(p);
        item = p->fresh;
        p->fresh += p->size;
    }
    return item;
}

void slab_give(slab *p, void *item)
{
    piece *i = item;
    i->next = p->unused;
    p->unused = i;
}

enum { SMALLEST = 64, N_SIZES = 5 }; /* of slabs: 64 bytes to 1 KB */

struct slabs { slab *of[N_SIZES]; };

slabs *slabs_new(void)
{
    slabs *p = XNEW(slabs);
    for (int i = 0; i < N_SIZES; i++)
        p->of[i] = slab_new((size_t)SMALLEST << i);
    return p;
}

void slabs_free(slabs *p)
{
    if (!p)
        return;
    for (int i = 0; i < N_SIZES; i++)
        slab_free(p->of[i]);
    free(p);
}

/* Returns the smallest exponent such that SMALLEST << exponent holds so many bytes. */
static int size_for(size_t bytes)
{
    return bytes <= SMALLEST ? 0 : 64 - __builtin_clzll((bytes - 1) / SMALLEST);
}

static size_t room_of(int size)
{
    return (size_t)SMALLEST << size;
}

void *slabs_take(slabs *p, size_t bytes)
{
    int size = size_for(bytes);
    return size < N_SIZES ? slab_take(p->of[size]) : xmalloc(room_of(size));
}

void slabs_give(slabs *p, void *item, size_t bytes)
{
    int size = size_for(bytes);
    if (!item)
        return;
    if (size < N_SIZES)
        slab_give(p->of[size], item);
    else
        free(item);
}

void *slabs_grow(slabs *p, void *item, size_t *bytes, size_t need)
{
    if (need <= *bytes)
        return item;
    CHECK(need <= SIZE_MAX / 4);
    void *to = slabs_take(p, need);
    if (*bytes)
        memcpy(to, item, *bytes);
    slabs_give(p, item, *bytes);
    *bytes = room_of(size_for(need));
    return to;
}
