/* cpu_attention.c - rotary embedding, the KvCache, and attention over its pages
 *
 * One item of attention is one key/value head of one row, or of a few neighbouring rows of one prefill: all query heads
 * that share the key/value head are computed together, so its keys and values are read once. Queries stand in scratch
 * as a matrix [rows * group, head_dim]; scores are its product with each page of keys, and the output is a weighted sum
 * of each page of values, by the same two kernels as for linears and adapters.
 *
 * A row's arithmetic is the same alone or among its neighbours: its softmax runs over its own
 * positions, and the values are added in order of position, one page's share at a time. Positions
 * that only some of the rows may see are added to those rows only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/err.h"
#include "base/fp8.h"
#include "base/mem.h"

enum { QUERIES = 24 }; /* rows * group of an item, unless one row alone has more */

/* The block of keys (kind 0) or values (1) of a head in one page: page_len x head_dim numbers, and scales where they
 * are F8. */
static char *kv_at(const kv_cache *kv, int page, int layer, int kind, int head)
{
    size_t block = (((size_t)page * (size_t)kv->n_layers + (size_t)layer) * 2 + (size_t)kind) * (size_t)kv->n_kv_heads +
                   (size_t)head;
    return (char *)kv->data + block * kv_block_bytes(kv);
}

static size_t kv_row_bytes(const kv_cache *kv)
{
    return (size_t)kv->head_dim * dtype_size(kv->type);
}

static float *kv_scales(const kv_cache *kv, const char *block)
{
    return (float *)(block + kv_numbers_bytes(kv));
}

/* Stores one position's vector in its block. */
static void kv_store(const kv_cache *kv, char *block, int slot, const float *x)
{
    char *to = block + (size_t)slot * kv_row_bytes(kv);
    if (kv->type == DTYPE_F32)
        memcpy(to, x, kv_row_bytes(kv));
    else
        e4m3_quantise((uint8_t *)to, &kv_scales(kv, block)[slot], x, kv->head_dim);
}

static const int *pages_of(const batch *b, int seq)
{
    return b->page + b->page_indptr[seq];
}

/* Fills the table of cosines and sines for these positions, unless it holds them already. */
static void prepare_rope(cpu_backend *cpu, const batch *b, const float *inv_freq, int half)
{
    size_t rows = (size_t)b->n_rows, n_freq = (size_t)half;
    if (cpu->rope_rows == b->n_rows && cpu->rope_half == half &&
        memcmp(cpu->rope_position, b->position, rows * sizeof(int)) == 0 &&
        memcmp(cpu->rope_freq, inv_freq, n_freq * sizeof(float)) == 0)
        return;
    cpu->rope_position = xrealloc(cpu->rope_position, rows * sizeof(int));
    cpu->rope_freq = xrealloc(cpu->rope_freq, n_freq * sizeof(float));
    memcpy(cpu->rope_position, b->position, rows * sizeof(int));
    memcpy(cpu->rope_freq, inv_freq, n_freq * sizeof(float));
    cpu->rope_rows = b->n_rows;
    cpu->rope_half = half;
    float *cosine = scratch_reserve(&cpu->rope, 2 * rows * n_freq), *sine = cosine + rows * n_freq;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n_freq; i++)
            sincosf((float)b->position[r] * inv_freq[i], &sine[r * n_freq + i], &cosine[r * n_freq + i]);
}

typedef struct {
    cpu_backend *cpu;
    heads h;
    const tensor *qkv;
    const batch *b;
    const kv_cache *kv;
    int layer, window, group, n_items;
    tensor *y;
} attention_call;

