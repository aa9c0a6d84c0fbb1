/* source_args.c - see source_args.h */
#include "cli/source_args.h"

#include <stdlib.h>

#include "base/mem.h"
#include "cli/arg_list.h"

void source_args_init(source_args *a)
{
    *a = (source_args){.fetch = fetch_options_default()};
    aws_profile_read(&a->profile);
    aws_profile_complete(&a->profile, &a->fetch);
}

int source_args_check(source_args *a, err *e)
{
    if (!a->cache)
        return err_set(e, "where to? give --cache DIR");
    ip_network *allowed = XNEW_ARRAY(ip_network, (size_t)a->networks.n + 1);
    a->fetch.allowed = allowed;
    for (; a->fetch.n_allowed < a->networks.n; a->fetch.n_allowed++)
        if (ip_network_parse(&allowed[a->fetch.n_allowed], a->networks.items[a->fetch.n_allowed], e))
            return err_wrap(e, "--allow-network");
    return 0;
}

int source_args_apply(source_args *a, const char *cache, const model_config *base, frontend_options *f, err *e)
{
    a->cache = cache;
    if (!cache)
        return a->updates ? err_set(e, "--adapter-updates needs --cache DIR") : 0;
    if (source_args_check(a, e))
        return -1;
    f->cache_bytes = a->cache_bytes;
    f->fetch = &a->fetch;
    f->base = base;
    f->adapter_updates = a->updates;
    return 0;
}

void source_args_deinit(source_args *a)
{
    free((void *)a->fetch.allowed);
    free(a->networks.items);
    aws_profile_deinit(&a->profile);
}

const char **source_args_list(const source_args *a, const char *cache, const char *model_dir, int *n)
{
    arg_list s = {0};
    *n = 0;
    if (!cache)
        return NULL;
    source_args told = *a;
    told.cache = cache;
    const option options[] = {FETCHER_OPTIONS(&told, model_dir), {NULL}};
    options_write(options, &s);
    *n = (int)s.n;
    return s.at;
}
