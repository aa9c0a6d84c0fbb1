/* slab.h - many things of one size, side by side on large pages
 *
 * For what is touched in no order by the hundred thousand: the processor finds its way in fewer page table walks than
 * among single allocations, and taking and giving cost next to nothing. Memory goes back to the system when the slab
 * is freed. One thread. */
#ifndef PUNICA_BASE_SLAB_H
#define PUNICA_BASE_SLAB_H

#include <stddef.h>

typedef struct slab slab;

slab *slab_new(size_t size); /* of each; they lie on 64-byte boundaries */
void slab_free(slab *p);     /* and everything in it */

void *slab_take(slab *p); /* with anything in it */
void slab_give(slab *p, void *item);

/* Things of many sizes: a slab for each power of two up to 1 KB; what is larger lies by itself, so that its memory goes
 * back when it is given. */
typedef struct slabs slabs;

slabs *slabs_new(void);
void slabs_free(slabs *p); /* and everything in it but what lies by itself */

void *slabs_take(slabs *p, size_t bytes);
void slabs_give(slabs *p, void *item, size_t bytes); /* for which it was taken; item may be NULL */

/* Grow an item of *bytes (NULL, of 0) so that `need` fit; it has a power of two then. As xgrow(). */
void *slabs_grow(slabs *p, void *item, size_t *bytes, size_t need);

#endif
