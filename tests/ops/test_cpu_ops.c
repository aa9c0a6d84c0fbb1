/* test_cpu_ops.c - the CPU backend's ops
 *
 * Each op is compared with a plain double-precision computation, on every instruction set this
 * machine has; then rows are shown to give the same bits alone and in company, with any number of
 * threads. Tensors are allocated to the byte, so that ASan sees a read past the end. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/fp8.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"

static const char *const isas[] = {"plain", "avx2", "avx512"};
enum { N_ISAS = 3 };

static uint64_t counter;

static double uniform(void) /* in [-1, 1) */
{
    return 2 * rng_uniform(7, counter++) - 1;
}

static int below(int n)
{
    return (int)(rng_u64(8, counter++) % (uint64_t)n);
}

/* A backend on one instruction set, or NULL where the machine falls back to another one. */
static backend *open_backend(const char *isa, int n_threads)
{
    setenv("PUNICA_CPU_ISA", isa, 1);
    backend *be = backend_cpu_new(n_threads);
    unsetenv("PUNICA_CPU_ISA");
    if (strstr(be->name, isa))
        return be;
    be->ops->free(be);
    return NULL;
}

static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31)
        v = mantissa ? (double)NAN : (double)INFINITY;
    return h & 0x8000 ? -v : v;
}

static double bfloat_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static double byte_value(uint8_t b)
{
    int exponent = b >> 3 & 15, mantissa = b & 7;
    double v = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return b & 0x80 ? -v : v;
}

static tensor zeros(int rows, int cols)
{
    return (tensor){xcalloc((size_t)rows * (size_t)cols, sizeof(float)), DTYPE_F32, rows, cols};
}

/* Random values of magnitude up to about 1 (F8: of all magnitudes), some tiny, some zero. */
static tensor randoms(dtype type, int rows, int cols)
{
    tensor t = {.type = type, .rows = rows, .cols = cols};
    size_t n = (size_t)rows * (size_t)cols;
    t.data = xmalloc(n * dtype_size(type));
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = (uint16_t)(rng_u64(9, counter++) & 0x83ff);
        if (type == DTYPE_F32)
            ((float *)t.data)[i] = (float)uniform();
        else if (type == DTYPE_F8)
            ((uint8_t *)t.data)[i] = (uint8_t)(below(2) << 7 | below(127));
        else if (type == DTYPE_F16)
            ((uint16_t *)t.data)[i] = (uint16_t)(bits | below(15) << 10);
        else
            ((uint16_t *)t.data)[i] = (uint16_t)((bits & 0x807f) | (110 + below(17)) << 7);
    }
    return t;
}

static double at(const tensor *t, int row, int col)
{
    size_t i = (size_t)row * (size_t)t->cols + (size_t)col;
    if (t->type == DTYPE_F32)
        return ((const float *)t->data)[i];
    if (t->type == DTYPE_F8)
        return byte_value(((const uint8_t *)t->data)[i]);
    uint16_t h = ((const uint16_t *)t->data)[i];
    return t->type == DTYPE_F16 ? half_value(h) : bfloat_value(h);
}

static float *row_of(const tensor *t, int row)
{
    return (float *)t->data + (size_t)row * (size_t)t->cols;
}

static tensor rows_of(const tensor *t, int from, int n)
{
    return (tensor){row_of(t, from), DTYPE_F32, n, t->cols};
}

static tensor copy_of(const tensor *t)
{
    tensor c = *t;
    c.data = xmalloc(tensor_bytes(t) ? tensor_bytes(t) : 1);
    memcpy(c.data, t->data, tensor_bytes(t));
    return c;
}

/* got is within float32 rounding of want; size: the sum of the magnitudes that went into it. */
static void check_near(const char *what, int row, int col, double got, double want, double size)
{
    if (!(fabs(got - want) <= 2e-6 * size + 1e-30))
        fail_msg("%s [%d, %d]: got %.9g, expected %.9g (terms sum to %g)", what, row, col, got, want, size);
}

static void check_same_bits(const char *what, const tensor *a, const tensor *b)
{
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->cols, b->cols);
    if (memcmp(a->data, b->data, tensor_bytes(a)) == 0)
        return;
    for (int r = 0; r < a->rows; r++)
        for (int c = 0; c < a->cols; c++)
            if (memcmp(row_of(a, r) + c, row_of(b, r) + c, sizeof(float)) != 0)
                fail_msg("%s [%d, %d]: %.9g is not %.9g", what, r, c, at(a, r, c), at(b, r, c));
}

/* The kinds of weights: the stored types, F8 under a scale for each row, F8 under scales for blocks of columns. */
enum { N_KINDS = 5, KIND_F8_BLOCKS = DTYPE_F8 + 1 };

static linear random_linear(int n_parts, const int *out, int in, int kind, bool bias)
{
    linear w = {.n = n_parts};
    for (int i = 0; i < n_parts; i++) {
        w.part[i].w = randoms(kind < DTYPE_F8 ? (dtype)kind : DTYPE_F8, out[i], in);
        if (kind >= DTYPE_F8)
            w.part[i].scale =
                randoms(DTYPE_F32, kind == KIND_F8_BLOCKS ? (in + SCALE_BLOCK - 1) / SCALE_BLOCK : 1, out[i]);
        if (bias && i != 1)
            w.part[i].bias = randoms((dtype)((kind + 1) % 3), 1, out[i]);
    }
    return w;
}

/* What a weight stands for. */
static double weight_at(const proj *p, int row, int col)
{
    double scale = p->scale.data ? at(&p->scale, col / (p->scale.rows > 1 ? 128 : p->w.cols), row) : 1;
    return scale * at(&p->w, row, col);
}

