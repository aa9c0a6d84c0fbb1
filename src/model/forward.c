/* forward.c - the Llama family's forward pass, one op per line
 *
 *   x ── norm ── q|k|v ── (head norm) ── rope, append ── attention ── o ──┐
 *   ├──────────────────────────────────────────────────────────────────── + ── x'
 *   x' ── norm ── gate|up ── silu·mul ── down ──┐
 *   ├────────────────────────────────────────── + ── next layer
 *
 * Every projection is linear_shrink (the dense product of all rows beside the first half of each row's own adapter) and
 * an expand_ op, which adds the second half and does what comes next. Families differ only in which optional weights
 * are present.
 *
 * Split over ranks, each rank does this with its share of the heads and of the feed-forward width, one rank after the
 * other. At each plus a rank has a part of the sum, with its v B, and the communicator adds these up. */
#include "model/forward.h"

#include <stdlib.h>

#include "backend/group.h"
#include "base/mem.h"
#include "model/split.h"

struct forward {
    const model *m; /* borrowed */
    int n_ranks, n_devices;
    int max_rows, max_out, max_sequences, max_pages;
    /* Activations, by rank: */
    tensor x[MAX_RANKS];                       /* [rows, hidden] the residual stream, F32 */
    tensor h[MAX_RANKS];                       /* [rows, hidden] normed input of a block */
    tensor qkv[MAX_RANKS];                     /* [rows, (heads + 2 kv heads) * head_dim] */
    tensor attn[MAX_RANKS];                    /* [rows, heads * head_dim] */
    tensor gate_up[MAX_RANKS], act[MAX_RANKS]; /* [rows, 2 ffn], [rows, ffn] */
    tensor out[MAX_RANKS], down[MAX_RANKS];    /* [rows, hidden] the two blocks' output, added to x by the next norm */
    tensor v[MAX_RANKS];    /* [rows, largest sum of ranks at a site] between shrink and expand, F32 */
    tensor last[MAX_RANKS]; /* [out, hidden] */
    /* [rows, hidden] F32, embeddings of its tokens; this and the next only with several ranks. */
    tensor embedded[MAX_RANKS];
    tensor part[MAX_RANKS];     /* [out, its vocabulary] F32 */
    tensor logits[MAX_RANKS];   /* by device: [out, vocab] F32 */
    batch of_device[MAX_RANKS]; /* the batch with each device's adapters */
    const lora **loras;         /* [n_devices, rows] what they point to */
};

static heads heads_of(const forward *f)
{
    return split_heads(&f->m->config, (split){0, f->n_ranks});
}

static backend *backend_of(const forward *f, int rank)
{
    return group_device_of(f->m->be, rank);
}

static int scratch(const forward *f, int rank, tensor *t, dtype type, int rows, int cols, err *e)
{
    backend *be = backend_of(f, rank);
    *t = (tensor){.type = type, .rows = rows, .cols = cols};
    t->data = be->ops->alloc(be, tensor_bytes(t), e);
    return t->data ? 0 : err_wrap(e, "activations for %d rows", rows);
}

size_t forward_row_bytes(const model *m)
{
    const model_config *c = &m->config;
    int n_ranks = group_ranks(m->be);
    heads h = split_heads(c, (split){0, n_ranks});
    size_t hidden = (size_t)c->hidden, q = (size_t)(h.n_heads * h.head_dim), kv = (size_t)(h.n_kv_heads * h.head_dim);
    size_t ffn = (size_t)split_in(c, (split){0, n_ranks}, SITE_DOWN).n, n_act = 3 * hidden + 2 * q + 2 * kv + 3 * ffn;
    size_t n_float = hidden + MAX_PARTS * LORA_MAX_RANK + (n_ranks > 1 ? hidden : 0);
    return (n_act * dtype_size(m->be->act) + n_float * sizeof(float)) * (size_t)group_ranks_per_device(m->be);
}

