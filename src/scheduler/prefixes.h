/* prefixes.h - which GPU was last given a request with the same beginning (internal to the scheduler)
 *
 * Workers keep keys and values that they have computed (engine/kv_pool.h), so a request costs less where its beginning
 * was computed before. The scheduler is not told which pages they still have; it remembers which requests it gave to
 * which GPU. Of every request that is placed it keeps marks: hashes of its first 1, 2, 4, 8, ... units of tokens and of
 * all its whole units. Tenant, adapter and the adapter's content are part of each hash, as only requests that agree in
 * them share pages. So the next turn of a conversation is found by all tokens of the last one, and requests with a
 * common prefix by the longest power of two of units in it. Marks are hints: a wrong one costs time and nothing else.
 * They are kept in a set-associative table of fixed size, in which newer marks replace older ones. */
#ifndef PUNICA_SCHEDULER_PREFIXES_H
#define PUNICA_SCHEDULER_PREFIXES_H

#include "scheduler/gpu.h"

enum { PREFIX_UNIT = 16, PREFIX_UNITS = 256 }; /* tokens of a unit, as pages usually have; most units that are marked */

typedef struct prefixes prefixes;

/* The marks of a request's n whole units; mark[i] is of the first i + 1. */
typedef struct {
    uint64_t mark[PREFIX_UNITS];
    int n;
} prefix_marks;

prefixes *prefixes_new(size_t most); /* most: marks, at least; 0: nothing is remembered */
void prefixes_free(prefixes *p);

/* Computes the marks of a request. */
void prefixes_mark(const prefixes *p, const request *r, prefix_marks *out);

/* Remembers that g is given the request of these marks. */
void prefixes_add(prefixes *p, const prefix_marks *m, const gpu *g);

/* Returns the number of the GPU that was last given a request of this mark, and sets *life to its life; -1: none is
 * known. */
int prefixes_find(const prefixes *p, uint64_t mark, uint32_t *life);

#endif
