/* shares.h - weighted fair queueing of newcomers: which tenant's request is next (internal to the scheduler)
 *
 * Virtual token counters, after Sheng et al., "Fairness in Serving Large Language Models" (OSDI '24). Each tenant has a
 * counter of the service it was given: SHARES_PROMPT for each token of a prompt that is taken on, SHARES_OUTPUT for
 * each token of output, divided by the tenant's weight. Next is the first request of the tenant with the smallest
 * counter. A tenant that comes back after it had nobody waiting is lifted to the smallest counter of those that wait,
 * so that nobody hoards credit while away; with nobody waiting, to that of the tenant who left last.
 *
 * Within a tenant requests wait in the order of wait_queue.h: by priority, then arrival. With one tenant this is a
 * plain queue. Every function costs log n of the tenants that wait and log n of the requests of one tenant. */
#ifndef PUNICA_SCHEDULER_SHARES_H
#define PUNICA_SCHEDULER_SHARES_H

#include "base/map.h"
#include "scheduler/wait_queue.h"

enum { SHARES_PROMPT = 1, SHARES_OUTPUT = 2, SHARES_MOST_WEIGHT = 10000 };

typedef struct {
    size_t number; /* by when it first came */
    uint64_t unit; /* what its counter grows by for a service of 1: less for larger weights */
    uint64_t counter;
    wait_queue line; /* of its requests that wait for their first GPU */
    size_t at;       /* its place in the heap, while somebody is in that line */
} shares_tenant;

/* A tenant with somebody in line, and its counter beside it, or what that was when the slot was last looked at:
 * counters only grow, so that a slot needs to be looked at only when it is the first. */
typedef struct {
    uint64_t counter;
    shares_tenant *of;
} share_slot;

/* Tenants are kept for good: whoever comes again must not begin anew. Zero-initialise. */
typedef struct {
    map *by_name;
    shares_tenant **all; /* [n] owned */
    size_t n, cap;
    share_slot *heap; /* [n_waiting] by counter, then by who came first of those that are first in line */
    size_t n_waiting, heap_cap;
    size_t n_requests;   /* in all lines */
    shares_tenant *last; /* borrowed: whose request left its line last; NULL: nobody's has */
} shares;

void shares_deinit(shares *s);

/* The tenant of this name (NULL: the one without a name), of this weight from now on: 0 is taken for 1, and what is
 * beyond SHARES_MOST_WEIGHT for that. Borrowed until shares_deinit(). */
shares_tenant *shares_find(shares *s, const char *name, uint32_t weight);

/* A request joins, or leaves, its tenant's line; the first request of the tenant that is next. */
void shares_put(shares *s, shares_tenant *t, wait_item *i);
void shares_remove(shares *s, shares_tenant *t, wait_item *i); /* must be there */
wait_item *shares_first(const shares *s);                      /* NULL: nobody waits */

/* Charges a tenant for service of this cost. */
void shares_charge(shares *s, shares_tenant *t, uint64_t cost);

void shares_check(const shares *s); /* abort unless it agrees with itself */

#endif
