/* cpu_backend.c - the op table on the CPU: choice of kernels, memory, and the ops that go row by row
 *
 * Ops run to their end before they return. Each cuts its work into items for the thread pool; which
 * thread does an item changes nothing in the result. Linears and SGMV are in cpu_linear.c, attention
 * in cpu_attention.c, sampling in cpu_sample.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/mem.h"

float *scratch_reserve(scratch *s, size_t n)
{
    if (n > s->cap) {
        free(s->data);
        s->cap = (n + 15) / 16 * 16;
        s->data = aligned_alloc(64, s->cap * sizeof(float));
        CHECK(s->data);
    }
    return s->data;
}

void cpu_reserve_per_thread(cpu_backend *cpu, size_t n_floats)
{
    for (int i = 0; i < pool_size(cpu->pool); i++)
        scratch_reserve(&cpu->per_thread[i], n_floats);
}

int batch_sequence_of(const batch *b, int row)
{
    int first_decode = b->prefill_indptr[b->n_prefills];
    if (row >= first_decode)
        return b->n_prefills + row - first_decode;
    int low = 0, high = b->n_prefills; /* the prefill with prefill_indptr[low] <= row < [high] */
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (b->prefill_indptr[mid] <= row)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* A row-wise op in progress: the operands that any of these needs, and what it does to one row. */
typedef struct row_call row_call;
struct row_call {
    const cpu_kernels *k;
    tensor *y, *sum;
    const tensor *x, *w, *w2;
    const int *index;
    int first;                  /* the table's first token */
    const sample_result *drawn; /* of the last sample */
    float eps;
    heads h;
    void (*do_row)(const row_call *, int row);
    int n_rows, rows_per_item;
};

static float *float_row(const tensor *t, int row)
{
    return (float *)t->data + (size_t)row * (size_t)t->cols;
}

static void row_item(void *arg, int item, int thread)
{
    (void)thread;
    const row_call *c = arg;
    int from = item * c->rows_per_item, to = from + c->rows_per_item;
    for (int row = from; row < to && row < c->n_rows; row++)
        c->do_row(c, row);
}

/* Runs do_row on all rows. Items are some 4000 elements: less is not worth another thread. */
static void run_rows(backend *be, row_call c, int n_rows, int cols)
{
    c.k = cpu_of(be)->k;
    c.n_rows = n_rows;
    c.rows_per_item = cols < 4096 ? 4096 / (cols > 0 ? cols : 1) : 1;
    pool_run(cpu_of(be)->pool, (n_rows + c.rows_per_item - 1) / c.rows_per_item, row_item, &c);
}

static void embed_row(const row_call *c, int row)
{
    int token = c->index[row];
    if (token < 0)
        token = c->drawn[TOKEN_DRAWN(token)].token;
    if (token < c->first || token >= c->first + c->x->rows) { /* another rank's, or the draw failed */
        memset(float_row(c->y, row), 0, (size_t)c->y->cols * sizeof(float));
        return;
    }
    size_t at = (size_t)(token - c->first) * (size_t)c->x->cols * dtype_size(c->x->type);
    c->k->to_float(float_row(c->y, row), (const char *)c->x->data + at, c->x->type, c->x->cols);
}

static void cpu_embed(backend *be, tensor *y, const tensor *table, int first, const batch *b)
{
    CHECK(y->cols == table->cols && y->rows == b->n_rows);
    const sample_result *drawn = cpu_of(be)->drawn[(cpu_of(be)->n_sampled + 2) % 3];
    row_call c = {.do_row = embed_row, .y = y, .x = table, .index = b->token, .first = first, .drawn = drawn};
    run_rows(be, c, y->rows, y->cols);
}

static void rms_norm_row(const row_call *c, int row)
{
    c->k->rms_norm(float_row(c->y, row), float_row(c->x, row), c->w->data, c->w->type, c->x->cols, c->eps);
}

