/* random_adapters.c - see random_adapters.h */
#include "bench/random_adapters.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/group.h"
#include "model/adapter.h"

static lora *load(void *ctx, const char *name, err *e)
{
    (void)e;
    const random_adapters *s = ctx;
    return lora_random(&s->m->config, group_ranks(s->m->be), s->rank, s->type, strtoul(name, NULL, 10));
}

adapter_source random_adapters_source(random_adapters *of)
{
    return (adapter_source){.load = load, .ctx = of};
}

int random_adapters_preload(engine *g, int n, err *e)
{
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (engine_preload(g, name, e))
            return -1;
    }
    return 0;
}
