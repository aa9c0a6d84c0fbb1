/* slab.h - many things of one size, side by side on large pages
 *
 * For what is touched in no order by the hundred thousand: the processor finds its way in fewer page table walks than
 * among single allocations, and taking and giving cost next to nothing. Memory goes back to the system when the slab
 * is freed. One thread. */
#ifndef PUNICA_BASE_SLAB_H
#define PUNICA_BASE_SLAB_H

#include <stddef.h>

typedef struct slab slab;

slab *slab_new(size_t size);            /* of each; they lie on 64-byte boundaries */
void slab_free(slab *p);                /* and everything in it */

void *slab_take(slab *p);               /* zeroed */
void slab_give(slab *p, void *item);

#endif