static int make_rank(forward *f, int r, const forward_limits *l, err *e)
{
    const model_config *c = &f->m->config;
    split s = {r, f->n_ranks};
    heads h = heads_of(f);
    int q = h.n_heads * h.head_dim, kv = h.n_kv_heads * h.head_dim, ffn = split_in(c, s, SITE_DOWN).n, rows = l->rows;
    dtype act = f->m->be->act;
    if (f->n_ranks > 1 && (scratch(f, r, &f->embedded[r], DTYPE_F32, rows, c->hidden, e) ||
                           scratch(f, r, &f->part[r], DTYPE_F32, l->out, split_vocab(c, s).n, e)))
        return -1;
    return scratch(f, r, &f->x[r], DTYPE_F32, rows, c->hidden, e) || scratch(f, r, &f->h[r], act, rows, c->hidden, e) ||
                   scratch(f, r, &f->qkv[r], act, rows, q + 2 * kv, e) || scratch(f, r, &f->attn[r], act, rows, q, e) ||
                   scratch(f, r, &f->gate_up[r], act, rows, 2 * ffn, e) ||
                   scratch(f, r, &f->act[r], act, rows, ffn, e) || scratch(f, r, &f->out[r], act, rows, c->hidden, e) ||
                   scratch(f, r, &f->down[r], act, rows, c->hidden, e) ||
                   scratch(f, r, &f->v[r], DTYPE_F32, rows, l->rank_sum, e) ||
                   scratch(f, r, &f->last[r], act, l->out, c->hidden, e)
               ? -1
               : 0;
}

static int make_device(forward *f, int d, const forward_limits *l, err *e)
{
    const model_config *c = &f->m->config;
    backend *be = group_device(f->m->be, d);
    int per_device = f->n_ranks / f->n_devices;
    extent x = {.max_rows = l->rows,
                .max_out = l->out,
                .max_sequences = l->sequences,
                .max_pages = l->pages,
                .page_len = l->page_len,
                .max_rank_sum = l->rank_sum,
                .vocab = c->vocab,
                .n_sites = c->n_layers * N_SITES * per_device,
                .kv_fp8 = l->kv == KV_FP8,
                .h = heads_of(f)};
    return scratch(f, d * per_device, &f->logits[d], DTYPE_F32, l->out, c->vocab, e) || be->ops->reserve(be, &x, e) ? -1
                                                                                                                    : 0;
}

forward *forward_new(const model *m, const forward_limits *l, err *e)
{
    forward *f = XNEW(forward);
    *f = (forward){.m = m,
                   .n_ranks = group_ranks(m->be),
                   .n_devices = group_devices(m->be),
                   .max_rows = l->rows,
                   .max_out = l->out,
                   .max_sequences = l->sequences,
                   .max_pages = l->pages};
    f->loras = XNEW_ARRAY(const lora *, (size_t)f->n_devices *(size_t)l->rows);
    int status = 0;
    for (int r = 0; r < f->n_ranks && status == 0; r++)
        status = make_rank(f, r, l, e);
    for (int d = 0; d < f->n_devices && status == 0; d++)
        status = make_device(f, d, l, e);
    if (status == 0)
        return f;
    forward_free(f);
    return NULL;
}

static void drop(backend *be, tensor *t)
{
    if (t->data)
        be->ops->release(be, t->data);
}

void forward_free(forward *f)
{
    if (!f)
        return;
    for (int r = 0; r < f->n_ranks; r++) {
        tensor *all[] = {&f->x[r],   &f->h[r],    &f->qkv[r], &f->attn[r], &f->gate_up[r],  &f->act[r],
                         &f->out[r], &f->down[r], &f->v[r],   &f->last[r], &f->embedded[r], &f->part[r]};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            drop(backend_of(f, r), all[i]);
    }
    for (int d = 0; d < f->n_devices; d++) {
        backend *be = group_device(f->m->be, d);
        be->ops->forget(be, f);
        drop(be, &f->logits[d]);
    }
    free(f->loras);
    free(f);
}

kv_cache forward_kv(const model *m, kv_form form, int n_pages, int page_len)
{
    heads h = split_heads(&m->config, (split){0, group_ranks(m->be)});
    return (kv_cache){.type = form == KV_FP8 ? DTYPE_F8 : m->be->act,
                      .n_pages = n_pages,
                      .n_layers = m->config.n_layers * group_ranks_per_device(m->be),
                      .n_kv_heads = h.n_kv_heads,
                      .page_len = page_len,
                      .head_dim = h.head_dim};
}

int forward_kv_alloc(const model *m, kv_cache *kv, err *e)
{
    for (int d = 0; d < group_devices(m->be); d++) {
        backend *be = group_device(m->be, d);
        kv[d] = kv[0];
        if (!(kv[d].data = be->ops->alloc(be, (size_t)kv->n_pages * kv_page_bytes(kv), e)))
            return -1;
    }
    return 0;
}

