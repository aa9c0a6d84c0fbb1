/* fair_places.h - how many of whom may do at once what may take long through its owner's fault
 *
 * For fetching adapters: a tenant names its sources, and a source may stall. Of one tenant few are under way, and of
 * all together some more. The first of each tenant, and of those without one, begins even when these places are taken,
 * up to a bound that keeps the host alive: so nobody waits for others' slow sources as long as fewer than that are
 * slow. */
#ifndef PUNICA_BASE_FAIR_PLACES_H
#define PUNICA_BASE_FAIR_PLACES_H

#include <stdbool.h>

enum { FAIR_PLACES = 8, FAIR_PLACES_OF_TENANT = 2, FAIR_PLACES_MOST = 32 };

/* Whether one more may begin where n are under way, n_own of them of the same tenant, or likewise of none. */
static inline bool fair_places_has(int n, int n_own, bool is_tenant)
{
    if (n_own == 0)
        return n < FAIR_PLACES_MOST;
    return n < FAIR_PLACES && !(is_tenant && n_own >= FAIR_PLACES_OF_TENANT);
}

#endif
