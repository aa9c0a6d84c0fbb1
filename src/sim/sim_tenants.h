/* sim_tenants.h - the tenants of a simulated cluster, as its frontends know them
 *
 * Each has a weight, one key and, perhaps, a limit of requests in flight; all may use everything. There is no store:
 * frontends know them from the start, and their usage is not recorded. */
#ifndef PUNICA_SIM_SIM_TENANTS_H
#define PUNICA_SIM_SIM_TENANTS_H

#include "frontend/tenants.h"

enum { MOST_TENANTS = 4 };

typedef struct { int weight, in_flight; } sim_tenant; /* in_flight 0: no limit */

/* Makes a frontend's view of the tenants at[n]; base: the model. Free with tenants_free(). */
tenants *sim_tenants_new(const sim_tenant *at, int n, const char *base);

/* Returns the tenant of this number, found by its key. Borrowed. */
tenant *sim_tenants_find(tenants *all, int number);

#endif
