/* forward.c - the Llama family's forward pass, one op per line
 *
 *   x ── norm ── q|k|v ── (head norm) ── rope, append ── attention ── o ──┐
 *   ├──────────────────────────────────────────────────────────────────── + ── norm ── gate|up ── silu·mul ── down ──┐
 *   │                                                                     ├──────────────────────────────────────── + ── next layer
 *
 * Every projection is `project`: the dense product of all rows, then the two SGMV ops that add
 * each row's own adapter. Families differ only in which optional weights are present. */
#include "model/forward.h"

#include <stdlib.h>

#include "base/mem.h"

struct forward {
    const model *m;             /* borrowed */
    int max_rows, max_out;
    tensor x;                   /* [rows, hidden] the residual stream */
    tensor h;                   /* [rows, hidden] normed input of a block */
    tensor qkv;                 /* [rows, (heads + 2 kv heads) * head_dim] */
    tensor attn;                /* [rows, heads * head_dim] */
    tensor gate_up, act;        /* [rows, 2 ffn], [rows, ffn] */
    tensor out;                 /* [rows, hidden] a block's output, added to x by the next norm */
    tensor v;                   /* [rows, largest sum of ranks at a site] between shrink and expand */
    tensor last, logits;        /* [out, hidden], [out, vocab] */
};

static int scratch(const model *m, tensor *t, int rows, int cols, err *e)
{
    *t = (tensor){.type = m->be->act, .rows = rows, .cols = cols};
    t->data = m->be->ops->alloc(m->be, tensor_bytes(t), e);
    return t->data ? 0 : err_wrap(e, "activations for %d rows", rows);
}

forward *forward_new(const model *m, int max_rows, int max_out, int max_rank_sum, err *e)
{
    const model_config *c = &m->config;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    forward *f = XNEW(forward);
    *f = (forward){.m = m, .max_rows = max_rows, .max_out = max_out};
    if (scratch(m, &f->x, max_rows, c->hidden, e) || scratch(m, &f->h, max_rows, c->hidden, e) ||
        scratch(m, &f->qkv, max_rows, q + 2 * kv, e) || scratch(m, &f->attn, max_rows, q, e) ||
        scratch(m, &f->gate_up, max_rows, 2 * c->ffn, e) || scratch(m, &f->act, max_rows, c->ffn, e) ||
        scratch(m, &f->out, max_rows, c->hidden, e) || scratch(m, &f->v, max_rows, max_rank_sum, e) ||
        scratch(m, &f->last, max_out, c->hidden, e) || scratch(m, &f->logits, max_out, c->vocab, e)) {
        forward_free(f);
        return NULL;
    }
    return f;
}

void forward_free(forward *f)
{
    if (!f)
        return;
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

/* y = x W^T + bias, plus each row's adapter. */
static void project(forward *f, tensor *y, const tensor *x, const batch *b, int layer, int site)
{
    backend *be = f->m->be;
    const linear *w = &f->m->layer[layer].site[site];
    int where = layer * N_SITES + site;
    be->ops->linear(be, y, x, w);
    be->ops->sgmv_shrink(be, &f->v, x, &b->segs, where);
    be->ops->sgmv_expand(be, y, &f->v, &b->segs, where, w);
}

static void run_layer(forward *f, const batch *b, kv_cache *kv, int i)
{
    const model *m = f->m;
    const model_config *c = &m->config;
    const model_layer *layer = &m->layer[i];
    const tensor *next_norm = i + 1 < c->n_layers ? &m->layer[i + 1].attn_norm : &m->final_norm;
    heads hs = {c->n_heads, c->n_kv_heads, c->head_dim};
    backend *be = m->be;
    const backend_ops *op = be->ops;

    project(f, &f->qkv, &f->h, b, i, SITE_QKV);
    if (c->qk_norm)
        op->head_norm(be, &f->qkv, hs, &layer->q_norm, &layer->k_norm, c->rms_eps);
    op->rope_append(be, &f->qkv, hs, m->inv_freq, b, kv, i);
    op->attention(be, &f->attn, &f->qkv, hs, b, kv, i, c->layer_slides[i] ? c->window : 0);
    project(f, &f->out, &f->attn, b, i, SITE_O);
    op->add_rms_norm(be, &f->h, &f->x, &f->out, &layer->mlp_norm, c->rms_eps);
    project(f, &f->gate_up, &f->h, b, i, SITE_GATE_UP);
    op->silu_mul(be, &f->act, &f->gate_up);
    project(f, &f->out, &f->act, b, i, SITE_DOWN);
    op->add_rms_norm(be, &f->h, &f->x, &f->out, next_norm, c->rms_eps);
}

const tensor *forward_run(forward *f, const batch *b, kv_cache *kv)
{
    const model *m = f->m;
    backend *be = m->be;
    CHECK(b->n_rows <= f->max_rows && b->n_out <= f->max_out);
    set_rows(f, b->n_rows, b->n_out);

    be->ops->embed(be, &f->x, &m->embed, b->token);
    be->ops->rms_norm(be, &f->h, &f->x, &m->layer[0].attn_norm, m->config.rms_eps);
    for (int i = 0; i < m->config.n_layers; i++)
        run_layer(f, b, kv, i);
    be->ops->gather(be, &f->last, &f->h, b->out_row);
    be->ops->linear(be, &f->logits, &f->last, &m->lm_head);
    return &f->logits;
}
