/* prefixes.h - which GPU was last given a request that begins alike (internal to the scheduler)
 *
 * Workers keep keys and values that they have computed (engine/kv_pool.h), so a request costs less where its beginning
 * has been before. Which pages they still have the scheduler is not told; it remembers what it gave to whom. Of every
 * request that is placed it keeps marks, hashes of the first 1, 2, 4, 8, ... units of its tokens and of all its whole
 * units, beside adapter, its content and tenant, as tenants share no pages. So the next turn of a conversation is found
 * by the last one's tokens, and a request that has a prefix in common with others by a power of two of that prefix.
 * Marks are hints: a wrong one costs time and nothing else. They are kept in a set-associative table of fixed size, in
 * which newer marks replace older ones. */
#ifndef PUNICA_SCHEDULER_PREFIXES_H
#define PUNICA_SCHEDULER_PREFIXES_H

#include "scheduler/gpu.h"

enum { PREFIX_UNIT = 16, PREFIX_UNITS = 256 }; /* tokens of a unit, as pages usually have; units that are looked at */

typedef struct prefixes prefixes;

/* Of the n whole units that a request begins with; mark[i] of i + 1 of them. */
typedef struct {
    uint64_t mark[PREFIX_UNITS];
    int n;
} prefix_marks;

prefixes *prefixes_new(size_t most); /* marks; 0: nothing is remembered */
void prefixes_free(prefixes *p);

/* Computes the marks of a request. */
void prefixes_mark(const prefixes *p, const request *r, prefix_marks *out);

/* Remembers that g is given the request of these marks. */
void prefixes_add(prefixes *p, const prefix_marks *m, const gpu *g);

/* The GPU that was last given a request of this mark: its number, and *life of it; -1: none is known. */
int prefixes_find(const prefixes *p, uint64_t mark, uint32_t *life);

#endif
