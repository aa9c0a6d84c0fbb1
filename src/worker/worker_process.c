/* worker_process.c - see worker_process.h */
#include "worker/worker_process.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/devices.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/sandbox.h"
#include "engine/engine.h"
#include "net/frames.h"
#include "registry/adapter_files.h"
#include "registry/disk_cache.h"
#include "worker/adapter_store.h"
#include "worker/worker.h"

enum { SPARE_CORES = 4 }; /* with fewer cores, waking another process may take the core from this one */

typedef struct {
    const worker_options *opt;
    backend *be;
    model *m;
    adapter_store adapters;
    model_vocabulary vocabulary;
    grammars *grammars;
    engine *g;
    worker *w;
    frame_reader in;
    buf frame; /* scratch */
} worker_process;

static int send_frame(void *ctx, const void *message, size_t n)
{
    worker_process *p = ctx;
    buf_clear(&p->frame);
    frame_add(&p->frame, message, n);
    return file_write_all(p->opt->out, p->frame.data, p->frame.len);
}

/* Sends a notice when tokens of many requests are about to come, so that the processes that pass them on wake up. */
static void give_notice(void *ctx, int n)
{
    enum { MANY = 16 };
    if (n >= MANY)
        send_frame(ctx, NULL, 0); /* a failure shows again when the Step is sent */
}

static bool has_adapter(void *ctx, const char *id)
{
    const worker_process *p = ctx;
    char *dir = p->opt->cache && adapter_id_is_valid(id) ? path_join(p->opt->cache, id) : NULL;
    bool has = dir && file_is_dir(dir);
    if (has)
        disk_cache_use(dir);
    free(dir);
    return has;
}

/* Passes all commands that have come to the worker, waiting for the first when there is nothing else to do. */
static int read_commands(worker_process *p, err *e)
{
    for (double wait = worker_may_wait(p->w); frame_reader_wait(&p->in, wait); wait = 0) {
        if (frame_reader_fill(&p->in, e) < 0)
            return -1;
        size_t n;
        for (const void *bytes; (bytes = frame_reader_next(&p->in, &n));)
            if (worker_receive(p->w, bytes, n, e))
                return -1;
    }
    return 0;
}

/* Returns the most tokens that a request may have, and logs if the KvCache allows fewer than the model. */
static int longest(const worker_process *p)
{
    engine_stats s = engine_get_stats(p->g);
    int limit = p->m->config.max_positions, asked = p->opt->max_len > 0 ? p->opt->max_len : limit;
    long long held = (long long)s.pages_total * s.page_len;
    if (held < asked)
        log_info("the KvCache holds %lld tokens: no request may have more, of the %d that the model allows", held,
                 limit);
    return held < asked ? (int)held : asked;
}

static int open_all(worker_process *p, err *e)
{
    const worker_options *o = p->opt;
    dtype type;
    weights_form form;
    kv_form kv;
    if (weights_form_find(o->weights, &form, e) || kv_form_find(o->kv, &kv, e) ||
        model_weights_type(o->model_dir, &type, e) || !(p->be = backend_open(o->device, o->tp, type, o->threads, e)) ||
        !(p->m = model_load(p->be, o->model_dir, form, e)))
        return -1;
    p->adapters = (adapter_store){.dir = o->adapters_dir,
                                  .cache = o->cache,
                                  .named = o->adapter,
                                  .n_named = o->n_adapters,
                                  .base = &p->m->config,
                                  .be = p->be,
                                  .digests = digest_memo_new()};
    engine_options g = engine_options_default();
    g.max_batch = o->max_batch;
    g.n_pages = o->kv_pages;
    g.kv = kv;
    g.memory_share = o->memory_share > 0 ? o->memory_share : g.memory_share;
    g.max_len = o->max_len;
    g.n_adapter_slots = o->adapter_slots;
    g.image_bytes = o->adapter_host_bytes ? o->adapter_host_bytes : g.image_bytes;
    g.itl_target = o->itl_target > 0 ? o->itl_target / 1e3 : g.itl_target;
    g.adapters = adapter_store_source(&p->adapters);
    g.never_waits = true;
    g.no_prefix_cache = o->no_prefix_cache;
    g.host_bytes = o->host_bytes;
    g.now = clock_reading;
    g.drawn = pool_cores() >= SPARE_CORES ? give_notice : NULL;
    g.drawn_ctx = p;
    p->g = engine_new(p->m, &g, e);
    if (!p->g || engine_warm_up(p->g, e))
        return -1;
    p->vocabulary = (model_vocabulary){o->model_dir, p->m->config.vocab};
    p->grammars = grammars_new((vocabulary_source){model_vocabulary_read, &p->vocabulary}, jobs_threads_new(1));
    char uuid[64], device[256];
    backend_device_uuid(o->device, uuid, sizeof uuid);
    snprintf(device, sizeof device, "%s, weights %s, KvCache %s", p->be->name,
             weights_name(form, p->m->config.quant, p->m->config.type), kv == KV_FP8 ? "FP8" : dtype_name(p->be->act));
    p->w = worker_new(p->g, &(worker_setup){.gpu = o->gpu,
                                            .uuid = uuid,
                                            .device = device,
                                            .max_batch = engine_get_stats(p->g).max_batch,
                                            .max_tokens = longest(p),
                                            .grammars = p->grammars,
                                            .has_adapter = has_adapter,
                                            .tells_residents = true,
                                            .send = send_frame,
                                            .now = clock_reading,
                                            .ctx = p});
    p->in.fd = o->in;
    return 0;
}

static void close_all(worker_process *p)
{
    worker_free(p->w);
    engine_free(p->g);
    digest_memo_free(p->adapters.digests);
    grammars_free(p->grammars);
    model_free(p->m);
    backend_close(p->be);
    frame_reader_deinit(&p->in);
    buf_free(&p->frame);
}

/* Serves until the runner is gone: 0; -1: the device failed. */
static int serve(worker_process *p, err *e)
{
    err pipe = {0};
    worker_status status = worker_announce(p->w);
    while (status == WORKER_GOES_ON && read_commands(p, &pipe) == 0) {
        status = worker_report_news(p->w);
        if (status == WORKER_GOES_ON)
            status = worker_step(p->w, e);
    }
    if (status == WORKER_FAILED)
        return -1;
    log_debug("worker %d ends: %s", p->opt->gpu, *pipe.msg ? pipe.msg : "the pipe is closed");
    return 0;
}

static bool has_several_gpus(const char *device)
{
    int n;
    err e;
    return backend_device_range(device, &n, &e) >= 0 && n > 1;
}

int worker_run(const worker_options *o, err *e)
{
    worker_process p = {.opt = o};
    int status = open_all(&p, e);
    if (status == 0) {
        sandbox_worker_calls(has_several_gpus(o->device));
        status = serve(&p, e);
    }
    close_all(&p);
    return status;
}
