/* local_engine.c - see local_engine.h */
#include "cli/local_engine.h"

#include <math.h>

#include "backend/devices.h"
#include "base/clock.h"
#include "cli/engine_args.h"

int default_itl_target(void)
{
    return (int)lround(engine_options_default().itl_target * 1e3);
}

local_engine_args local_engine_args_default(void)
{
    return (local_engine_args){.device = "cpu",
                               .weights = WEIGHTS_DEFAULT,
                               .kv = KV_DEFAULT,
                               .tp = 1,
                               .itl_target = default_itl_target(),
                               .memory_share = engine_options_default().memory_share};
}

int local_engine_open(local_engine *l, const local_engine_args *a, err *e)
{
    dtype type;
    weights_form form;
    if (weights_form_find(a->weights, &form, e) || kv_form_find(a->kv, &l->kv, e) ||
        model_weights_type(a->model_dir, &type, e))
        return -1;
    if (!(l->be = backend_open(a->device, a->tp, type, a->threads, e)))
        return -1;
    if (!(l->m = model_load(l->be, a->model_dir, form, e)) || !(l->t = tokenizer_load(a->model_dir, e)))
        return -1;
    return adapter_set_open(&l->adapters, &a->adapters, &l->m->config, l->be, e);
}

int local_engine_start(local_engine *l, const local_engine_args *a, err *e)
{
    engine_options o = engine_options_default();
    o.max_batch = a->max_batch;
    o.n_pages = a->kv_pages;
    o.memory_share = a->memory_share;
    o.kv = l->kv;
    o.no_prefix_cache = a->no_prefix_cache;
    o.itl_target = a->itl_target / 1e3;
    o.now = clock_reading;
    o.adapters = adapter_set_source(&l->adapters);
    l->g = engine_new(l->m, &o, e);
    return l->g ? 0 : -1;
}

void local_engine_close(local_engine *l)
{
    engine_free(l->g);
    adapter_set_close(&l->adapters);
    tokenizer_free(l->t);
    model_free(l->m);
    backend_close(l->be);
}
