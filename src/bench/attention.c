/* attention.c - see attention.h
 *
 * One invocation is the same op several times, as the layers of a step would queue it, on random queries, keys and
 * values in shuffled pages. Operations are counted for the pairs of query and key that the causal mask allows: 4 *
 * head_dim for each query head. */
#include "bench/attention.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/matrix_rate.h"
#include "bench/median.h"
#include "bench/shapes.h"
#include "engine/kv_pool.h"
#include "model/random.h"

enum { N_RUNS = 5, MAX_OPS = 200 };

/* How long a run is to take. */
static const double RUN_SECONDS = 0.03;

typedef struct {
    backend *be;
    const attention_options *opt;
    heads h;
    double peak; /* operations per second of large products, see matrix_rate.h */
    FILE *csv;
} attention_bench;

/* One point: prompts of so many rows after so many positions. */
typedef struct {
    int length, context;
    int *position, *page, *prefill_indptr, *page_indptr, *zeros, segment[2];
    batch b;
    tensor qkv, y;
    kv_cache kv;
} point;

attention_options attention_options_default(void)
{
    return (attention_options){.device = "cpu",
                               .shape = "llama2-7b",
                               .type = DTYPE_F16,
                               .prompts = 1,
                               .n_lengths = 7,
                               .length = {512, 1024, 2048, 4096, 8192, 16384, 32768},
                               .n_contexts = 1,
                               .context = {0}};
}

static int make_tensor(backend *be, tensor *t, int rows, int cols, err *e)
{
    *t = (tensor){.type = be->act, .rows = rows, .cols = cols};
    if (!(t->data = be->ops->alloc(be, tensor_bytes(t), e)))
        return -1;
    random_upload(be, t->data, tensor_bytes(t), t->type, -2);
    return 0;
}

static void drop_tensor(backend *be, tensor *t)
{
    if (t->data)
        be->ops->release(be, t->data);
}

static int reserve(backend *be, heads h, int rows, int sequences, int pages, err *e)
{
    extent x = {.max_rows = rows,
                .max_out = sequences,
                .max_sequences = sequences,
                .max_pages = pages,
                .page_len = KV_PAGE_LEN,
                .max_rank_sum = 1,
                .vocab = 1,
                .n_sites = 1,
                .h = h};
    return be->ops->reserve(be, &x, e);
}

/* Fills page with 0 to n - 1 in random order. */
static void shuffle_pages(int *page, int n)
{
    for (int i = 0; i < n; i++) {
        int j = (int)(rng_u64(1, (uint64_t)i) % (uint64_t)(i + 1));
        page[i] = page[j];
        page[j] = i;
    }
}

static void make_batch(const attention_bench *a, point *p)
{
    static const lora *none;
    int n = a->opt->prompts, rows = n * p->length, each = (p->context + p->length + KV_PAGE_LEN - 1) / KV_PAGE_LEN;
    p->position = XNEW_ARRAY(int, (size_t)rows);
    p->zeros = XNEW_ARRAY(int, (size_t)rows);
    p->page = XNEW_ARRAY(int, (size_t)(n * each));
    p->prefill_indptr = XNEW_ARRAY(int, (size_t)n + 1);
    p->page_indptr = XNEW_ARRAY(int, (size_t)n + 1);
    for (int i = 0; i < rows; i++)
        p->position[i] = p->context + i % p->length;
    for (int i = 0; i <= n; i++) {
        p->prefill_indptr[i] = i * p->length;
        p->page_indptr[i] = i * each;
    }
    p->segment[1] = rows;
    shuffle_pages(p->page, n * each);
    p->b = (batch){.n_rows = rows,
                   .token = p->zeros,
                   .position = p->position,
                   .n_prefills = n,
                   .prefill_indptr = p->prefill_indptr,
                   .page_indptr = p->page_indptr,
                   .page = p->page,
                   .segs = {1, p->segment, &none},
                   .n_out = n,
                   .out_row = p->zeros};
}

static int make_point(attention_bench *a, point *p, err *e)
{
    backend *be = a->be;
    heads h = a->h;
    make_batch(a, p);
    int n_pages = p->page_indptr[a->opt->prompts];
    p->kv = (kv_cache){.type = be->act,
                       .n_pages = n_pages,
                       .n_layers = 1,
                       .n_kv_heads = h.n_kv_heads,
                       .page_len = KV_PAGE_LEN,
                       .head_dim = h.head_dim};
    size_t bytes = (size_t)n_pages * kv_page_bytes(&p->kv);
    if (reserve(be, h, p->b.n_rows, a->opt->prompts, n_pages, e) || !(p->kv.data = be->ops->alloc(be, bytes, e)) ||
        make_tensor(be, &p->qkv, p->b.n_rows, (h.n_heads + 2 * h.n_kv_heads) * h.head_dim, e) ||
        make_tensor(be, &p->y, p->b.n_rows, h.n_heads * h.head_dim, e))
        return -1;
    random_upload(be, p->kv.data, bytes, p->kv.type, -2);
    return 0;
}

