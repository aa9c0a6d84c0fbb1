/* slab.c - see slab.h: blocks cut into pieces, and a list of those not in use */
#include "base/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define FIRST_BLOCK ((size_t)64 << 10)
#define LARGEST_BLOCK ((size_t)2 << 20)

typedef struct piece { struct piece *next; } piece;

struct slab {
    size_t size;            /* of a piece */
    piece *unused;
    char **block;           /* [n_blocks] */
    size_t n_blocks, cap;
    char *fresh, *end;      /* of the last block: never used yet */
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

/* Small at first, for those who need few. */
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
    return memset(item, 0, p->size);
}

void slab_give(slab *p, void *item)
{
    piece *i = item;
    i->next = p->unused;
    p->unused = i;
}
