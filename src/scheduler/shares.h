/* shares.h - weighted fair queueing of newcomers: which tenant's request is next (internal to the scheduler)
 *
 * Virtual token counters, after Sheng et al., "Fairness in Serving Large Language Models" (OSDI '24). Each tenant has a
 * counter of the service it was given: SHARES_PROMPT for each token of a prompt that is taken on, SHARES_OUTPUT for
 * each token of output, divided by the tenant's weight. The next request is the first of the tenant with the smallest
 * counter. When a tenant without waiting requests gets one, its counter is lifted to the smallest of the tenants that
 * wait, so that nobody hoards credit while away; if none waits, to that of the tenant whose request left last.
 *
 * Within a tenant requests wait in the order of wait_queue.h: by priority, then arrival. With one tenant this is a
 * plain queue. Every function takes O(log n) in the tenants that wait and in the requests of one tenant. */
#ifndef PUNICA_SCHEDULER_SHARES_H
#define PUNICA_SCHEDULER_SHARES_H

#include "base/map.h"
#include "scheduler/wait_queue.h"

enum { SHARES_PROMPT = 1, SHARES_OUTPUT = 2, SHARES_MOST_WEIGHT = 10000 };

typedef struct {
    size_t number; /* in order of first coming */
    uint64_t unit; /* what its counter grows by for a service of 1: less for larger weights */
    uint64_t counter;
    wait_queue line; /* its requests that wait for their first GPU */
    size_t at;       /* its place in the heap, while its line is not empty */
} shares_tenant;

/* A tenant with somebody in line, beside a copy of its counter. The copy may be out of date: counters only grow, so it
 * must be right only in the first slot. */
typedef struct {
    uint64_t counter;
    shares_tenant *of;
} share_slot;

/* Tenants are kept for good, as one that comes back must keep its counter. Zero-initialise. */
typedef struct {
    map *by_name;
    shares_tenant **all; /* [n] owned */
    size_t n, cap;
    share_slot *heap; /* [n_waiting] by counter, then by arrival of the first in line */
    size_t n_waiting, heap_cap;
    size_t n_requests;   /* in all lines */
    shares_tenant *last; /* borrowed: whose request left its line last; NULL: nobody's has */
} shares;

void shares_deinit(shares *s);

/* Returns the tenant of this name (NULL: the one without a name), added if it is new, and sets its weight, clamped to
 * 1..SHARES_MOST_WEIGHT. Borrowed until shares_deinit(). */
shares_tenant *shares_find(shares *s, const char *name, uint32_t weight);

/* Add a request to its tenant's line, remove it, and return the first request of the tenant that is next. */
void shares_put(shares *s, shares_tenant *t, wait_item *i);
void shares_remove(shares *s, shares_tenant *t, wait_item *i); /* must be there */
wait_item *shares_first(const shares *s);                      /* NULL: nobody waits */

/* Charges a tenant for service of this cost. */
void shares_charge(shares *s, shares_tenant *t, uint64_t cost);

void shares_check(const shares *s); /* abort unless it agrees with itself */

#endif