static void cpu_rms_norm(backend *be, tensor *y, const tensor *x, const tensor *w, float eps)
{
    CHECK(y->cols == x->cols && w->cols == x->cols && y->rows == x->rows);
    run_rows(be, (row_call){.do_row = rms_norm_row, .y = y, .x = x, .w = w, .eps = eps}, x->rows, x->cols);
}

static void add_rms_norm_row(const row_call *c, int row)
{
    float *sum = float_row(c->sum, row);
    c->k->add(sum, float_row(c->x, row), c->x->cols);
    c->k->rms_norm(float_row(c->y, row), sum, c->w->data, c->w->type, c->x->cols, c->eps);
}

static void cpu_add_rms_norm(backend *be, tensor *y, tensor *x, const tensor *delta, const tensor *w, float eps)
{
    CHECK(y->cols == x->cols && delta->cols == x->cols && w->cols == x->cols);
    CHECK(y->rows == x->rows && delta->rows == x->rows);
    row_call c = {.do_row = add_rms_norm_row, .y = y, .sum = x, .x = delta, .w = w, .eps = eps};
    run_rows(be, c, x->rows, x->cols);
}

static void head_norm_row(const row_call *c, int row)
{
    heads h = c->h;
    float *x = float_row(c->y, row);
    for (int i = 0; i < h.n_heads + h.n_kv_heads; i++, x += h.head_dim) {
        const tensor *w = i < h.n_heads ? c->w : c->w2;
        c->k->rms_norm(x, x, w->data, w->type, h.head_dim, c->eps);
    }
}

static void cpu_head_norm(backend *be, tensor *qkv, heads h, const tensor *q_w, const tensor *k_w, float eps)
{
    CHECK(q_w->cols == h.head_dim && k_w->cols == h.head_dim);
    CHECK(qkv->cols == (h.n_heads + 2 * h.n_kv_heads) * h.head_dim);
    row_call c = {.do_row = head_norm_row, .y = qkv, .w = q_w, .w2 = k_w, .eps = eps, .h = h};
    run_rows(be, c, qkv->rows, qkv->cols);
}

static void silu_mul_row(const row_call *c, int row)
{
    const float *gate = float_row(c->x, row);
    c->k->silu_mul(float_row(c->y, row), gate, gate + c->y->cols, c->y->cols);
}

static void cpu_silu_mul(backend *be, tensor *y, const tensor *x)
{
    CHECK(x->cols == 2 * y->cols && x->rows == y->rows);
    run_rows(be, (row_call){.do_row = silu_mul_row, .y = y, .x = x}, y->rows, x->cols);
}

static void gather_row(const row_call *c, int row)
{
    CHECK(c->index[row] >= 0 && c->index[row] < c->x->rows);
    memcpy(float_row(c->y, row), float_row(c->x, c->index[row]), (size_t)c->x->cols * sizeof(float));
}

static void cpu_gather(backend *be, tensor *y, const tensor *x, const batch *b)
{
    CHECK(y->cols == x->cols && y->rows == b->n_out);
    run_rows(be, (row_call){.do_row = gather_row, .y = y, .x = x, .index = b->out_row}, y->rows, y->cols);
}

/* The fused ops are just their parts, one after the other: the launches and passes over memory that fusion saves on a
 * GPU cost nothing here. */
static void cpu_linear_shrink(backend *be, tensor *y, const tensor *x, const adapted *a, const batch *b)
{
    cpu_linear_op(be, y, x, a->w);
    cpu_sgmv_shrink(be, a->v, x, b, a->site);
}

static void cpu_expand_rope_append(backend *be, tensor *qkv, heads h, const head_norms *n, const float *inv_freq,
                                   const adapted *a, const batch *b, kv_cache *kv, int layer)
{
    cpu_sgmv_expand(be, qkv, a->v, b, a->site, a->w);
    if (n->q_w.data)
        cpu_head_norm(be, qkv, h, &n->q_w, &n->k_w, n->eps);
    cpu_rope_append(be, qkv, h, inv_freq, b, kv, layer);
}

