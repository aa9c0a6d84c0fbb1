/* fair_places.h - how many slow operations may run at once, per tenant and in all
 *
 * For fetching adapters: a tenant names its sources, and a source may stall. One tenant may have FAIR_PLACES_OF_TENANT
 * fetches under way, all together FAIR_PLACES. The first of each tenant, and the first without a tenant, may exceed
 * that up to FAIR_PLACES_MOST, which protects the host: so nobody waits for others' slow sources while fewer than that
 * are slow. */
#ifndef PUNICA_BASE_FAIR_PLACES_H
#define PUNICA_BASE_FAIR_PLACES_H

#include <stdbool.h>

enum { FAIR_PLACES = 8, FAIR_PLACES_OF_TENANT = 2, FAIR_PLACES_MOST = 32 };

/* Returns whether one more may begin while n are under way, n_own of them by the same tenant (or, if !is_tenant,
 * without a tenant). */
static inline bool fair_places_has(int n, int n_own, bool is_tenant)
{
    if (n_own == 0)
        return n < FAIR_PLACES_MOST;
    return n < FAIR_PLACES && !(is_tenant && n_own >= FAIR_PLACES_OF_TENANT);
}

#endif
