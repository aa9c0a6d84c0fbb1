/* decode.c - see decode.h */
#include "bench/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/group.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/median.h"
#include "bench/shapes.h"
#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "model/forward.h"
#include "model/lora.h"
#include "model/random.h"

enum { N_RUNS = 5 };

struct decode_bench {
    backend *be; /* borrowed */
    decode_options opt;
    model *m;
    lora **adapter;         /* [max_batch] */
    kv_cache kv[MAX_RANKS]; /* of each device, all alike */
    kv_pool *pool;
    forward *fwd;
    batch_builder *builder;
};

/* Makes n blocks of a cache, to be freed, with random numbers: zeros would be read as fast, but computed with less
 * power. */
static void *random_blocks(const kv_cache *kv, size_t n)
{
    size_t block = kv_block_bytes(kv), numbers = kv_numbers_bytes(kv);
    char *bits = xmalloc(n * block + 8);
    random_fill((uint64_t *)bits, (n * block + 7) / 8, kv->type, -3, 1);
    for (size_t i = 0; i < n && kv->type == DTYPE_F8; i++)
        for (int k = 0; k < kv->page_len; k++)
            ((float *)(bits + i * block + numbers))[k] = 0.5f;
    return bits;
}

static void fill_kv(decode_bench *d)
{
    size_t bytes = (size_t)d->kv->n_pages * kv_page_bytes(d->kv), block = kv_block_bytes(d->kv),
           some = ((size_t)32 << 20) / block + 1;
    void *bits = random_blocks(d->kv, some);
    for (int i = 0; i < group_devices(d->be); i++) {
        backend *be = group_device(d->be, i);
        for (size_t at = 0; at < bytes; at += some * block)
            be->ops->upload(be, (char *)d->kv[i].data + at, bits,
                            bytes - at < some * block ? bytes - at : some * block);
    }
    free(bits);
}

static int make_kv(decode_bench *d, err *e)
{
    d->kv[0] = forward_kv(d->m, d->opt.kv,
                          (d->opt.max_positions + d->opt.max_prompt) / KV_PAGE_LEN + d->opt.max_batch + 1, KV_PAGE_LEN);
    if (forward_kv_alloc(d->m, d->kv, e))
        return err_wrap(e, "KvCache of %d positions", d->opt.max_positions);
    fill_kv(d);
    d->pool = kv_pool_new(d->kv->n_pages, 0, KV_PAGE_LEN);
    return 0;
}

/* Makes the adapters. Those of one rank are copies: making so many random numbers would take longer than all that is
 * measured. */
static int make_adapters(decode_bench *d, err *e)
{
    const decode_options *o = &d->opt;
    dtype type = backend_weight_type(d->be, d->m->config.type);
    bool whole = true;
    d->adapter = XNEW_ARRAY(lora *, (size_t)o->max_batch);
    for (int r = 0; r < o->n_ranks && whole; r++) {
        lora *host = lora_random(&d->m->config, group_ranks(d->be), o->rank[r], type, (unsigned long)r);
        for (int i = r; i < o->max_batch && whole; i += o->n_ranks)
            whole = (d->adapter[i] = lora_upload(host, d->be, e)) != NULL;
        lora_free(host, NULL);
    }
    return whole ? 0 : err_wrap(e, "%d adapters", o->max_batch);
}

static model *make_model(backend *be, const decode_options *o, dtype type, err *e)
{
    model_config c;
    if (shape_find(o->shape, type, &c, e))
        return NULL;
    if (o->n_layers) {
        free(c.layer_slides);
        c.n_layers = o->n_layers;
        c.layer_slides = XNEW_ARRAY(bool, (size_t)c.n_layers);
    }
    return model_random(be, &c, o->form, 0, e);
}

decode_bench *decode_new(backend *be, const decode_options *o, dtype type, err *e)
{
    decode_bench *d = XNEW(decode_bench);
    *d = (decode_bench){.be = be, .opt = *o, .builder = batch_builder_new()};
    if ((d->m = make_model(be, o, type, e)) && make_adapters(d, e) == 0 && make_kv(d, e) == 0) {
        forward_limits l = {o->max_batch + o->max_prompt,
                            o->max_batch + 1,
                            o->max_batch + 1,
                            d->kv->n_pages,
                            KV_PAGE_LEN,
                            MAX_PARTS * LORA_MAX_RANK,
                            o->kv}; /* as in the engine */
        if ((d->fwd = forward_new(d->m, &l, e)))
            return d;
    }
    decode_free(d);
    return NULL;
}

void decode_free(decode_bench *d)
{
    if (!d)
        return;
    forward_free(d->fwd);
    batch_builder_free(d->builder);
    if (d->pool)
        kv_pool_free(d->pool);
    if (d->m)
        forward_kv_release(d->m, d->kv);
    for (int i = 0; d->adapter && i < d->opt.max_batch; i++)
        lora_free(d->adapter[i], d->be);
    free(d->adapter);
    model_free(d->m);
    free(d);
}

const model *decode_model(const decode_bench *d)
{
    return d->m;
}

/* Operations of one row: its projections, the head, attention to n_positions, and two for each number of its
 * adapter. */
