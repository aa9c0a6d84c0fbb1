/* engine_sizes.c - see engine_sizes.h */
#include "engine/engine_sizes.h"

#include <limits.h>
#include <math.h>

#include "backend/group.h"
#include "base/mem.h"

/* Defaults of batch and prompt rows. On the CPU steps of more than some hundred rows gain nothing. */
typedef struct { int batch, rows; } device_sizes;
static const device_sizes CPU_SIZES = {CPU_BATCH, 1024}, GPU_SIZES = {GPU_BATCH, GPU_PROMPT_ROWS};
enum { FEWEST_BATCH = 8, FEWEST_ROWS = 256, FEWEST_PAGES = 8 };

static const double SPARE = 0.05;   /* share of a device that the KvCache never takes: steps and adapters need some */
static const double SCRATCH = 0.02; /* share of a device for the activations of a step */

bool engine_sizes_is_gpu(const model *m)
{
    backend *be = group_device(m->be, 0);
    return be->ops->memory(be) > 0;
}

int engine_sizes_within(double n, int least, int most)
{
    return n < least ? least : n < most ? (int)n : most;
}

int engine_sizes_longest(const engine_options *o, const model *m)
{
    return o->max_len > 0 ? o->max_len : m->config.max_positions;
}

static int pages_of(const engine_options *o, int n_tokens)
{
    return (n_tokens + o->page_len - 1) / o->page_len;
}

/* Bytes that the KvCache may take on a device. On the CPU pages never used are never touched and so take no memory. */
static double room_on(const engine_options *o, const model *m, backend *be)
{
    double all = (double)be->ops->memory(be), left = (double)be->ops->available(be);
    if (all == 0)
        return left / 2;
    double weights = (double)m->weight_bytes / group_devices(m->be);
    return fmin(o->memory_share * all - weights, left - SPARE * all);
}

/* Every device takes the same, so the one with least room decides. */
static double room_for_pages(const engine_options *o, const model *m)
{
    double room = INFINITY;
    for (int d = 0; d < group_devices(m->be); d++)
        room = fmin(room, room_on(o, m, group_device(m->be, d)));
    return room;
}

/* Pages of the KvCache: as many as fit, but no more than a full batch of the longest requests needs. */
static int default_pages(const engine_options *o, const model *m, double fit)
{
    double most = (double)o->max_batch * pages_of(o, engine_sizes_longest(o, m));
    return engine_sizes_within(fmin(fit, most), FEWEST_PAGES, INT_MAX);
}

static int default_batch(const engine_options *o, const model *m, double pages)
{
    int longest = engine_sizes_longest(o, m), each = longest < USUAL_LEN ? longest : USUAL_LEN;
    int most = engine_sizes_is_gpu(m) ? GPU_SIZES.batch : CPU_SIZES.batch;
    return engine_sizes_within(pages / pages_of(o, each), FEWEST_BATCH, most);
}

static int default_rows(const model *m)
{
    backend *be = group_device(m->be, 0);
    if (!engine_sizes_is_gpu(m))
        return CPU_SIZES.rows;
    double fit = SCRATCH * (double)be->ops->memory(be) / (double)forward_row_bytes(m);
    return engine_sizes_within(fit, FEWEST_ROWS, GPU_SIZES.rows);
}

void engine_sizes_choose(engine_options *o, const model *m, const kv_cache *one)
{
    double fit = room_for_pages(o, m) / (double)kv_page_bytes(one);
    o->max_batch = o->max_batch ? o->max_batch : default_batch(o, m, o->n_pages ? o->n_pages : fit);
    o->n_pages = o->n_pages ? o->n_pages : default_pages(o, m, fit);
    o->prefill_rows = o->prefill_rows ? o->prefill_rows : default_rows(m);
    o->n_adapter_slots = o->n_adapter_slots           ? o->n_adapter_slots
                         : o->max_batch > USUAL_SLOTS ? o->max_batch
                                                      : USUAL_SLOTS;
}

int engine_sizes_check(const engine_options *o, const model *m, err *e)
{
    int longest = engine_sizes_longest(o, m);
    if (longest > m->config.max_positions)
        return err_set(e, "a request of %d tokens (--max-model-len) does not fit: the model allows %d", longest,
                       m->config.max_positions);
    if (o->max_len > 0 && pages_of(o, longest) > o->n_pages)
        return err_set(e,
                       "a request of %d tokens does not fit: the KvCache has room for %lld on %s; allow fewer "
                       "(--max-model-len), more memory "
                       "(--memory-share, --kv-pages), or 8 bits (--kv fp8)",
                       longest, (long long)o->n_pages * o->page_len, m->be->name);
    return 0;
}

/* Pinned memory is lost to everybody else on the host, and pinning it takes time: hence a share. */
size_t engine_sizes_host_bytes(const engine_options *o, const model *m)
{
    if (o->no_prefix_cache || (o->host_bytes == KV_HOST_AUTO && !engine_sizes_is_gpu(m)))
        return 0;
    size_t share = mem_available() / 8, most = (size_t)KV_HOST_AUTO_GIB << 30;
    return o->host_bytes != KV_HOST_AUTO ? o->host_bytes : share < most ? share : most;
}

int engine_sizes_max_out(const engine_options *o)
{
    return o->max_batch + SCORED_ROWS;
}

/* A page that several requests share counts for each: every sequence lists its pages. */
forward_limits engine_sizes_of_step(const engine_options *o, const model *m)
{
    double pages = (double)o->max_batch * fmin(pages_of(o, engine_sizes_longest(o, m)), o->n_pages);
    return (forward_limits){o->prefill_rows + o->max_batch,
                            o->max_batch,
                            engine_sizes_max_out(o),
                            engine_sizes_within(pages, 1, INT_MAX),
                            o->page_len,
                            MAX_PARTS * LORA_MAX_RANK,
                            o->kv};
}

int engine_sizes_explain(const kv_cache *kv, const model *m, err *e)
{
    double gb = 1e9, page = (double)kv_page_bytes(kv), left = (double)m->be->ops->available(m->be);
    return err_wrap(
        e,
        "a KvCache of %d pages (%.2f GB) does not fit on %s: the weights take %.2f GB and %.2f GB are left, room for "
        "%d pages beside nothing else; ask for fewer (--kv-pages), or a smaller batch (--max-batch)",
        kv->n_pages, kv->n_pages * page / gb, m->be->name, (double)m->weight_bytes / gb, left / gb,
        (int)(left * 0.95 / page));
}