static int linear_cols(const linear *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->part[i].w.rows;
    return n;
}

static void free_linear(linear *w)
{
    for (int i = 0; i < w->n; i++) {
        free(w->part[i].w.data);
        free(w->part[i].scale.data);
        free(w->part[i].bias.data);
    }
}

static void check_linear(const tensor *y, const tensor *x, const linear *w)
{
    int col = 0;
    for (int p = 0; p < w->n; p++)
        for (int n = 0; n < w->part[p].w.rows; n++, col++)
            for (int r = 0; r < x->rows; r++) {
                const tensor *bias = &w->part[p].bias;
                double want = bias->data ? at(bias, 0, n) : 0, size = fabs(want);
                for (int k = 0; k < x->cols; k++) {
                    double term = at(x, r, k) * weight_at(&w->part[p], n, k);
                    want += term;
                    size += fabs(term);
                }
                check_near("linear", r, col, at(y, r, col), want, size);
            }
}

static void test_linear(void **state)
{
    (void)state;
    static const struct {
        int m, k, n_parts, out[3];
    } shapes[] = {
        {1, 1, 1, {1}},           {1, 16, 1, {16}},    {1, 37, 2, {5, 33}},      {2, 64, 3, {40, 8, 8}},
        {3, 100, 1, {1}},         {4, 15, 1, {7}},     {5, 48, 2, {31, 1}},      {6, 33, 1, {65}},
        {7, 130, 3, {17, 3, 64}}, {8, 31, 1, {32}},    {9, 64, 1, {33}},         {11, 20, 2, {64, 2}},
        {13, 513, 1, {35}},       {17, 1040, 1, {18}}, {23, 96, 3, {9, 10, 11}}, {32, 530, 1, {40}},
        {40, 17, 2, {50, 14}},    {103, 700, 1, {33}},
    };
    for (int i = 0; i < N_ISAS; i++) {
        backend *be = open_backend(isas[i], 2);
        for (size_t s = 0; be && s < sizeof shapes / sizeof shapes[0]; s++)
            for (int kind = 0; kind < N_KINDS; kind++) {
                linear w = random_linear(shapes[s].n_parts, shapes[s].out, shapes[s].k, kind, s % 2);
                tensor x = randoms(DTYPE_F32, shapes[s].m, shapes[s].k), y = zeros(shapes[s].m, linear_cols(&w));
                be->ops->linear(be, &y, &x, &w);
                check_linear(&y, &x, &w);
                free(x.data);
                free(y.data);
                free_linear(&w);
            }
        if (be)
            be->ops->free(be);
    }
}

/* Every cut of a batch, and every number of threads, gives the bits of the whole batch. */
static void check_linear_cuts(const char *isa, int m, int k, int kind)
{
    static const int out[3] = {37, 64, 5};
    static const int cuts[] = {1, 2, 5, 7, 12, 19, 64, 97};
    linear w = random_linear(3, out, k, kind, true);
    tensor x = randoms(DTYPE_F32, m, k), whole = zeros(m, linear_cols(&w)), y = zeros(m, linear_cols(&w));
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        backend *be = open_backend(isa, n_threads);
        tensor *first = n_threads == 1 ? &whole : &y;
        be->ops->linear(be, first, &x, &w);
        check_same_bits("linear, threads", first, &whole);
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            memset(y.data, 0xff, tensor_bytes(&y));
            for (int from = 0; from < m; from += cuts[c]) {
                int n = m - from < cuts[c] ? m - from : cuts[c];
                tensor xs = rows_of(&x, from, n), ys = rows_of(&y, from, n);
                be->ops->linear(be, &ys, &xs, &w);
            }
            check_same_bits("linear, cuts", &y, &whole);
        }
        be->ops->free(be);
    }
    free(x.data);
    free(y.data);
    free(whole.data);
    free_linear(&w);
}

static void test_linear_is_batch_invariant(void **state)
{
    (void)state;
    for (int i = 0; i < N_ISAS; i++) {
        backend *be = open_backend(isas[i], 1);
        if (!be)
            continue;
        be->ops->free(be);
        for (int kind = 0; kind < N_KINDS; kind++) {
            check_linear_cuts(isas[i], 40, 90, kind);
            check_linear_cuts(isas[i], 23, 1100, kind);
        }
        check_linear_cuts(isas[i], 210, 530, DTYPE_F16);
    }
}

enum { N_ADAPTERS = 9, SITES = 2 };
static const int adapter_rank[N_ADAPTERS][3] = {
    {16, 16, 16}, {1, 0, 4}, {8, 12, 0}, {64, 0, 0}, {0, 128, 3}, {0, 0, 0}, {4, 4, 4}, {33, 1, 17}, {16, 8, 64},
};

/* Adapter i; only site 1 is adapted. */
static lora random_adapter(int i, int in, const int *out, dtype type)
{
    lora l = {.n_sites = SITES, .site = XNEW_ARRAY(lora_site, SITES)};
    for (int p = 0; p < 3; p++) {
        lora_part *part = &l.site[1].part[p];
        part->rank = adapter_rank[i][p];
        if (part->rank == 0)
            continue;
        part->scale = (float)(1 + uniform());
        part->a = randoms(type, part->rank, in);
        part->b = randoms(type, part->rank, out[p]);
    }
    return l;
}

static void free_adapter(lora *l)
{
    for (int p = 0; p < 3; p++) {
        free(l->site[1].part[p].a.data);
        free(l->site[1].part[p].b.data);
    }
    free(l->site);
}

