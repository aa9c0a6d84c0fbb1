/* source_args.c - see source_args.h */
#include "cli/source_args.h"

#include <stdlib.h>

#include "base/mem.h"

void source_args_init(source_args *a)
{
    *a = (source_args){.fetch = fetch_options_default()};
}

int source_args_check(source_args *a, err *e)
{
    if (!a->cache)
        return err_set(e, "where to? give --cache DIR");
    network *allowed = XNEW_ARRAY(network, (size_t)a->networks.n + 1);
    a->fetch.allowed = allowed;
    for (; a->fetch.n_allowed < a->networks.n; a->fetch.n_allowed++)
        if (network_parse(&allowed[a->fetch.n_allowed], a->networks.items[a->fetch.n_allowed], e))
            return err_wrap(e, "--allow-network");
    return 0;
}

int source_args_apply(source_args *a, const char *cache, const model_config *base, frontend_options *f, err *e)
{
    if (!a->updates)
        return 0;
    a->cache = cache;
    if (!cache)
        return err_set(e, "--adapter-updates needs --cache DIR");
    if (source_args_check(a, e))
        return -1;
    a->api = (adapter_api_options){.cache = cache, .cache_bytes = a->cache_bytes, .fetch = &a->fetch, .base = base};
    f->adapter_api = &a->api;
    return 0;
}

void source_args_deinit(source_args *a)
{
    free((void *)a->fetch.allowed);
    free(a->networks.items);
}
