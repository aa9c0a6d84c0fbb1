/* cpu_linear.c - products with weights: the base model's linears, and the adapters' SGMV
 *
 * All three ops cut their work into items of some tens of kilobytes of weights, handed to the threads one by one. Each
 * item tells the kernel which weights the same thread will most likely read next (the item as many places on as there
 * are threads), so that they are prefetched: adapters are many, and not in the cache. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/err.h"
#include "base/mem.h"

enum {
    SGMV_RANKS = 16,  /* of A in one shrink item */
    SGMV_COLS = 1024, /* of B in one expand item */
    SGMV_ROWS = 48,   /* of a long segment in one item */
};

static const char *weight_row(const tensor *t, int row)
{
    return (const char *)t->data + (size_t)row * (size_t)t->cols * dtype_size(t->type);
}

static size_t proj_stride(const proj *p)
{
    return (size_t)(p->stride ? p->stride : p->w.cols);
}

static const char *proj_row(const proj *p, int row)
{
    return (const char *)p->w.data + (size_t)row * proj_stride(p) * dtype_size(p->w.type);
}

typedef struct {
    cpu_backend *cpu;
    const tensor *x;
    const float *packed; /* x rearranged, or NULL to use dot() */
    const linear *w;
    tensor *y;
} linear_call;

static int items_of(const proj *p)
{
    return (p->w.rows + GEMM_COLS - 1) / GEMM_COLS;
}

static void linear_item(void *arg, int item, int thread)
{
    linear_call *c = arg;
    cpu_backend *cpu = c->cpu;
    int part = 0, y_col = 0;
    for (; item >= items_of(&c->w->part[part]); part++) {
        item -= items_of(&c->w->part[part]);
        y_col += c->w->part[part].w.rows;
    }
    const proj *p = &c->w->part[part];
    int col = item * GEMM_COLS, left = p->w.rows - col, next = col + pool_size(cpu->pool) * GEMM_COLS;
    dot_job d = {
        .x = c->packed ? c->packed : c->x->data,
        .x_stride = (size_t)c->x->cols,
        .w = proj_row(p, col),
        .w_type = p->w.type,
        .w_stride = proj_stride(p),
        .bias_type = p->bias.type,
        .scale = 1,
        .y = (float *)c->y->data + y_col + col,
        .y_stride = (size_t)c->y->cols,
        .m = c->x->rows,
        .n = left < GEMM_COLS ? left : GEMM_COLS,
        .k = c->x->cols,
        .next = next + GEMM_COLS <= p->w.rows ? proj_row(p, next) : NULL,
    };
    if (p->scale.data) {
        d.w_scale = (const float *)p->scale.data + col;
        d.w_scaled = proj_scaled(p);
        d.w_scale_stride = (size_t)p->scale.cols;
    }
    if (p->bias.data)
        d.bias = (const char *)p->bias.data + (size_t)col * dtype_size(p->bias.type);
    if (c->packed)
        cpu->k->gemm(&d, cpu->per_thread[thread].data);
    else
        cpu->k->dot(&d);
}

static void pack_item(void *arg, int item, int thread)
{
    (void)thread;
    linear_call *c = arg;
    c->cpu->k->pack(c->cpu->shared.data, c->x->data, c->x->rows, c->x->cols, item);
}

void cpu_linear_op(backend *be, tensor *y, const tensor *x, const linear *w)
{
    cpu_backend *cpu = cpu_of(be);
    linear_call c = {.cpu = cpu, .x = x, .w = w, .y = y};
    int m = x->rows, k = x->cols, n_items = 0, n_cols = 0;
    for (int i = 0; i < w->n; i++) {
        CHECK(w->part[i].w.cols == k && (w->part[i].w.type == DTYPE_F8) == (w->part[i].scale.data != NULL));
        n_items += items_of(&w->part[i]);
        n_cols += w->part[i].w.rows;
    }
    CHECK(y->rows == m && y->cols == n_cols);
    if (m == 0)
        return;
    if (m > cpu->k->dot_rows) {
        c.packed = scratch_reserve(&cpu->shared, cpu->k->pack_floats(m, k));
        cpu_reserve_per_thread(cpu, cpu->k->gemm_scratch_floats(m, k));
        pool_run(cpu->pool, cpu->k->pack_tiles(m), pack_item, &c);
    }
    pool_run(cpu->pool, n_items, linear_item, &c);
}

typedef struct {
    cpu_backend *cpu;
    const segments *segs;
    int site, n_items;
    const tensor *in; /* x, or v */
    tensor *out;      /* v, or y */
    const linear *w;  /* of expand */
} sgmv_call;

static const lora_site *site_of(const sgmv_call *c, int seg)
{
    const lora *l = c->segs->lora[seg];
    return l && c->site < l->n_sites ? &l->site[c->site] : NULL;
}