static void rope_item(void *arg, int row, int thread)
{
    (void)thread;
    attention_call *c = arg;
    heads h = c->h;
    int half = h.head_dim / 2, position = c->b->position[row];
    const float *cosine = c->cpu->rope.data + (size_t)row * (size_t)half;
    const float *sine = cosine + (size_t)c->b->n_rows * (size_t)half;
    float *x = (float *)c->qkv->data + (size_t)row * (size_t)c->qkv->cols;
    for (int i = 0; i < h.n_heads + h.n_kv_heads; i++)
        c->cpu->k->rotate(x + i * h.head_dim, cosine, sine, half);

    int page = pages_of(c->b, batch_sequence_of(c->b, row))[position / c->kv->page_len];
    CHECK(page >= 0 && page < c->kv->n_pages);
    const float *in = x + h.n_heads * h.head_dim;
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < h.n_kv_heads; i++, in += h.head_dim)
            kv_store(c->kv, kv_at(c->kv, page, c->layer, kind, i), position % c->kv->page_len, in);
}

void cpu_rope_append(backend *be, tensor *qkv, heads h, const float *inv_freq, const batch *b, kv_cache *kv, int layer)
{
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim && qkv->rows == b->n_rows);
    CHECK(kv->n_kv_heads == h.n_kv_heads && kv->head_dim == h.head_dim);
    CHECK(kv->type == DTYPE_F32 || kv->type == DTYPE_F8);
    if (b->n_rows == 0)
        return;
    attention_call c = {.cpu = cpu_of(be), .h = h, .qkv = qkv, .b = b, .kv = kv, .layer = layer};
    prepare_rope(c.cpu, b, inv_freq, h.head_dim / 2);
    pool_run(c.cpu->pool, b->n_rows, rope_item, &c);
}

/* Positions [from, to) a row attends to. */
typedef struct { int from, to; } span;

static span span_of_row(const attention_call *c, int row)
{
    int to = c->b->position[row] + 1;
    return (span){c->window > 0 && to > c->window ? to - c->window : 0, to};
}

/* One item in progress. Positions count from s.from, the first that any of its rows sees. */
typedef struct {
    const attention_call *c;
    const int *page; /* of the sequence */
    int head, n_queries;
    span s;
    float *q, *out; /* [n_queries, head_dim] */
    float *score;   /* [n_queries, stride] */
    size_t stride;
    const void *after; /* the keys this thread is likely to read next */
    float *values;     /* [page_len, head_dim] room for a page's values that are F8 */
} attention_work;

/* The part of span s that lies in the page of s.from. */
static span in_one_page(span s, int page_len)
{
    int end = (s.from / page_len + 1) * page_len;
    return (span){s.from, end < s.to ? end : s.to};
}

static char *block_of(const attention_work *a, int position, int kind)
{
    const kv_cache *kv = a->c->kv;
    return kv_at(kv, a->page[position / kv->page_len], a->c->layer, kind, a->head);
}

static const void *kv_from(const attention_work *a, int position, int kind)
{
    const kv_cache *kv = a->c->kv;
    return block_of(a, position, kind) + (size_t)(position % kv->page_len) * kv_row_bytes(kv);
}

static void score_all(const attention_work *a)
{
    const kv_cache *kv = a->c->kv;
    int d = a->c->h.head_dim;
    span left = a->s;
    while (left.from < left.to) {
        span now = in_one_page(left, kv->page_len);
        left.from = now.to;
        dot_job j = {
            .x = a->q,
            .x_stride = (size_t)d,
            .w = kv_from(a, now.from, 0),
            .w_type = kv->type,
            .w_stride = (size_t)d,
            .scale = 1.0f / sqrtf((float)d),
            .y = a->score + (now.from - a->s.from),
            .y_stride = a->stride,
            .m = a->n_queries,
            .n = now.to - now.from,
            .k = d,
            .next = left.from < left.to ? kv_from(a, left.from, 0) : kv_from(a, a->s.from, 1),
        };
        if (kv->type == DTYPE_F8) {
            j.w_scale = kv_scales(kv, block_of(a, now.from, 0)) + now.from % kv->page_len;
            j.w_scaled = d;
            j.w_scale_stride = (size_t)kv->page_len;
        }
        a->c->cpu->k->dot(&j);
    }
}