static void drop_point(attention_bench *a, point *p)
{
    drop_tensor(a->be, &p->qkv);
    drop_tensor(a->be, &p->y);
    if (p->kv.data)
        a->be->ops->release(a->be, p->kv.data);
    int *all[] = {p->position, p->page, p->prefill_indptr, p->page_indptr, p->zeros};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Runs one invocation of n ops. */
static int run_ops(attention_bench *a, point *p, int n, err *e)
{
    backend *be = a->be;
    invocation v = be->ops->begin(be, &p->b, p);
    for (int i = 0; i < n && !v.replayed; i++)
        be->ops->attention(be, &p->y, &p->qkv, a->h, &p->b, &p->kv, 0, 0);
    be->ops->end(be);
    return be->ops->sync(be, e);
}

/* Seconds of one op: the median over invocations of n; negative with e set on failure. A first invocation warms up. */
static double time_ops(attention_bench *a, point *p, int n, err *e)
{
    double seconds[N_RUNS];
    for (int i = -1; i < N_RUNS; i++) {
        double start = clock_now();
        if (run_ops(a, p, n, e))
            return -1;
        if (i >= 0)
            seconds[i] = (clock_now() - start) / n;
    }
    a->be->ops->forget(a->be, p); /* the recording has n ops: not for another n */
    return median(seconds, N_RUNS);
}

static double flops_of(const attention_bench *a, const point *p)
{
    double pairs = (double)p->length * p->context + 0.5 * p->length * (p->length + 1.0);
    return 4.0 * a->h.head_dim * a->h.n_heads * pairs * a->opt->prompts;
}

static void print_point(const attention_bench *a, const point *p, double seconds)
{
    double rate = flops_of(a, p) / seconds;
    printf("%7d %8d %7d %11.1f %9.4g %7.0f %%\n", p->context, p->length, a->opt->prompts, seconds * 1e6, rate * 1e-12,
           100 * rate / a->peak);
    fflush(stdout);
    if (a->csv)
        fprintf(a->csv, "%s,%d,%d,%d,%d,%d,%d,%.2f,%.3f,%.3f\n", a->opt->shape, a->h.n_heads, a->h.n_kv_heads,
                a->h.head_dim, p->context, p->length, a->opt->prompts, seconds * 1e6, rate * 1e-12, rate / a->peak);
}

static int run_point(attention_bench *a, point *p, err *e)
{
    double seconds = make_point(a, p, e) ? -1 : time_ops(a, p, 1, e);
    if (seconds > 0) {
        double fit = RUN_SECONDS / seconds;
        seconds = time_ops(a, p, fit < 1 ? 1 : fit > MAX_OPS ? MAX_OPS : (int)fit, e);
    }
    if (seconds > 0)
        print_point(a, p, seconds);
    drop_point(a, p);
    return seconds > 0 ? 0 : -1;
}

static int run_points(attention_bench *a, err *e)
{
    const attention_options *o = a->opt;
    for (int c = 0; c < o->n_contexts; c++)
        for (int n = 0; n < o->n_lengths; n++)
            if (run_point(a, &(point){.length = o->length[n], .context = o->context[c]}, e))
                return -1;
    return 0;
}

static int run_all(attention_bench *a, err *e)
{
    const attention_options *o = a->opt;
    model_config c;
    if (shape_find(o->shape, o->type, &c, e))
        return -1;
    a->h = (heads){c.n_heads, c.n_kv_heads, c.head_dim};
    model_config_deinit(&c);
    if (!(a->be = backend_open(o->device, 1, o->type, 0, e)))
        return -1;
    a->peak = matrix_rate(a->be, e);
    int status = a->peak > 0 ? 0 : -1;
    if (status == 0) {
        printf("punica " PUNICA_VERSION " bench attention on %s\n%s: %d query heads, %d key/value heads of %d; large "
               "products run at %.4g TFLOP/s\n\n"
               " cached   prompt prompts          us   TFLOP/s  of that\n",
               a->be->name, o->shape, a->h.n_heads, a->h.n_kv_heads, a->h.head_dim, a->peak * 1e-12);
        status = run_points(a, e);
    }
    backend_close(a->be);
    return status;
}

int attention_run(const attention_options *o, err *e)
{
    attention_bench a = {.opt = o, .csv = o->csv ? fopen(o->csv, "w") : NULL};
    if (o->csv && !a.csv)
        return err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    if (a.csv)
        fprintf(a.csv, "shape,heads,kv_heads,head_dim,cached,prompt,prompts,us,tflop_per_s,of_products\n");
    int status = run_all(&a, e);
    if (a.csv && fclose(a.csv) != 0 && status == 0)
        status = err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    return status;
}