static void cpu_expand_add_rms_norm(backend *be, tensor *delta, tensor *y, tensor *x, const tensor *w, float eps,
                                    const adapted *a, const batch *b)
{
    cpu_sgmv_expand(be, delta, a->v, b, a->site, a->w);
    cpu_add_rms_norm(be, y, x, delta, w, eps);
}

static void cpu_expand_silu_mul(backend *be, tensor *gate_up, tensor *y, const adapted *a, const batch *b)
{
    cpu_sgmv_expand(be, gate_up, a->v, b, a->site, a->w);
    cpu_silu_mul(be, y, gate_up);
}

static void cpu_expand(backend *be, tensor *y, const adapted *a, const batch *b)
{
    cpu_sgmv_expand(be, y, a->v, b, a->site, a->w);
}

/* Ops run at once, straight from the batch: nothing is recorded. */
static invocation cpu_begin(backend *be, const batch *b, const void *owner)
{
    (void)be;
    (void)owner;
    return (invocation){.n_rows = b->n_rows, .n_out = b->n_out};
}

static void cpu_end(backend *be)
{
    (void)be;
}

static void cpu_forget(backend *be, const void *owner)
{
    (void)be;
    (void)owner;
}

/* Scratch grows when an op first needs more. */
static int cpu_reserve(backend *be, const extent *x, err *e)
{
    (void)be;
    (void)x;
    (void)e;
    return 0;
}

static void *cpu_alloc(backend *be, size_t bytes, err *e)
{
    (void)be;
    void *p = mem_alloc_block(bytes);
    if (!p)
        err_set(e, "not enough memory for %.1f MiB", (double)bytes / (1 << 20));
    return p;
}

static void cpu_release(backend *be, void *p)
{
    (void)be;
    free(p);
}

static void *cpu_alloc_host(backend *be, size_t bytes)
{
    (void)be;
    return mem_alloc_block(bytes);
}

static void cpu_copy(backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    if (bytes)
        memcpy(dst, src, bytes);
}

/* Copies at once. For all batches not reported yet, the time of the last one counts. */
static void cpu_copy_begin(backend *be, copy_lane lane, const copy_piece *piece, int n, bool behind_ops)
{
    (void)behind_ops;
    double start = clock_now();
    for (int i = 0; i < n; i++)
        memcpy(piece[i].dst, piece[i].src, piece[i].bytes);
    cpu_of(be)->copy_seconds[lane] = clock_now() - start;
}

static bool cpu_copy_ended(backend *be, copy_lane lane, bool wait, double *seconds)
{
    (void)wait;
    *seconds = cpu_of(be)->copy_seconds[lane];
    return true;
}

static void cpu_copy_order(backend *be)
{
    (void)be;
}

static size_t cpu_available(backend *be)
{
    (void)be;
    return mem_available();
}

static size_t cpu_memory(backend *be)
{
    (void)be;
    return 0;
}

static int cpu_adopt(backend *be, tensor *t, err *e)
{
    (void)be;
    (void)t;
    (void)e;
    return 0;
}

static int cpu_adopt_linear(backend *be, linear *w, err *e)
{
    (void)be;
    (void)w;
    (void)e;
    return 0;
}

static size_t cpu_lora_table_bytes(backend *be, int n_sites)
{
    (void)be;
    (void)n_sites;
    return 0;
}

static void cpu_bind_lora(backend *be, lora *l, void *memory)
{
    (void)be;
    (void)l;
    (void)memory;
}

typedef struct {
    const uint64_t *at;
    uint64_t *sum;
    size_t n;
} summing;

static void sum_item(void *arg, int item, int thread)
{
    (void)thread;
    const summing *r = arg;
    const uint64_t *at = r->at + (size_t)item * r->n;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= r->n; i += 4) {
        a += at[i];
        b += at[i + 1];
        c += at[i + 2];
        d += at[i + 3];
    }
    r->sum[item] = a + b + c + d;
}