static double row_flops(const model_config *c, const lora *l, int n_positions)
{
    double attention = 4.0 * c->n_layers * c->n_heads * c->head_dim * n_positions;
    return shape_row_flops(c) + shape_head_flops(c) + attention +
           (l ? 2.0 * (double)l->bytes / (double)dtype_size(c->type) : 0);
}

static void count_work(const decode_bench *d, const batch *b, const decode_rows *r, decode_floor *out)
{
    *out = (decode_floor){.weights =
                              (double)d->m->weight_bytes - (d->m->config.tie_embeddings ? 0 : model_embed_bytes(d->m))};
    for (int i = 0; i < b->segs.n; i++)
        out->adapters += b->segs.lora[i] ? (double)b->segs.lora[i]->bytes : 0;
    for (int i = 0; i < b->segs.n; i++)
        out->flops +=
            (b->segs.indptr[i + 1] - b->segs.indptr[i]) * row_flops(&d->m->config, b->segs.lora[i], r->context);
    out->kv =
        ((double)r->batch * r->context + r->prompt) * (double)kv_page_bytes(d->kv) * group_devices(d->be) / KV_PAGE_LEN;
}

/* Queues n steps over the same batch; each draw is collected when the next step is queued. */
static int run_steps(decode_bench *d, const batch *b, const sample_spec *spec, int n, err *e)
{
    backend *be = d->be;
    for (int i = 0; i < n; i++) {
        const tensor *logits = forward_run(d->fwd, b, d->kv);
        if (!d->opt.samples)
            continue;
        forward_sample(d->fwd, logits, spec, b->n_out);
        if (i > 0 && !forward_collect(d->fwd, e))
            return -1;
    }
    if (d->opt.samples && !forward_collect(d->fwd, e))
        return -1;
    return be->ops->sync(be, e);
}

/* Makes the specs of greedy draws, to be freed, and *mask, which they point to, likewise. Each mask allows half of the
 * vocabulary. */
static sample_spec *make_specs(const decode_bench *d, int n, uint32_t **mask)
{
    size_t words = ((size_t)d->m->config.vocab + 31) / 32;
    sample_spec *spec = XNEW_ARRAY(sample_spec, (size_t)n);
    *mask = d->opt.masked ? XNEW_ARRAY(uint32_t, words *(size_t)n) : NULL;
    for (size_t i = 0; *mask && i < words * (size_t)n; i++)
        (*mask)[i] = (uint32_t)rng_u64(3, i);
    for (int i = 0; i < n; i++)
        spec[i] = (sample_spec){
            .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .mask = *mask ? *mask + words * (size_t)i : NULL};
    return spec;
}

/* Times runs of about 50 ms, after first steps that warm up and tell how long a step is. */
static double time_steps(decode_bench *d, const batch *b, err *e)
{
    uint32_t *mask;
    sample_spec *spec = make_specs(d, b->n_out, &mask);
    double seconds[N_RUNS] = {0}, start = 0;
    int status = run_steps(d, b, spec, 3, e);
    start = clock_now();
    status = status ? status : run_steps(d, b, spec, 2, e);
    double one = (clock_now() - start) / 2;
    int n = one > 0.02 ? 3 : (int)(0.05 / one) + 1;
    for (int i = 0; i < N_RUNS && status == 0; i++) {
        start = clock_now();
        status = run_steps(d, b, spec, n, e);
        seconds[i] = (clock_now() - start) / n;
    }
    free(mask);
    free(spec);
    return status ? -1 : median(seconds, N_RUNS);
}

static batch_item item_of(decode_bench *d, const int *token, int n_rows, int n_positions, int adapter, kv_seq *kv)
{
    CHECK(kv_pool_reserve(d->pool, kv, n_positions) == 0);
    return (batch_item){.token = token,
                        .n_rows = n_rows,
                        .position = n_positions - n_rows,
                        .kv = kv,
                        .n_out = 1,
                        .lora = adapter < 0 ? NULL : d->adapter[adapter]};
}

double decode_time(decode_bench *d, decode_rows r, decode_floor *work, err *e)
{
    CHECK(r.batch <= d->opt.max_batch && r.batch * r.context <= d->opt.max_positions && r.prompt <= d->opt.max_prompt);
    size_t n = (size_t)r.batch;
    bench_request *who = XNEW_ARRAY(bench_request, n);
    batch_item *items = XNEW_ARRAY(batch_item, n), prompt;
    kv_seq *kv = XNEW_ARRAY(kv_seq, n + 1);
    int *tokens = XNEW_ARRAY(int, (size_t)r.prompt + 1);
    for (int i = 0; i <= r.prompt; i++)
        tokens[i] = 1;
    workload_make(r.w, r.batch, 1, 1, 2, 0, who);
    for (size_t i = 0; i < n; i++)
        items[i] = item_of(d, tokens, 1, r.context, who[i].adapter, &kv[i]);
    if (r.prompt)
        prompt = item_of(d, tokens, r.prompt, r.prompt, who[0].adapter, &kv[n]);
    const batch *b = batch_build(d->builder, &prompt, r.prompt > 0, items, r.batch);
    count_work(d, b, &r, work);
    double seconds = time_steps(d, b, e);
    for (size_t i = 0; i < n + (r.prompt > 0); i++)
        kv_pool_release(d->pool, &kv[i]);
    free(tokens);
    free(kv);
    free(items);
    free(who);
    return seconds;
}
