/* forward.c - the Llama family's forward pass, one op per line
 *
 *   x ── norm ── q|k|v ── (head norm) ── rope, append ── attention ── o ──┐
 *   ├──────────────────────────────────────────────────────────────────── + ── norm ── gate|up ── silu·mul ── down ──┐
 *   │                                                                     ├──────────────────────────────────────── + ── next layer
 *
 * Every projection is linear_shrink, the dense product of all rows beside the first half of each row's
 * own adapter, and an expand_ op, which adds the second half and does what comes next. Families differ
 * only in which optional weights are present. */
#include "model/forward.h"

#include <stdlib.h>

#include "base/mem.h"

struct forward {
    const model *m;             /* borrowed */
    int max_rows, max_out;
    tensor x;                   /* [rows, hidden] the residual stream, F32 */
    tensor h;                   /* [rows, hidden] normed input of a block */
    tensor qkv;                 /* [rows, (heads + 2 kv heads) * head_dim] */
    tensor attn;                /* [rows, heads * head_dim] */
    tensor gate_up, act;        /* [rows, 2 ffn], [rows, ffn] */
    tensor out;                 /* [rows, hidden] a block's output, added to x by the next norm */
    tensor v;                   /* [rows, largest sum of ranks at a site] between shrink and expand, F32 */
    tensor last, logits;        /* [out, hidden], [out, vocab] F32 */
};

static heads heads_of(const model_config *c)
{
    return (heads){c->n_heads, c->n_kv_heads, c->head_dim};
}

static int scratch(const model *m, tensor *t, dtype type, int rows, int cols, err *e)
{
    *t = (tensor){.type = type, .rows = rows, .cols = cols};
    t->data = m->be->ops->alloc(m->be, tensor_bytes(t), e);
    return t->data ? 0 : err_wrap(e, "activations for %d rows", rows);
}

forward *forward_new(const model *m, const forward_limits *l, err *e)
{
    const model_config *c = &m->config;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, rows = l->rows, out = l->sequences;
    dtype act = m->be->act;
    extent x = {.max_rows = rows, .max_out = out, .max_sequences = l->sequences, .max_pages = l->pages, .page_len = l->page_len,
                .max_rank_sum = l->rank_sum, .vocab = c->vocab, .n_sites = c->n_layers * N_SITES, .h = heads_of(c)};
    forward *f = XNEW(forward);
    *f = (forward){.m = m, .max_rows = rows, .max_out = out};
    if (scratch(m, &f->x, DTYPE_F32, rows, c->hidden, e) || scratch(m, &f->h, act, rows, c->hidden, e) ||
        scratch(m, &f->qkv, act, rows, q + 2 * kv, e) || scratch(m, &f->attn, act, rows, q, e) ||
        scratch(m, &f->gate_up, act, rows, 2 * c->ffn, e) || scratch(m, &f->act, act, rows, c->ffn, e) ||
        scratch(m, &f->out, act, rows, c->hidden, e) || scratch(m, &f->v, DTYPE_F32, rows, l->rank_sum, e) ||
        scratch(m, &f->last, act, out, c->hidden, e) || scratch(m, &f->logits, DTYPE_F32, out, c->vocab, e) ||
        m->be->ops->reserve(m->be, &x, e)) {
        forward_free(f);
        return NULL;
    }
    return f;
}

void forward_free(forward *f)
{
    if (!f)
        return;
    f->m->be->ops->forget(f->m->be, f);
    tensor *all[] = {&f->x, &f->h, &f->qkv, &f->attn, &f->gate_up, &f->act, &f->out, &f->v, &f->last, &f->logits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->data)
            f->m->be->ops->release(f->m->be, all[i]->data);
    free(f);
}

static void set_rows(forward *f, int rows, int out)
{
    tensor *by_row[] = {&f->x, &f->h, &f->qkv, &f->attn, &f->gate_up, &f->act, &f->out, &f->v};
    for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++)
        by_row[i]->rows = rows;
    f->last.rows = f->logits.rows = out;
}

static adapted site_of(forward *f, int layer, int site)
{
    return (adapted){.w = &f->m->layer[layer].site[site], .site = layer * N_SITES + site, .v = &f->v};
}

static void run_layer(forward *f, const batch *b, kv_cache *kv, int i)
{
    const model *m = f->m;
    const model_config *c = &m->config;
    const model_layer *layer = &m->layer[i];
    const tensor *next_norm = i + 1 < c->n_layers ? &m->layer[i + 1].attn_norm : &m->final_norm;
    adapted qkv = site_of(f, i, SITE_QKV), o = site_of(f, i, SITE_O);
    adapted gate_up = site_of(f, i, SITE_GATE_UP), down = site_of(f, i, SITE_DOWN);
    head_norms norms = {layer->q_norm, layer->k_norm, c->rms_eps};
    heads hs = heads_of(c);
    backend *be = m->be;
    const backend_ops *op = be->ops;

    op->linear_shrink(be, &f->qkv, &f->h, &qkv, b);
    op->expand_rope_append(be, &f->qkv, hs, &norms, m->inv_freq, &qkv, b, kv, i);
    op->attention(be, &f->attn, &f->qkv, hs, b, kv, i, c->layer_slides[i] ? c->window : 0);
    op->linear_shrink(be, &f->out, &f->attn, &o, b);
    op->expand_add_rms_norm(be, &f->out, &f->h, &f->x, &layer->mlp_norm, c->rms_eps, &o, b);
    op->linear_shrink(be, &f->gate_up, &f->h, &gate_up, b);
    op->expand_silu_mul(be, &f->gate_up, &f->act, &gate_up, b);
    op->linear_shrink(be, &f->out, &f->act, &down, b);
    op->expand_add_rms_norm(be, &f->out, &f->h, &f->x, next_norm, c->rms_eps, &down, b);
}

static void run_model(forward *f, const batch *b, kv_cache *kv)
{
    const model *m = f->m;
    backend *be = m->be;
    be->ops->embed(be, &f->x, &m->embed, b);
    be->ops->rms_norm(be, &f->h, &f->x, &m->layer[0].attn_norm, m->config.rms_eps);
    for (int i = 0; i < m->config.n_layers; i++)
        run_layer(f, b, kv, i);
    be->ops->gather(be, &f->last, &f->h, b);
    be->ops->linear(be, &f->logits, &f->last, &m->lm_head);
}

const tensor *forward_run(forward *f, const batch *b, kv_cache *kv)
{
    backend *be = f->m->be;
    invocation v = be->ops->begin(be, b, f);
    CHECK(v.n_rows <= f->max_rows && v.n_out <= f->max_out);
    set_rows(f, v.n_rows, v.n_out);
    if (!v.replayed)
        run_model(f, b, kv);
    be->ops->end(be);
    return &f->logits;
}