/* Best of several sums over 128 MB, more than the caches of most machines hold. */
static double cpu_read_bandwidth(backend *be)
{
    enum { ITEMS = 256 };
    size_t bytes = (size_t)128 << 20;
    uint64_t *buffer = xmalloc(bytes), sum[ITEMS];
    memset(buffer, 1, bytes);
    summing r = {.at = buffer, .sum = sum, .n = bytes / sizeof *buffer / ITEMS};
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double start = clock_now();
        pool_run(cpu_of(be)->pool, ITEMS, sum_item, &r);
        double t = clock_now() - start;
        best = t < best ? t : best;
    }
    free(buffer);
    return (double)bytes / best;
}

static int cpu_sync(backend *be, err *e)
{
    (void)be;
    (void)e;
    return 0;
}

static void cpu_free(backend *be)
{
    if (!be)
        return;
    cpu_backend *cpu = cpu_of(be);
    for (int i = 0; i < pool_size(cpu->pool); i++)
        free(cpu->per_thread[i].data);
    pool_free(cpu->pool);
    free(cpu->per_thread);
    free(cpu->shared.data);
    free(cpu->sgmv);
    free(cpu->attention);
    free(cpu->rope.data);
    free(cpu->rope_position);
    free(cpu->rope_freq);
    for (int i = 0; i < 3; i++)
        free(cpu->drawn[i]);
    free(cpu);
}

static const backend_ops cpu_ops = {
    .begin = cpu_begin,
    .end = cpu_end,
    .forget = cpu_forget,
    .embed = cpu_embed,
    .rms_norm = cpu_rms_norm,
    .add_rms_norm = cpu_add_rms_norm,
    .linear = cpu_linear_op,
    .sgmv_shrink = cpu_sgmv_shrink,
    .sgmv_expand = cpu_sgmv_expand,
    .head_norm = cpu_head_norm,
    .rope_append = cpu_rope_append,
    .attention = cpu_attention_op,
    .silu_mul = cpu_silu_mul,
    .gather = cpu_gather,
    .linear_shrink = cpu_linear_shrink,
    .expand_rope_append = cpu_expand_rope_append,
    .expand_add_rms_norm = cpu_expand_add_rms_norm,
    .expand_silu_mul = cpu_expand_silu_mul,
    .expand = cpu_expand,
    .sample = cpu_sample,
    .collect = cpu_collect,
    .reserve = cpu_reserve,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .alloc_host = cpu_alloc_host,
    .release_host = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy_begin = cpu_copy_begin,
    .copy_ended = cpu_copy_ended,
    .copy_order = cpu_copy_order,
    .available = cpu_available,
    .memory = cpu_memory,
    .adopt = cpu_adopt,
    .adopt_linear = cpu_adopt_linear,
    .lora_table_bytes = cpu_lora_table_bytes,
    .bind_lora = cpu_bind_lora,
    .read_bandwidth = cpu_read_bandwidth,
    .sync = cpu_sync,
    .free = cpu_free,
};

/* The best instruction set this machine has, at most the one that PUNICA_CPU_ISA names (for tests). */
static const cpu_kernels *choose_kernels(void)
{
#ifdef PUNICA_X86
    const char *wish = getenv("PUNICA_CPU_ISA");
    int plain = wish && strcmp(wish, "plain") == 0, avx2 = wish && strcmp(wish, "avx2") == 0;
    if (!plain && !avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &cpu_kernels_avx512;
    if (!plain && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) /* AVX2 implies F16C */
        return &cpu_kernels_avx2;
#endif
    return &cpu_kernels_plain;
}

backend *backend_cpu_new(int n_threads)
{
    cpu_backend *cpu = XNEW(cpu_backend);
    cpu->k = choose_kernels();
    cpu->pool = pool_new(n_threads);
    int n = pool_size(cpu->pool);
    cpu->per_thread = XNEW_ARRAY(scratch, (size_t)n);
    snprintf(cpu->name, sizeof cpu->name, "cpu (%s, %d thread%s)", cpu->k->name, n, n == 1 ? "" : "s");
    cpu->base = (backend){.ops = &cpu_ops, .name = cpu->name, .act = DTYPE_F32, .owns_host_memory = true};
    return &cpu->base;
}