/* Values of positions that lie in one page, as F32. */
static const float *values_at(const attention_work *a, span s)
{
    const kv_cache *kv = a->c->kv;
    const void *stored = kv_from(a, s.from, 1);
    if (kv->type == DTYPE_F32)
        return stored;
    const float *scale = kv_scales(kv, block_of(a, s.from, 1)) + s.from % kv->page_len;
    const uint8_t *bits = stored;
    float *out = a->values;
    for (int i = 0; i < s.to - s.from; i++)
        for (int j = 0; j < kv->head_dim; j++)
            *out++ = e4m3_to_float(*bits++) * scale[i];
    return a->values;
}

/* out[queries q0.. of n] += their weights times the values at `left`. */
static void add_values(const attention_work *a, int q0, int n, span left)
{
    size_t d = (size_t)a->c->h.head_dim;
    while (left.from < left.to) {
        span now = in_one_page(left, a->c->kv->page_len);
        left.from = now.to;
        sum_job j = {
            .v = a->score + (size_t)q0 * a->stride + (now.from - a->s.from),
            .v_stride = a->stride,
            .b = values_at(a, now),
            .b_type = DTYPE_F32,
            .b_stride = d,
            .y = a->out + (size_t)q0 * d,
            .y_stride = d,
            .m = n,
            .n = (int)d,
            .rank = now.to - now.from,
            .next = left.from < left.to ? kv_from(a, left.from, 1) : a->after,
        };
        a->c->cpu->k->weighted_sum(&j);
    }
}

/* Turns one row's scores into weights; 1 / their sum goes to by[group]. */
static void softmax_row(const attention_work *a, int r, span s, float *by)
{
    const cpu_kernels *k = a->c->cpu->k;
    int group = a->c->group, n = s.to - s.from;
    for (int g = 0; g < group; g++) {
        float *p = a->score + (size_t)(r * group + g) * a->stride + (s.from - a->s.from);
        by[g] = 1.0f / k->exp_sum(p, p, k->max(p, n, 0), 1.0f, n);
    }
}

/* Adds values: positions that all rows see for all rows at once, those before and after row by row. */
static void add_values_of_rows(const attention_work *a, int row, int n_rows)
{
    int group = a->c->group;
    span all = {span_of_row(a->c, row + n_rows - 1).from, span_of_row(a->c, row).to};
    if (all.from >= all.to)
        all.from = all.to = a->s.to;
    for (int r = 0; r < n_rows; r++) {
        span s = span_of_row(a->c, row + r);
        add_values(a, r * group, group, (span){s.from, s.to < all.from ? s.to : all.from});
    }
    add_values(a, 0, a->n_queries, all);
    for (int r = 0; r < n_rows; r++) {
        span s = span_of_row(a->c, row + r);
        add_values(a, r * group, group, (span){s.from > all.to ? s.from : all.to, s.to});
    }
}

/* The first keys of an item; NULL past the last item. */
static const void *first_keys(const attention_call *c, int item)
{
    if (item >= c->n_items * c->h.n_kv_heads)
        return NULL;
    const attention_item *it = &c->cpu->attention[item / c->h.n_kv_heads];
    int from = span_of_row(c, it->row).from;
    int page = pages_of(c->b, it->seq)[from / c->kv->page_len];
    return kv_at(c->kv, page, c->layer, 0, item % c->h.n_kv_heads) +
           (size_t)(from % c->kv->page_len) * kv_row_bytes(c->kv);
}