/* Cuts a segment's rows by n ranks or columns of one part into items. */
static void add_items(sgmv_call *c, int seg, int part, int n, int n_step)
{
    cpu_backend *cpu = c->cpu;
    int from = c->segs->indptr[seg], to = c->segs->indptr[seg + 1];
    for (int n0 = 0; n0 < n; n0 += n_step)
        for (int row = from; row < to; row += SGMV_ROWS) {
            cpu->sgmv = xgrow(cpu->sgmv, &cpu->sgmv_cap, (size_t)c->n_items + 1, sizeof *cpu->sgmv);
            cpu->sgmv[c->n_items++] = (sgmv_item){
                .seg = seg,
                .part = part,
                .row = row,
                .n_rows = to - row < SGMV_ROWS ? to - row : SGMV_ROWS,
                .n0 = n0,
                .n = n - n0 < n_step ? n - n0 : n_step,
            };
        }
}

/* Where the ranks of this part begin in a row of v. */
static int rank_offset(const lora_site *s, int part)
{
    int offset = 0;
    for (int i = 0; i < part; i++)
        offset += s->part[i].rank;
    return offset;
}

/* The item this thread is likely to do next, or NULL. */
static const sgmv_item *item_after(const sgmv_call *c, int item)
{
    int next = item + pool_size(c->cpu->pool);
    return next < c->n_items ? &c->cpu->sgmv[next] : NULL;
}

static void shrink_item(void *arg, int item, int thread)
{
    (void)thread;
    sgmv_call *c = arg;
    const sgmv_item *it = &c->cpu->sgmv[item], *after = item_after(c, item);
    const lora_site *s = site_of(c, it->seg);
    const lora_part *p = &s->part[it->part];
    size_t x_cols = (size_t)c->in->cols, v_cols = (size_t)c->out->cols;
    dot_job d = {
        .x = (const float *)c->in->data + (size_t)it->row * x_cols,
        .x_stride = x_cols,
        .w = weight_row(&p->a, it->n0),
        .w_type = p->a.type,
        .w_stride = x_cols,
        .scale = p->scale,
        .y = (float *)c->out->data + (size_t)it->row * v_cols + rank_offset(s, it->part) + it->n0,
        .y_stride = v_cols,
        .m = it->n_rows,
        .n = it->n,
        .k = c->in->cols,
        .next = after ? weight_row(&site_of(c, after->seg)->part[after->part].a, after->n0) : NULL,
    };
    c->cpu->k->dot(&d);
}

void cpu_sgmv_shrink(backend *be, tensor *v, const tensor *x, const batch *b, int site)
{
    const segments *segs = &b->segs;
    sgmv_call c = {.cpu = cpu_of(be), .segs = segs, .site = site, .in = x, .out = v};
    for (int seg = 0; seg < segs->n; seg++) {
        const lora_site *s = site_of(&c, seg);
        for (int part = 0; s && part < MAX_PARTS; part++) {
            if (s->part[part].rank == 0)
                continue;
            CHECK(s->part[part].a.cols == x->cols && rank_offset(s, part) + s->part[part].rank <= v->cols);
            add_items(&c, seg, part, s->part[part].rank, SGMV_RANKS);
        }
    }
    pool_run(c.cpu->pool, c.n_items, shrink_item, &c);
}

static const void *b_at(const lora_part *p, int col)
{
    return (const char *)p->b.data + (size_t)col * dtype_size(p->b.type);
}

static void expand_item(void *arg, int item, int thread)
{
    (void)thread;
    sgmv_call *c = arg;
    const sgmv_item *it = &c->cpu->sgmv[item], *after = item_after(c, item);
    const lora_site *s = site_of(c, it->seg);
    const lora_part *p = &s->part[it->part];
    size_t v_cols = (size_t)c->in->cols, y_cols = (size_t)c->out->cols;
    int y_col = it->n0;
    for (int i = 0; i < it->part; i++)
        y_col += c->w->part[i].w.rows;
    sum_job j = {
        .v = (const float *)c->in->data + (size_t)it->row * v_cols + rank_offset(s, it->part),
        .v_stride = v_cols,
        .b = b_at(p, it->n0),
        .b_type = p->b.type,
        .b_stride = (size_t)p->b.cols,
        .y = (float *)c->out->data + (size_t)it->row * y_cols + y_col,
        .y_stride = y_cols,
        .m = it->n_rows,
        .n = it->n,
        .rank = p->rank,
        .next = after ? b_at(&site_of(c, after->seg)->part[after->part], after->n0) : NULL,
    };
    c->cpu->k->weighted_sum(&j);
}

void cpu_sgmv_expand(backend *be, tensor *y, const tensor *v, const batch *b, int site, const linear *w)
{
    const segments *segs = &b->segs;
    sgmv_call c = {.cpu = cpu_of(be), .segs = segs, .site = site, .in = v, .out = y, .w = w};
    for (int seg = 0; seg < segs->n; seg++) {
        const lora_site *s = site_of(&c, seg);
        for (int part = 0; s && part < w->n; part++) {
            if (s->part[part].rank == 0)
                continue;
            CHECK(s->part[part].b.cols == w->part[part].w.rows);
            add_items(&c, seg, part, w->part[part].w.rows, SGMV_COLS);
        }
    }
    pool_run(c.cpu->pool, c.n_items, expand_item, &c);
}
