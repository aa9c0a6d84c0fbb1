/* slab.h - slab allocator: many items of one size, side by side on huge pages
 *
 * For hundreds of thousands of items that are accessed in random order: fewer TLB misses than with single allocations,
 * and taking and giving cost next to nothing. Memory goes back to the system when the slab is freed. One thread. */
#ifndef PUNICA_BASE_SLAB_H
#define PUNICA_BASE_SLAB_H

#include <stddef.h>

typedef struct slab slab;

slab *slab_new(size_t size); /* size of each item; they lie on 64-byte boundaries */
void slab_free(slab *p);     /* frees its items too */

void *slab_take(slab *p); /* an item, uninitialised; never NULL */
void slab_give(slab *p, void *item);

/* Items of many sizes: a slab for each power of two up to 1 KB. A larger item is a single allocation, which is freed
 * when it is given back. */
typedef struct slabs slabs;

slabs *slabs_new(void);
void slabs_free(slabs *p); /* frees all items but those of more than 1 KB */

void *slabs_take(slabs *p, size_t bytes);
void slabs_give(slabs *p, void *item, size_t bytes); /* bytes: as it was taken with; item may be NULL */

/* Grows an item of *bytes (item NULL: *bytes is 0) to the power of two that holds `need` bytes, and updates *bytes.
 * Returns the item, which may have moved. */
void *slabs_grow(slabs *p, void *item, size_t *bytes, size_t need);

#endif