static void check_sgmv_row(const tensor *x, const tensor *before, const tensor *after, int row, const lora *l,
                           const linear *w)
{
    int col = 0;
    for (int p = 0; p < w->n; p++) {
        const lora_part *part = l ? &l->site[1].part[p] : NULL;
        int rank = part ? part->rank : 0;
        double v[128] = {0}, v_size[128] = {0};
        for (int j = 0; j < rank; j++)
            for (int k = 0; k < x->cols; k++) {
                double term = part->scale * at(x, row, k) * at(&part->a, j, k);
                v[j] += term;
                v_size[j] += fabs(term);
            }
        for (int n = 0; n < w->part[p].w.rows; n++, col++) {
            double want = at(before, row, col), size = fabs(want);
            for (int j = 0; j < rank; j++) {
                want += v[j] * at(&part->b, j, n);
                size += v_size[j] * fabs(at(&part->b, j, n));
            }
            check_near("sgmv", row, col, at(after, row, col), want, size);
        }
    }
}

static void run_sgmv(backend *be, tensor *y, tensor *v, const tensor *x, const segments *segs, const linear *w)
{
    batch b = {.n_rows = x->rows, .segs = *segs};
    be->ops->sgmv_shrink(be, v, x, &b, 1);
    be->ops->sgmv_expand(be, y, v, &b, 1, w);
}

static void check_sgmv(const char *isa, int in, const int *out, dtype type)
{
    static const int lens[] = {1, 1, 3, 0, 70, 2, 1, 5, 1, 4, 1, 1};
    static const int who[] = {0, -1, 1, 2, 3, 5, 4, 6, 7, -1, 8, 2};
    enum { N_SEGS = sizeof lens / sizeof lens[0] };
    lora adapter[N_ADAPTERS];
    const lora *of_seg[N_SEGS];
    int indptr[N_SEGS + 1] = {0};
    for (int i = 0; i < N_ADAPTERS; i++)
        adapter[i] = random_adapter(i, in, out, type);
    for (int i = 0; i < N_SEGS; i++) {
        of_seg[i] = who[i] < 0 ? NULL : &adapter[who[i]];
        indptr[i + 1] = indptr[i] + lens[i];
    }
    segments segs = {N_SEGS, indptr, of_seg};
    int m = indptr[N_SEGS];
    linear w = {.n = 3};
    for (int i = 0; i < 3; i++)
        w.part[i].w = (tensor){.rows = out[i], .cols = in};
    tensor x = randoms(DTYPE_F32, m, in), before = randoms(DTYPE_F32, m, linear_cols(&w)), first = {0};
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        backend *be = open_backend(isa, n_threads);
        tensor y = copy_of(&before), alone = copy_of(&before), v = zeros(m, 150);
        run_sgmv(be, &y, &v, &x, &segs, &w);
        for (int s = 0; n_threads == 1 && s < N_SEGS; s++)
            for (int r = indptr[s]; r < indptr[s + 1]; r++)
                check_sgmv_row(&x, &before, &y, r, of_seg[s], &w);
        for (int s = 0; s < N_SEGS; s++)
            for (int r = indptr[s]; r < indptr[s + 1]; r++) {
                tensor xr = rows_of(&x, r, 1), yr = rows_of(&alone, r, 1), vr = rows_of(&v, r, 1);
                run_sgmv(be, &yr, &vr, &xr, &(segments){1, (int[]){0, 1}, &of_seg[s]}, &w);
            }
        check_same_bits("sgmv, alone", &alone, &y);
        if (!first.data)
            first = copy_of(&y);
        check_same_bits("sgmv, threads", &y, &first);
        free(y.data);
        free(v.data);
        free(alone.data);
        be->ops->free(be);
    }
    for (int i = 0; i < N_ADAPTERS; i++)
        free_adapter(&adapter[i]);
    free(x.data);
    free(before.data);
    free(first.data);
}

static void test_sgmv(void **state)
{
    (void)state;
    for (int i = 0; i < N_ISAS; i++) {
        backend *be = open_backend(isas[i], 1);
        if (!be)
            continue;
        be->ops->free(be);
        for (int type = 0; type < 3; type++) {
            check_sgmv(isas[i], 67, (const int[]){64, 19, 1}, (dtype)type);
            check_sgmv(isas[i], 32, (const int[]){300, 33, 16}, (dtype)type);
        }
        check_sgmv(isas[i], 160, (const int[]){1100, 7, 40}, DTYPE_F16);
    }
}

static void test_sgmv_leaves_other_rows_alone(void **state)
{
    (void)state;
    const int out[3] = {20, 20, 20};
    lora l = random_adapter(0, 24, out, DTYPE_F16);
    const lora *of_seg[] = {NULL, &l, NULL};
    linear w = {.n = 3};
    for (int i = 0; i < 3; i++)
        w.part[i].w = (tensor){.rows = 20, .cols = 24};
    backend *be = backend_cpu_new(2);
    tensor x = randoms(DTYPE_F32, 6, 24), y = randoms(DTYPE_F32, 6, 60), v = randoms(DTYPE_F32, 6, 48);
    tensor y_before = copy_of(&y), v_before = copy_of(&v);
    segments segs = {3, (const int[]){0, 2, 3, 6}, of_seg};
    batch b = {.n_rows = 6, .segs = segs};
    be->ops->sgmv_shrink(be, &v, &x, &b, 0); /* site 0 is not adapted */
    be->ops->sgmv_expand(be, &y, &v, &b, 0, &w);
    check_same_bits("site not adapted, v", &v, &v_before);
    check_same_bits("site not adapted, y", &y, &y_before);
    run_sgmv(be, &y, &v, &x, &segs, &w);
    for (int r = 0; r < 6; r++) {
        bool touched = memcmp(row_of(&y, r), row_of(&y_before, r), 60 * sizeof(float)) != 0;
        bool shrunk = memcmp(row_of(&v, r), row_of(&v_before, r), 48 * sizeof(float)) != 0;
        assert_int_equal(touched, r == 2);
        assert_int_equal(shrunk, r == 2);
    }
    be->ops->free(be);
    free_adapter(&l);
    free(x.data);
    free(y.data);
    free(v.data);
    free(y_before.data);
    free(v_before.data);
}

