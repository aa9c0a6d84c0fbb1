/* sim_tenants.c - see sim_tenants.h */
#include "sim/sim_tenants.h"

#include <string.h>

#include "base/err.h"

static const char *const names[MOST_TENANTS] = {"acme", "busy", "calm", "dull"}; /* also their keys */

tenants *sim_tenants_new(const sim_tenant *at, int n, const char *base)
{
    store_tenant of[MOST_TENANTS];
    store_key key[MOST_TENANTS];
    store_grant grant[MOST_TENANTS];
    store_directory d = {
        .tenant = of, .key = key, .grant = grant, .n_tenants = (size_t)n, .n_keys = (size_t)n, .n_grants = (size_t)n};
    for (int i = 0; i < n; i++) {
        of[i] = (store_tenant){.name = names[i], .base = true, .weight = at[i].weight, .in_flight = at[i].in_flight};
        key[i] = (store_key){.tenant = names[i], .name = "main"};
        digest_of_parts(&key[i].of, &(digest_part){names[i], strlen(names[i])}, 1);
        grant[i] = (store_grant){.tenant = names[i], .adapter = "*"};
    }
    tenants *all = tenants_new(base);
    tenants_apply(all, &d);
    return all;
}

tenant *sim_tenants_find(tenants *all, int number)
{
    tenant *t = tenants_find(all, names[number], 0);
    CHECK(t);
    return t;
}
