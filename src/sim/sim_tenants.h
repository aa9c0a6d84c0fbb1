/* sim_tenants.h - the tenants of a simulated cluster, as its frontends know them
 *
 * Each has a weight, one key and, perhaps, a limit of requests in flight; all may use everything. There is no store:
 * frontends know them from the beginning, and nobody counts what they use. */
#ifndef PUNICA_SIM_SIM_TENANTS_H
#define PUNICA_SIM_SIM_TENANTS_H

#include "frontend/tenants.h"

enum { MOST_TENANTS = 4 };

typedef struct { int weight, in_flight; } sim_tenant; /* in_flight 0: no limit */

/* A frontend's view of at[n]. Free with tenants_free(). */
tenants *sim_tenants_new(const sim_tenant *at, int n, const char *base);

/* The tenant of this number, by its key. Borrowed. */
tenant *sim_tenants_find(tenants *all, int number);

#endif