/* Sequences with their whole history of queries, keys and values, before rotation. */
enum { MAX_SEQS = 6 };
typedef struct {
    heads h;
    int n_seqs, len[MAX_SEQS], window, page_len, layers, layer;
    tensor qkv[MAX_SEQS]; /* [len, q | k | v] */
    tensor y[MAX_SEQS];   /* [len, n_heads * head_dim] as the op computed it */
    float *inv_freq;
    kv_cache kv;
    int page[MAX_SEQS][64];
} world;

static int world_cols(const world *w)
{
    return (w->h.n_heads + 2 * w->h.n_kv_heads) * w->h.head_dim;
}

static void world_init(world *w, heads h, dtype kv, int page_len, int window, int n_seqs, const int *len)
{
    *w = (world){.h = h, .n_seqs = n_seqs, .window = window, .page_len = page_len, .layers = 2, .layer = 1};
    w->inv_freq = xmalloc((size_t)(h.head_dim / 2) * sizeof(float));
    for (int i = 0; i < h.head_dim / 2; i++)
        w->inv_freq[i] = powf(10000, -2.0f * (float)i / (float)h.head_dim);
    int n_pages = 1;
    for (int s = 0; s < n_seqs; s++) {
        w->len[s] = len[s];
        w->qkv[s] = randoms(DTYPE_F32, len[s], world_cols(w));
        w->y[s] = zeros(len[s], h.n_heads * h.head_dim);
        n_pages += (len[s] + page_len - 1) / page_len;
    }
    for (int s = 0, next = n_pages; s < n_seqs; s++) /* handed out from the end: not in order */
        for (int i = 0; i < (len[s] + page_len - 1) / page_len; i++)
            w->page[s][i] = --next;
    w->kv = (kv_cache){.type = kv,
                       .n_pages = n_pages,
                       .n_layers = w->layers,
                       .n_kv_heads = h.n_kv_heads,
                       .page_len = page_len,
                       .head_dim = h.head_dim};
    size_t bytes = (size_t)n_pages * kv_page_bytes(&w->kv);
    w->kv.data = xmalloc(bytes);
    memset(w->kv.data, 0xff, bytes); /* NaN: what is not written must not be read */
}

static void world_deinit(world *w)
{
    for (int s = 0; s < w->n_seqs; s++) {
        free(w->qkv[s].data);
        free(w->y[s].data);
    }
    free(w->inv_freq);
    free(w->kv.data);
}

/* One invocation: sequence s goes from done[s] to done[s] + step[s]. Those of one row come last. */
static void world_step(world *w, backend *be, int *done, const int *step)
{
    int order[MAX_SEQS], n = 0, n_prefills = 0, n_rows = 0, n_pages = 0;
    int position[512], prefill_indptr[MAX_SEQS + 1] = {0}, page_indptr[MAX_SEQS + 1] = {0}, page[MAX_SEQS * 64];
    for (int pass = 0; pass < 2; pass++)
        for (int s = 0; s < w->n_seqs; s++)
            if (step[s] > 0 && (step[s] == 1) == pass)
                order[n++] = s;
    tensor qkv = zeros(512, world_cols(w));
    for (int i = 0; i < n; i++) {
        int s = order[i];
        for (int r = 0; r < step[s]; r++, n_rows++) {
            position[n_rows] = done[s] + r;
            memcpy(row_of(&qkv, n_rows), row_of(&w->qkv[s], done[s] + r), (size_t)qkv.cols * sizeof(float));
        }
        if (step[s] > 1)
            prefill_indptr[++n_prefills] = n_rows;
        for (int p = 0; p * w->page_len < done[s] + step[s]; p++)
            page[n_pages++] = w->page[s][p];
        page_indptr[i + 1] = n_pages;
    }
    qkv.rows = n_rows;
    batch b = {.n_rows = n_rows,
               .position = position,
               .n_prefills = n_prefills,
               .n_decodes = n - n_prefills,
               .prefill_indptr = prefill_indptr,
               .page_indptr = page_indptr,
               .page = page};
    tensor y = zeros(n_rows, w->h.n_heads * w->h.head_dim);
    be->ops->rope_append(be, &qkv, w->h, w->inv_freq, &b, &w->kv, w->layer);
    be->ops->attention(be, &y, &qkv, w->h, &b, &w->kv, w->layer, w->window);
    for (int i = 0, row = 0; i < n; i++)
        for (int r = 0; r < step[order[i]]; r++, row++)
            memcpy(row_of(&w->y[order[i]], done[order[i]] + r), row_of(&y, row), (size_t)y.cols * sizeof(float));
    for (int i = 0; i < n; i++)
        done[order[i]] += step[order[i]];
    free(qkv.data);
    free(y.data);
}

/* All sequences to their ends, `chunk` rows at a time; chunk 0: a different number each time. */
static void world_run(world *w, backend *be, int chunk)
{
    int done[MAX_SEQS] = {0}, step[MAX_SEQS], left = 1;
    while (left) {
        left = 0;
        for (int s = 0; s < w->n_seqs; s++) {
            int rest = w->len[s] - done[s], want = chunk ? chunk : below(9);
            step[s] = rest < want ? rest : want;
            left += rest - step[s];
        }
        world_step(w, be, done, step);
    }
}