void forward_kv_release(const model *m, kv_cache *kv)
{
    for (int d = 0; d < group_devices(m->be); d++) {
        backend *be = group_device(m->be, d);
        if (kv[d].data)
            be->ops->release(be, kv[d].data);
        kv[d].data = NULL;
    }
}

static void set_rows(forward *f, int rows, int out)
{
    for (int r = 0; r < f->n_ranks; r++) {
        tensor *by_row[] = {&f->x[r],   &f->h[r],   &f->qkv[r],  &f->attn[r], &f->gate_up[r],
                            &f->act[r], &f->out[r], &f->down[r], &f->v[r],    &f->embedded[r]};
        for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++)
            by_row[i]->rows = rows;
        f->last[r].rows = f->part[r].rows = out;
    }
    for (int d = 0; d < f->n_devices; d++)
        f->logits[d].rows = out;
}

/* Numbers a rank's layer among the layers of all ranks on its device. */
static int layer_number(const forward *f, int rank, int layer)
{
    return group_place_of(f->m->be, rank) * f->m->config.n_layers + layer;
}

static adapted site_of(forward *f, int rank, int layer, int site)
{
    return (adapted){.w = &f->m->rank[rank].layer[layer].site[site],
                     .site = layer_number(f, rank, layer) * N_SITES + site,
                     .v = &f->v[rank]};
}

/* Queues a rank's share of a block's last projection: with one rank without v B, which add_block() adds; with several
 * all of its part of the sum. */
static void project_out(forward *f, int r, tensor *y, const tensor *x, const adapted *a, const batch *b)
{
    backend *be = backend_of(f, r);
    be->ops->linear_shrink(be, y, x, a, b);
    if (f->n_ranks > 1)
        be->ops->expand(be, y, a, b);
}

static void run_attention(forward *f, int r, const batch *b, kv_cache *kv, int i)
{
    const model_config *c = &f->m->config;
    const model_layer *layer = &f->m->rank[r].layer[i];
    adapted qkv = site_of(f, r, i, SITE_QKV), o = site_of(f, r, i, SITE_O);
    head_norms norms = {layer->q_norm, layer->k_norm, c->rms_eps};
    heads hs = heads_of(f);
    int kv_layer = layer_number(f, r, i);
    backend *be = backend_of(f, r);
    const backend_ops *op = be->ops;

    op->linear_shrink(be, &f->qkv[r], &f->h[r], &qkv, b);
    op->expand_rope_append(be, &f->qkv[r], hs, &norms, f->m->rank[r].inv_freq, &qkv, b, kv, kv_layer);
    op->attention(be, &f->attn[r], &f->qkv[r], hs, b, kv, kv_layer, c->layer_slides[i] ? c->window : 0);
    project_out(f, r, &f->out[r], &f->attn[r], &o, b);
}

static void run_mlp(forward *f, int r, const batch *b, int i)
{
    adapted gate_up = site_of(f, r, i, SITE_GATE_UP), down = site_of(f, r, i, SITE_DOWN);
    backend *be = backend_of(f, r);
    const backend_ops *op = be->ops;

    op->linear_shrink(be, &f->gate_up[r], &f->h[r], &gate_up, b);
    op->expand_silu_mul(be, &f->gate_up[r], &f->act[r], &gate_up, b);
    project_out(f, r, &f->down[r], &f->act[r], &down, b);
}

/* Adds a block's output, over all ranks, to the residual stream and norms that for the next block. out, norm: by
 * rank. */
static void add_block(forward *f, tensor *out, const batch *b, int layer, int site, const tensor *const *norm)
{
    float eps = f->m->config.rms_eps;
    backend *be = f->m->be;
    if (f->n_ranks > 1) {
        be->group->sum->ops->add_rms_norm(be->group->sum, f->h, f->x, out, norm, eps);
        return;
    }
    adapted a = site_of(f, 0, layer, site);
    be->ops->expand_add_rms_norm(be, out, &f->h[0], &f->x[0], norm[0], eps, &a, b);
}