static void attention_item_run(void *arg, int item, int thread)
{
    const attention_call *c = arg;
    const attention_item *it = &c->cpu->attention[item / c->h.n_kv_heads];
    int head = item % c->h.n_kv_heads, d = c->h.head_dim, n_queries = it->n_rows * c->group;
    size_t row_floats = (size_t)c->group * (size_t)d, q_floats = (size_t)n_queries * (size_t)d;
    span s = {span_of_row(c, it->row).from, span_of_row(c, it->row + it->n_rows - 1).to};
    float *q = c->cpu->per_thread[thread].data;
    attention_work a = {
        .c = c,
        .page = pages_of(c->b, it->seq),
        .head = head,
        .n_queries = n_queries,
        .s = s,
        .q = q,
        .out = q + q_floats,
        .score = q + 2 * q_floats + n_queries,
        .stride = (size_t)(s.to - s.from),
        .values = q + 2 * q_floats + (size_t)n_queries * (1 + (size_t)(s.to - s.from)),
        .after = first_keys(c, item + pool_size(c->cpu->pool)),
    };
    float *by = q + 2 * q_floats;
    for (int r = 0; r < it->n_rows; r++)
        memcpy(q + (size_t)r * row_floats,
               (const float *)c->qkv->data + (size_t)(it->row + r) * (size_t)c->qkv->cols + (size_t)head * row_floats,
               row_floats * sizeof(float));
    memset(a.out, 0, q_floats * sizeof(float));
    score_all(&a);
    for (int r = 0; r < it->n_rows; r++)
        softmax_row(&a, r, span_of_row(c, it->row + r), by + r * c->group);
    add_values_of_rows(&a, it->row, it->n_rows);
    for (int i = 0; i < n_queries; i++)
        c->cpu->k->scale(a.out + (size_t)i * (size_t)d, by[i], d);
    for (int r = 0; r < it->n_rows; r++)
        memcpy((float *)c->y->data + (size_t)(it->row + r) * (size_t)c->y->cols + (size_t)head * row_floats,
               a.out + (size_t)r * row_floats, row_floats * sizeof(float));
}

/* Cuts the rows of one sequence into items. */
static void add_rows(attention_call *c, int seq, int from, int to)
{
    cpu_backend *cpu = c->cpu;
    int step = QUERIES / c->group > 1 ? QUERIES / c->group : 1;
    for (int row = from; row < to; row += step) {
        cpu->attention = xgrow(cpu->attention, &cpu->attention_cap, (size_t)c->n_items + 1, sizeof *cpu->attention);
        cpu->attention[c->n_items++] = (attention_item){row, to - row < step ? to - row : step, seq};
    }
}

/* Positions that the longest sequence's pages hold: what a row may attend to at most. */
static size_t longest_sequence(const batch *b, int page_len)
{
    int pages = 0;
    for (int i = 0; i < b->n_prefills + b->n_decodes; i++) {
        int n = b->page_indptr[i + 1] - b->page_indptr[i];
        pages = n > pages ? n : pages;
    }
    return (size_t)pages * (size_t)page_len;
}

void cpu_attention_op(backend *be, tensor *y, const tensor *qkv, heads h, const batch *b, const kv_cache *kv, int layer,
                      int window)
{
    CHECK(h.n_heads % h.n_kv_heads == 0 && y->cols == h.n_heads * h.head_dim && y->rows == b->n_rows);
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim && kv->head_dim == h.head_dim);
    attention_call c = {
        .cpu = cpu_of(be),
        .h = h,
        .qkv = qkv,
        .b = b,
        .kv = kv,
        .layer = layer,
        .window = window,
        .group = h.n_heads / h.n_kv_heads,
        .y = y,
    };
    for (int i = 0; i < b->n_prefills; i++)
        add_rows(&c, i, b->prefill_indptr[i], b->prefill_indptr[i + 1]);
    for (int i = 0; i < b->n_decodes; i++) {
        int row = b->prefill_indptr[b->n_prefills] + i;
        add_rows(&c, b->n_prefills + i, row, row + 1);
    }
    size_t queries = (size_t)(c.group > QUERIES ? c.group : QUERIES);
    size_t positions = longest_sequence(b, kv->page_len);
    cpu_reserve_per_thread(c.cpu, queries * (2 * (size_t)h.head_dim + 1 + positions) +
                                      (size_t)kv->page_len * (size_t)h.head_dim);
    pool_run(c.cpu->pool, c.n_items * h.n_kv_heads, attention_item_run, &c);
}