static void rotated(const world *w, int seq, int position, int head, double *out)
{
    int d = w->h.head_dim, half = d / 2;
    for (int i = 0; i < half; i++) {
        double angle = (double)((float)position * w->inv_freq[i]);
        double a = at(&w->qkv[seq], position, head * d + i), b = at(&w->qkv[seq], position, head * d + half + i);
        out[i] = a * cos(angle) - b * sin(angle);
        out[half + i] = b * cos(angle) + a * sin(angle);
    }
}

/* The vector that an F8 cache holds for a position, instead of x: each number within half a step of it. */
static void as_held(const world *w, int seq, int position, int kind, int kv_head, double *x)
{
    if (w->kv.type != DTYPE_F8)
        return;
    int page = w->page[seq][position / w->page_len], place = position % w->page_len, d = w->h.head_dim;
    size_t block =
        (((size_t)page * (size_t)w->layers + (size_t)w->layer) * 2 + (size_t)kind) * (size_t)w->h.n_kv_heads +
        (size_t)kv_head;
    const uint8_t *at = (const uint8_t *)w->kv.data + block * kv_block_bytes(&w->kv);
    float scale = ((const float *)(at + kv_numbers_bytes(&w->kv)))[place];
    for (int i = 0; i < d; i++) {
        double held = (double)e4m3_to_float(at[place * d + i]) * scale;
        assert_true(fabs(held - x[i]) <= fabs(x[i]) / 15 + 448 * scale * 1e-5 + scale * 0x1p-9);
        x[i] = held;
    }
}

static void check_attention_row(const world *w, int seq, int position)
{
    int d = w->h.head_dim, group = w->h.n_heads / w->h.n_kv_heads;
    int from = w->window && position + 1 > w->window ? position + 1 - w->window : 0;
    for (int head = 0; head < w->h.n_heads; head++) {
        double q[256], k[256], weight[256], out[256] = {0}, max = -INFINITY, sum = 0;
        int kv_head = head / group, v_col = (w->h.n_heads + w->h.n_kv_heads + kv_head) * d;
        rotated(w, seq, position, head, q);
        for (int p = from; p <= position; p++) {
            double s = 0;
            rotated(w, seq, p, w->h.n_heads + kv_head, k);
            as_held(w, seq, p, 0, kv_head, k);
            for (int i = 0; i < d; i++)
                s += q[i] * k[i];
            weight[p] = s / sqrt(d);
            max = weight[p] > max ? weight[p] : max;
        }
        for (int p = from; p <= position; p++) {
            weight[p] = exp(weight[p] - max);
            sum += weight[p];
        }
        for (int p = from; p <= position; p++) {
            double v[256];
            for (int i = 0; i < d; i++)
                v[i] = at(&w->qkv[seq], p, v_col + i);
            as_held(w, seq, p, 1, kv_head, v);
            for (int i = 0; i < d; i++)
                out[i] += weight[p] / sum * v[i];
        }
        for (int i = 0; i < d; i++)
            check_near("attention", position, head * d + i, at(&w->y[seq], position, head * d + i), out[i], 4);
    }
}

static void check_attention(const char *isa, heads h, dtype kv, int page_len, int window)
{
    static const int len[MAX_SEQS] = {1, 16, 33, 70, 5, 17};
    tensor first[MAX_SEQS] = {{0}};
    world w;
    world_init(&w, h, kv, page_len, window, MAX_SEQS, len);
    static const struct { int chunk, n_threads; } runs[] = {{70, 1}, {1, 2}, {7, 3}, {0, 2}, {16, 1}};
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        backend *be = open_backend(isa, runs[r].n_threads);
        world_run(&w, be, runs[r].chunk);
        for (int s = 0; s < w.n_seqs; s++) {
            for (int p = 0; r == 0 && p < len[s]; p++)
                check_attention_row(&w, s, p);
            if (r == 0)
                first[s] = copy_of(&w.y[s]);
            check_same_bits("attention, chunks", &w.y[s], &first[s]);
        }
        be->ops->free(be);
    }
    for (int s = 0; s < w.n_seqs; s++)
        free(first[s].data);
    world_deinit(&w);
}

static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; i < N_ISAS; i++) {
        backend *be = open_backend(isas[i], 1);
        if (!be)
            continue;
        be->ops->free(be);
        for (int k = 0; k < 2; k++) {
            dtype kv = k ? DTYPE_F8 : DTYPE_F32;
            check_attention(isas[i], (heads){4, 4, 16}, kv, 16, 0);
            check_attention(isas[i], (heads){8, 2, 32}, kv, 16, 0);
            check_attention(isas[i], (heads){6, 2, 10}, kv, 4, 0);
            check_attention(isas[i], (heads){2, 1, 66}, kv, 5, 9);
            check_attention(isas[i], (heads){32, 1, 8}, kv, 16, 20);
            check_attention(isas[i], (heads){3, 3, 2}, kv, 3, 1);
        }
    }
}

/* Run `op` on each instruction set. */
static void on_each_isa(void (*op)(backend *))
{
    for (int i = 0; i < N_ISAS; i++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            backend *be = open_backend(isas[i], n_threads);
            if (!be)
                continue;
            op(be);
            be->ops->free(be);
        }
}

static void check_norm(const char *what, const tensor *y, int row, int col0, const tensor *x, const tensor *w,
                       double eps)
{
    double squares = 0;
    for (int i = 0; i < w->cols; i++)
        squares += at(x, row, col0 + i) * at(x, row, col0 + i);
    double by = 1 / sqrt(squares / w->cols + eps);
    for (int i = 0; i < w->cols; i++) {
        double want = at(x, row, col0 + i) * by * at(w, 0, i);
        check_near(what, row, col0 + i, at(y, row, col0 + i), want, fabs(want));
    }
}

