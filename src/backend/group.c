/* group.c - see group.h */
#include "backend/group.h"

#include <stdio.h>

#include "base/mem.h"

void group_join(backend *const *device, int n_devices, int n_ranks, comm *sum)
{
    CHECK(n_ranks <= MAX_RANKS && (n_devices == 1 || n_devices == n_ranks));
    group *g = XNEW(group);
    *g = (group){.n_ranks = n_ranks, .n_devices = n_devices, .sum = sum};
    snprintf(g->name, sizeof g->name, "%d ranks on %s%s", n_ranks, device[0]->name, n_devices > 1 ? " and more" : "");
    for (int i = 0; i < n_devices; i++)
        g->device[i] = device[i];
    device[0]->group = g;
    device[0]->name = g->name;
}