/* b, kv: by device. */
static void run_layer(forward *f, const batch *b, kv_cache *kv, int i)
{
    const model *m = f->m;
    const tensor *mlp_norm[MAX_RANKS], *next_norm[MAX_RANKS];
    int per_device = f->n_ranks / f->n_devices;
    for (int r = 0; r < f->n_ranks; r++) {
        mlp_norm[r] = &m->rank[r].layer[i].mlp_norm;
        next_norm[r] = i + 1 < m->config.n_layers ? &m->rank[r].layer[i + 1].attn_norm : &m->rank[r].final_norm;
    }
    for (int r = 0; r < f->n_ranks; r++)
        run_attention(f, r, &b[r / per_device], &kv[r / per_device], i);
    add_block(f, f->out, b, i, SITE_O, mlp_norm);
    for (int r = 0; r < f->n_ranks; r++)
        run_mlp(f, r, &b[r / per_device], i);
    add_block(f, f->down, b, i, SITE_DOWN, next_norm);
}

static void run_embedding(forward *f, const batch *b)
{
    const model *m = f->m;
    int per_device = f->n_ranks / f->n_devices;
    for (int r = 0; r < f->n_ranks; r++) {
        backend *be = backend_of(f, r);
        be->ops->embed(be, f->n_ranks > 1 ? &f->embedded[r] : &f->x[r], &m->rank[r].embed,
                       split_vocab(&m->config, (split){r, f->n_ranks}).from, &b[r / per_device]);
    }
    if (f->n_ranks > 1)
        m->be->group->sum->ops->all_reduce(m->be->group->sum, f->x, f->embedded);
    for (int r = 0; r < f->n_ranks; r++) {
        backend *be = backend_of(f, r);
        be->ops->rms_norm(be, &f->h[r], &f->x[r], &m->rank[r].layer[0].attn_norm, m->config.rms_eps);
    }
}

static void run_logits(forward *f, const batch *b)
{
    const model *m = f->m;
    int per_device = f->n_ranks / f->n_devices;
    for (int r = 0; r < f->n_ranks; r++) {
        backend *be = backend_of(f, r);
        be->ops->gather(be, &f->last[r], &f->h[r], &b[r / per_device]);
        be->ops->linear(be, f->n_ranks > 1 ? &f->part[r] : &f->logits[0], &f->last[r], &m->rank[r].lm_head);
    }
    if (f->n_ranks > 1)
        m->be->group->sum->ops->all_gather(m->be->group->sum, f->logits, f->part);
}

static void run_model(forward *f, const batch *b, kv_cache *kv)
{
    run_embedding(f, b);
    for (int i = 0; i < f->m->config.n_layers; i++)
        run_layer(f, b, kv, i);
    run_logits(f, b);
}

/* Makes a batch for each device, with what this device has of the adapters. */
static void set_device_batches(forward *f, const batch *b)
{
    const lora **to = f->loras;
    f->of_device[0] = *b;
    for (int d = 1; d < f->n_devices; d++, to += b->segs.n) {
        const batch *before = &f->of_device[d - 1];
        for (int i = 0; i < b->segs.n; i++)
            to[i] = before->segs.lora[i] ? before->segs.lora[i]->next : NULL;
        f->of_device[d] = *b;
        f->of_device[d].segs.lora = to;
    }
}

const tensor *forward_run(forward *f, const batch *b, kv_cache *kv)
{
    invocation v = {0};
    CHECK(b->n_prefills + b->n_decodes <= f->max_sequences &&
          b->page_indptr[b->n_prefills + b->n_decodes] <= f->max_pages);
    set_device_batches(f, b);
    for (int d = 0; d < f->n_devices; d++) {
        backend *be = group_device(f->m->be, d);
        v = be->ops->begin(be, &f->of_device[d], f); /* of one size and history: the same on each */
    }
    CHECK(v.n_rows <= f->max_rows && v.n_out <= f->max_out);
    set_rows(f, v.n_rows, v.n_out);
    if (!v.replayed)
        run_model(f, f->of_device, kv);
    for (int d = 0; d < f->n_devices; d++) {
        backend *be = group_device(f->m->be, d);
        be->ops->end(be);
    }
    return f->logits;
}

void forward_sample(forward *f, const tensor *logits, const sample_spec *spec, int n)
{
    for (int d = 0; d < f->n_devices; d++) {
        backend *be = group_device(f->m->be, d);
        be->ops->sample(be, &logits[d], spec, n);
    }
}

const sample_result *forward_collect(forward *f, err *e)
{
    const sample_result *first = NULL;
    for (int d = 0; d < f->n_devices; d++) {
        backend *be = group_device(f->m->be, d);
        const sample_result *drawn = be->ops->collect(be, e);
        if (!drawn)
            return NULL;
        first = d == 0 ? drawn : first;
    }
    return first;
}