static void norms_on(backend *be)
{
    static const int sizes[] = {1, 7, 16, 33, 512, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int type = 0; type < 3; type++) {
            int n = sizes[s], m = 11;
            tensor x = randoms(DTYPE_F32, m, n), w = randoms((dtype)type, 1, n), y = zeros(m, n);
            tensor delta = randoms(DTYPE_F32, m, n), sum = copy_of(&x);
            be->ops->rms_norm(be, &y, &x, &w, 1e-5f);
            for (int r = 0; r < m; r++)
                check_norm("rms_norm", &y, r, 0, &x, &w, 1e-5);
            be->ops->add_rms_norm(be, &y, &sum, &delta, &w, 1e-5f);
            for (int r = 0; r < m; r++) {
                for (int c = 0; c < n; c++)
                    assert_true((float)at(&sum, r, c) == (float)at(&x, r, c) + (float)at(&delta, r, c));
                check_norm("add_rms_norm", &y, r, 0, &sum, &w, 1e-5);
            }
            free(x.data);
            free(w.data);
            free(y.data);
            free(delta.data);
            free(sum.data);
        }
}

static void head_norm_on(backend *be)
{
    heads h = {4, 2, 18};
    tensor x = randoms(DTYPE_F32, 5, 8 * 18), y = copy_of(&x);
    tensor q_w = randoms(DTYPE_BF16, 1, 18), k_w = randoms(DTYPE_F32, 1, 18);
    be->ops->head_norm(be, &y, h, &q_w, &k_w, 1e-6f);
    for (int r = 0; r < 5; r++) {
        for (int head = 0; head < 6; head++)
            check_norm("head_norm", &y, r, head * 18, &x, head < 4 ? &q_w : &k_w, 1e-6);
        assert_memory_equal(row_of(&y, r) + 6 * 18, row_of(&x, r) + 6 * 18, 2 * 18 * sizeof(float));
    }
    free(x.data);
    free(y.data);
    free(q_w.data);
    free(k_w.data);
}

static void silu_on(backend *be)
{
    int m = 40, n = 531;
    tensor x = randoms(DTYPE_F32, m, 2 * n), y = zeros(m, n);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++)
            row_of(&x, r)[c] *= (float)(1 << r % 8);
    row_of(&x, 0)[0] = 1000;
    row_of(&x, 0)[1] = -1000;
    row_of(&x, 0)[2] = 0;
    be->ops->silu_mul(be, &y, &x);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            double g = at(&x, r, c), want = g / (1 + exp(-g)) * at(&x, r, n + c);
            if (fabs(at(&y, r, c) - want) > 6e-7 * fabs(want) + 1e-34)
                fail_msg("silu(%g): got %.9g, expected %.9g", g, at(&y, r, c), want);
        }
    free(x.data);
    free(y.data);
}

/* Every 16-bit pattern as a weight. */
static void embed_on(backend *be)
{
    for (int type = 1; type < 3; type++) {
        tensor table = {xmalloc(65536 * 2), (dtype)type, 4096 + 1, 15}, y = zeros(4096 + 1, 15);
        int *token = xmalloc((4096 + 1) * sizeof *token);
        for (int i = 0; i < (4096 + 1) * 15; i++)
            ((uint16_t *)table.data)[i] = (uint16_t)(i * 17);
        for (int i = 0; i <= 4096; i++)
            token[i] = 4096 - i;
        be->ops->embed(be, &y, &table, 0, &(batch){.n_rows = 4096 + 1, .token = token});
        for (int r = 0; r <= 4096; r++)
            for (int c = 0; c < 15; c++) {
                double got = at(&y, r, c), want = at(&table, 4096 - r, c);
                if (got != want && !(isnan(got) && isnan(want)))
                    fail_msg("%s %04x: got %g, expected %g", dtype_name((dtype)type),
                             ((uint16_t *)table.data)[(4096 - r) * 15 + c], got, want);
            }
        free(table.data);
        free(y.data);
        free(token);
    }
}

static void gather_on(backend *be)
{
    const int row[] = {4, 0, 4, 2};
    tensor x = randoms(DTYPE_F32, 5, 37), y = zeros(4, 37);
    be->ops->gather(be, &y, &x, &(batch){.n_rows = 5, .n_out = 4, .out_row = row});
    for (int i = 0; i < 4; i++)
        assert_memory_equal(row_of(&y, i), row_of(&x, row[i]), 37 * sizeof(float));
    free(x.data);
    free(y.data);
}

static void test_norms(void **state)
{
    (void)state;
    on_each_isa(norms_on);
}
static void test_head_norm(void **state)
{
    (void)state;
    on_each_isa(head_norm_on);
}
static void test_silu_mul(void **state)
{
    (void)state;
    on_each_isa(silu_on);
}
static void test_embed(void **state)
{
    (void)state;
    on_each_isa(embed_on);
}
static void test_gather(void **state)
{
    (void)state;
    on_each_isa(gather_on);
}

static const sample_spec plain_greedy = {.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1};

static sample_result sample_one(backend *be, const tensor *logits, sample_spec spec)
{
    err e;
    tensor before = copy_of(logits);
    be->ops->sample(be, logits, &spec, 1);
    sample_result out = *be->ops->collect(be, &e);
    check_same_bits("logits after sampling", logits, &before);
    free(before.data);
    return out;
}

static void greedy_on(backend *be)
{
    tensor x = randoms(DTYPE_F32, 1, 1003);
    float *l = x.data;
    l[500] = l[17] = l[1001] = 3;
    assert_int_equal(sample_one(be, &x, plain_greedy).token, 17);

    sample_spec s = plain_greedy;
    s.n_banned = 3;
    s.banned = (const int[]){17, 5000, -1};
    assert_int_equal(sample_one(be, &x, s).token, 500);

    s = plain_greedy; /* 17 and 500 fall to 1.5 and 1, 1001 to 3 - 0.5 - 2 * 0.25 */
    l[500] = 2;
    l[3] = 2.25f;
    s.n_seen = 4;
    s.seen = (const int[]){17, 500, 1001, 9999};
    s.seen_output = (const int[]){0, 0, 2, 1};
    s.repetition_penalty = 2;
    assert_int_equal(sample_one(be, &x, s).token, 3);
    s.repetition_penalty = 1;
    s.presence_penalty = 0.5f;
    s.frequency_penalty = 0.25f;
    assert_int_equal(sample_one(be, &x, s).token, 17);
    s.repetition_penalty = 0.5f; /* below 1 rewards; 17: 6, 1001: 6 - 1 */
    assert_int_equal(sample_one(be, &x, s).token, 17);
    for (int i = 0; i < x.cols; i++) /* of negative logits a penalty above 1 makes them smaller */
        l[i] = -1 - fabsf(l[i]);
    l[17] = -0.5f;
    l[600] = -0.75f;
    s = (sample_spec){.top_p = 1,
                      .repetition_penalty = 2,
                      .n_logprobs = -1,
                      .n_seen = 1,
                      .seen = (const int[]){17},
                      .seen_output = (const int[]){0}};
    assert_int_equal(sample_one(be, &x, s).token, 600);
    free(x.data);
}

static void bad_logits_on(backend *be)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int place = 0; place < 37; place += 9) {
            tensor x = randoms(DTYPE_F32, 1, 37);
            row_of(&x, 0)[place] = bad[i];
            assert_int_equal(sample_one(be, &x, plain_greedy).token, -1);
            free(x.data);
        }
    tensor x = randoms(DTYPE_F32, 1, 2);
    sample_spec s = plain_greedy;
    s.n_banned = 2;
    s.banned = (const int[]){0, 1};
    assert_int_equal(sample_one(be, &x, s).token, -1);
    s.temperature = 1;
    assert_int_equal(sample_one(be, &x, s).token, -1);
    free(x.data);
}

static void logprobs_on(backend *be)
{
    tensor x = randoms(DTYPE_F32, 1, 5000);
    float *l = x.data;
    for (int i = 0; i < x.cols; i++)
        l[i] *= 20;
    l[40] = l[4000] = l[7] = 21;
    double sum = 0;
    for (int i = 0; i < x.cols; i++)
        sum += exp(l[i]);
    sample_spec s = plain_greedy;
    s.n_logprobs = 20;
    s.n_banned = 1;
    s.banned = (const int[]){7};
    sample_result out = sample_one(be, &x, s);
    assert_int_equal(out.token, 40);
    assert_true(fabs(out.logprob - (21 - log(sum))) < 1e-5);
    assert_int_equal(out.top[0].token, 7);
    assert_int_equal(out.top[1].token, 40);
    assert_int_equal(out.top[2].token, 4000);
    for (int i = 0; i < 20; i++) {
        assert_true(fabs(out.top[i].logprob - (l[out.top[i].token] - log(sum))) < 1e-5);
        int likelier = 0;
        for (int j = 0; j < x.cols; j++)
            likelier += l[j] > l[out.top[i].token] || (l[j] == l[out.top[i].token] && j < out.top[i].token);
        assert_int_equal(likelier, i);
    }
    s.given = true; /* whatever else is asked for */
    s.temperature = 1;
    for (s.token = 0; s.token < x.cols; s.token += 997) {
        sample_result given = sample_one(be, &x, s);
        int rank = 1;
        for (int i = 0; i < x.cols; i++)
            rank += l[i] > l[s.token];
        assert_true(given.token == s.token && given.rank == rank &&
                    fabs(given.logprob - (l[s.token] - log(sum))) < 1e-5);
        assert_memory_equal(given.top, out.top, sizeof out.top);
    }
    s.given = false;
    s.temperature = 0;
    x.cols = 2;
    s.n_banned = 0;
    out = sample_one(be, &x, s);
    assert_int_equal(out.top[2].token, -1);
    free(x.data);
}

/* Only tokens of the mask are drawn and have logprobs, which sum to 1; bias moves a draw but no logprob. */
static void mask_on(backend *be)
{
    tensor x = randoms(DTYPE_F32, 1, 1000);
    float *l = x.data;
    uint32_t mask[32] = {0};
    double sum = 0;
    for (int i = 0; i < 5; i++) {
        mask[(200 * i + 33) >> 5] |= 1u << ((200 * i + 33) & 31);
        l[200 * i + 33] = (float)i - 50;
        sum += exp(i - 50);
    }
    sample_spec s = plain_greedy;
    s.mask = mask;
    s.n_logprobs = 7;
    sample_result out = sample_one(be, &x, s);
    assert_int_equal(out.token, 833);
    assert_true(fabs(out.logprob - (-46 - log(sum))) < 1e-4);
    assert_int_equal(out.top[4].token, 33);
    assert_int_equal(out.top[5].token, -1);
    s.temperature = 2;
    for (s.position = 0; s.position < 200; s.position++)
        assert_int_equal(sample_one(be, &x, s).token % 200, 33);
    s.temperature = 0;
    s.n_bias = 2;
    s.biased = (const int[]){233, 5};
    s.bias = (const float[]){10, 100};
    out = sample_one(be, &x, s);
    assert_int_equal(out.token, 233);
    assert_true(fabs(out.logprob - (-49 - log(sum))) < 1e-4);
    s.mask = (const uint32_t[32]){0};
    assert_int_equal(sample_one(be, &x, s).token, -1);
    free(x.data);
}

/* Which tokens the filters leave, computed by sorting. */
typedef struct {
    double p;
    int id;
} candidate;

static int by_probability(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : x->id - y->id;
}

static int keep_by_sorting(const float *l, int n, const sample_spec *s, candidate *c)
{
    double max = -INFINITY, total = 0, kept = 0;
    for (int i = 0; i < n; i++)
        max = l[i] > max ? l[i] : max;
    for (int i = 0; i < n; i++)
        c[i] = (candidate){exp(((double)l[i] - max) / s->temperature), i};
    qsort(c, (size_t)n, sizeof *c, by_probability);
    int top_k = s->top_k > 0 && s->top_k < n ? s->top_k : n, keep = 0;
    for (int i = 0; i < top_k; i++)
        total += c[i].p;
    while (keep < top_k && (keep == 0 || kept < (double)s->top_p * total) && c[keep].p >= (double)s->min_p)
        kept += c[keep++].p;
    return keep;
}

static void check_draws(backend *be, const tensor *logits, sample_spec s)
{
    enum { DRAWS = 4000 };
    int n = logits->cols;
    candidate *c = XNEW_ARRAY(candidate, (size_t)n);
    int *seen = XNEW_ARRAY(int, (size_t)n);
    int keep = keep_by_sorting(logits->data, n, &s, c);
    tensor rows = zeros(100, n);
    for (int r = 0; r < 100; r++)
        memcpy(row_of(&rows, r), logits->data, (size_t)n * sizeof(float));
    for (int i = 0; i < DRAWS; i += 100) {
        sample_spec spec[100];
        err e;
        for (int r = 0; r < 100; r++) {
            spec[r] = s;
            spec[r].position = (uint64_t)(i + r);
        }
        be->ops->sample(be, &rows, spec, 100);
        const sample_result *out = be->ops->collect(be, &e);
        for (int r = 0; r < 100; r++)
            seen[out[r].token]++;
    }
    double total = 0;
    for (int i = 0; i < keep; i++)
        total += c[i].p;
    for (int i = 0; i < n; i++) {
        double want = i < keep ? c[i].p / total * DRAWS : 0, off = fabs(seen[c[i].id] - want);
        if (off > 5 * sqrt(want) + (i < keep))
            fail_msg("token %d of %d kept: drawn %d times, expected %.1f", i, keep, seen[c[i].id], want);
    }
    free(c);
    free(seen);
    free(rows.data);
}

static void draws_on(backend *be)
{
    static const struct {
        float temperature;
        int top_k;
        float top_p, min_p;
    } cases[] = {
        {1, 0, 1, 0},
        {0.5f, 0, 1, 0},
        {1, 1, 1, 0},
        {1, 5, 1, 0},
        {1, 0, 0.5f, 0},
        {2, 0, 0.9f, 0},
        {1, 0, 1, 0.3f},
        {1, 10, 0.7f, 0.05f},
        {1, 0, 0, 0},
        {1, 3, 0.999f, 0},
        {1, 0, 1, 1},
        {1e-6f, 0, 1, 0},
        {5, 1000, 0.99f, 0.01f},
    };
    tensor x = randoms(DTYPE_F32, 1, 61);
    float *l = x.data;
    for (int i = 0; i < x.cols; i++)
        l[i] *= 4;
    l[60] = l[20] = l[30] = l[10];
    l[33] = -1000;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample_spec s = plain_greedy;
        s.temperature = cases[i].temperature;
        s.top_k = cases[i].top_k;
        s.top_p = cases[i].top_p;
        s.min_p = cases[i].min_p;
        s.seed = 1234 + i;
        check_draws(be, &x, s);
    }
    free(x.data);
}

static void test_greedy(void **state)
{
    (void)state;
    on_each_isa(greedy_on);
}
static void test_bad_logits(void **state)
{
    (void)state;
    on_each_isa(bad_logits_on);
}
static void test_logprobs(void **state)
{
    (void)state;
    on_each_isa(logprobs_on);
}
static void test_mask_and_bias(void **state)
{
    (void)state;
    on_each_isa(mask_on);
}
static void test_draws(void **state)
{
    (void)state;
    on_each_isa(draws_on);
}

static void count_item(void *arg, int item, int thread)
{
    (void)thread;
    ((int *)arg)[item]++;
}

/* Each item once, over many short loops, some after a pause long enough for workers to sleep, some after they were
 * woken. */
static void test_pool(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        pool *p = pool_new(n_threads);
        int *times = XNEW_ARRAY(int, 300);
        for (int loop = 0; loop < 2000; loop++) {
            int n = below(300);
            memset(times, 0, 300 * sizeof *times);
            pool_run(p, n, count_item, times);
            for (int i = 0; i < 300; i++)
                assert_int_equal(times[i], i < n);
            if (loop % 500 == 0)
                nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
            if (loop % 250 == 0)
                pool_wake(p);
        }
        free(times);
        pool_free(p);
    }
}

static void test_alloc(void **state)
{
    (void)state;
    backend *be = backend_cpu_new(1);
    static const size_t sizes[] = {0, 1, 100, (size_t)5 << 20};
    err e;
    for (int i = 0; i < 4; i++) {
        char *p = be->ops->alloc(be, sizes[i], &e);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        if (sizes[i])
            p[0] = p[sizes[i] - 1] = 1;
        be->ops->release(be, p);
    }
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_head_norm),
        cmocka_unit_test(test_silu_mul),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_is_batch_invariant),
        cmocka_unit_test(test_sgmv),
        cmocka_unit_test(test_sgmv_leaves_other_rows_alone),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_mask_and_bias),
        cmocka_unit_test(test_draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
