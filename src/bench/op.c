/* op.c - see op.h
 *
 * One invocation is a long sequence of pairs, shrink then expand, each with weights of its own: the place of adapter a
 * at site s in a pool of random numbers is used by no other pair of the invocation until the pool is used up, so that
 * weights come from memory and not from a cache. The activations are the same for all. A device that records
 * invocations replays this one. */
#include "bench/op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/devices.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/median.h"
#include "bench/shapes.h"
#include "engine/kv_pool.h"
#include "model/random.h"

enum { N_RUNS = 7, MIN_PAIRS = 16, MAX_PAIRS = 512 };

typedef struct {
    backend *be;
    const op_options *opt;
    char *pool; /* random numbers */
    size_t pool_bytes;
    dtype type; /* of the adapters, as the backend holds them */
    double bandwidth;
    FILE *csv;
} op_bench;

/* One point of the figure. */
typedef struct {
    op_dims d;
    int rank, n, n_adapters;
    workload w;
} point;

/* What a point runs on. */
typedef struct {
    lora *adapter;
    char *tables; /* of the adapters, backend memory */
    const lora **of_seg;
    int *indptr, *row, n_pairs;
    batch b;
    tensor x, v, y;
    linear w;
} setup;

op_options op_options_default(void)
{
    return (op_options){.device = "cpu",
                        .type = DTYPE_F16,
                        .n_dims = 1,
                        .dims = {{4096, 4096}},
                        .n_ranks = 1,
                        .rank = {16},
                        .n_batches = 7,
                        .batch = {1, 2, 4, 8, 16, 32, 64}};
}

static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Bytes of one adapter at one site, as they lie in the pool. */
static size_t site_bytes(const op_bench *o, const point *p)
{
    size_t size = dtype_size(o->type);
    return padded((size_t)p->rank * (size_t)p->d.in * size) + padded((size_t)p->rank * (size_t)p->d.out * size);
}

/* Bytes that the largest invocation uses, but at most 1 GiB. */
static size_t pool_size(const op_bench *o)
{
    const op_options *opt = o->opt;
    size_t most = 0;
    for (int d = 0; d < opt->n_dims; d++)
        for (int r = 0; r < opt->n_ranks; r++)
            for (int n = 0; n < opt->n_batches; n++) {
                point p = {.d = opt->dims[d], .rank = opt->rank[r]};
                size_t bytes = site_bytes(o, &p) * (size_t)opt->batch[n] * MAX_PAIRS;
                most = bytes > most ? bytes : most;
            }
    return most < (size_t)1 << 30 ? most : (size_t)1 << 30;
}

static size_t largest_site(const op_bench *o)
{
    size_t most = 0;
    for (int d = 0; d < o->opt->n_dims; d++)
        for (int r = 0; r < o->opt->n_ranks; r++) {
            size_t bytes = site_bytes(o, &(point){.d = o->opt->dims[d], .rank = o->opt->rank[r]});
            most = bytes > most ? bytes : most;
        }
    return most;
}

static int fill_pool(op_bench *o, err *e)
{
    o->pool_bytes = pool_size(o);
    if (o->pool_bytes < largest_site(o))
        return err_set(e, "one adapter of the largest rank and dimensions is over %zu MiB", o->pool_bytes >> 20);
    if (!(o->pool = o->be->ops->alloc(o->be, o->pool_bytes, e)))
        return -1;
    random_upload(o->be, o->pool, o->pool_bytes, o->type, -6);
    return 0;
}

static void place_adapter(const op_bench *o, const point *p, setup *s, int a)
{
    lora *l = &s->adapter[a];
    size_t bytes = site_bytes(o, p), places = o->pool_bytes / bytes;
    dtype type = o->type;
    *l = (lora){.n_sites = s->n_pairs,
                .site = XNEW_ARRAY(lora_site, (size_t)s->n_pairs),
                .max_rank_sum = p->rank,
                .bytes = bytes * (size_t)s->n_pairs};
    for (int i = 0; i < s->n_pairs; i++) {
        char *at = o->pool + ((size_t)i * (size_t)p->n_adapters + (size_t)a) % places * bytes;
        char *b = at + padded((size_t)p->rank * (size_t)p->d.in * dtype_size(type));
        l->site[i].part[0] = (lora_part){
            .rank = p->rank, .scale = 1, .a = {at, type, p->rank, p->d.in}, .b = {b, type, p->rank, p->d.out}};
    }
}

static int make_tensor(op_bench *o, tensor *t, dtype type, int rows, int cols, err *e)
{
    *t = (tensor){.type = type, .rows = rows, .cols = cols};
    if (!(t->data = o->be->ops->alloc(o->be, tensor_bytes(t), e)))
        return -1;
    random_upload(o->be, t->data, tensor_bytes(t), type, -2);
    return 0;
}

static int by_adapter(const void *a, const void *b)
{
    return ((const bench_request *)a)->adapter - ((const bench_request *)b)->adapter;
}

/* Sorts the rows by adapter, one segment for each; every row is a decode at position 0. */
static void make_batch(const point *p, setup *s, bench_request *who)
{
    int n = p->n, n_segs = 0;
    qsort(who, (size_t)n, sizeof *who, by_adapter);
    s->of_seg = XNEW_ARRAY(const lora *, (size_t)n);
    s->indptr = XNEW_ARRAY(int, (size_t)n + 1);
    s->row = XNEW_ARRAY(int, (size_t)n + 1);
    for (int i = 0; i < n; i++) {
        s->row[i] = i;
        if (i == 0 || who[i].adapter != who[i - 1].adapter) {
            s->of_seg[n_segs] = &s->adapter[who[i].adapter];
            s->indptr[n_segs++] = i;
        }
    }
    s->indptr[n_segs] = s->row[n] = n;
    static const int zeros[MAX_OP_ROWS];
    s->b = (batch){.n_rows = n,
                   .token = zeros,
                   .position = zeros,
                   .n_decodes = n,
                   .prefill_indptr = zeros,
                   .page_indptr = s->row,
                   .page = s->row,
                   .segs = {n_segs, s->indptr, s->of_seg},
                   .n_out = n,
                   .out_row = s->row};
}

static int make_setup(op_bench *o, point *p, setup *s, err *e)
{
    bench_request *who = XNEW_ARRAY(bench_request, (size_t)p->n);
    p->n_adapters = workload_make(p->w, p->n, 1, 1, 2, 0, who);
    size_t each = site_bytes(o, p) * (size_t)p->n_adapters, pairs = ((size_t)512 << 20) / each;
    s->n_pairs = pairs < MIN_PAIRS ? MIN_PAIRS : pairs > MAX_PAIRS ? MAX_PAIRS : (int)pairs;
    s->adapter = XNEW_ARRAY(lora, (size_t)p->n_adapters);
    size_t table = o->be->ops->lora_table_bytes(o->be, s->n_pairs);
    s->tables = o->be->ops->alloc(o->be, table * (size_t)p->n_adapters, e);
    for (int a = 0; a < p->n_adapters && s->tables; a++) {
        place_adapter(o, p, s, a);
        o->be->ops->bind_lora(o->be, &s->adapter[a], s->tables + (size_t)a * table);
    }
    make_batch(p, s, who);
    free(who);
    s->w = (linear){.n = 1, .part = {{.w = {NULL, o->be->act, p->d.out, p->d.in}}}};
    extent x = {.max_rows = p->n,
                .max_out = p->n,
                .max_sequences = p->n,
                .max_pages = p->n,
                .page_len = KV_PAGE_LEN,
                .max_rank_sum = p->rank,
                .vocab = 1,
                .n_sites = s->n_pairs,
                .h = {1, 1, 64}};
    if (!s->tables || o->be->ops->reserve(o->be, &x, e) || make_tensor(o, &s->x, o->be->act, p->n, p->d.in, e) ||
        make_tensor(o, &s->y, o->be->act, p->n, p->d.out, e) || make_tensor(o, &s->v, DTYPE_F32, p->n, p->rank, e))
        return -1;
    return 0;
}

static void drop_setup(op_bench *o, const point *p, setup *s)
{
    backend *be = o->be;
    be->ops->forget(be, s);
    tensor *all[] = {&s->x, &s->y, &s->v};
    for (int i = 0; i < 3; i++)
        if (all[i]->data)
            be->ops->release(be, all[i]->data);
    if (s->tables)
        be->ops->release(be, s->tables);
    for (int a = 0; a < p->n_adapters; a++)
        free(s->adapter[a].site);
    free(s->adapter);
    free(s->of_seg);
    free(s->indptr);
    free(s->row);
}

static int run_pairs(op_bench *o, setup *s, err *e)
{
    backend *be = o->be;
    invocation v = be->ops->begin(be, &s->b, s);
    tensor x = s->x, y = s->y, low = s->v;
    for (int i = 0; i < s->n_pairs && !v.replayed; i++) {
        be->ops->sgmv_shrink(be, &low, &x, &s->b, i);
        be->ops->sgmv_expand(be, &y, &low, &s->b, i, &s->w);
    }
    be->ops->end(be);
    return be->ops->sync(be, e);
}

/* Seconds of one pair: the median over invocations; negative with e set on failure. */
static double time_point(op_bench *o, setup *s, err *e)
{
    double seconds[N_RUNS];
    for (int i = -3; i < N_RUNS; i++) {
        double start = clock_now();
        if (run_pairs(o, s, e))
            return -1;
        if (i >= 0)
            seconds[i] = (clock_now() - start) / s->n_pairs;
    }
    return median(seconds, N_RUNS);
}

static void print_point(const op_bench *o, const point *p, double seconds)
{
    double bytes = (double)site_bytes(o, p) * p->n_adapters;
    double flops = 2.0 * p->n * p->rank * (p->d.in + p->d.out);
    double io = bytes + (double)p->n * (p->d.in + 2.0 * p->d.out) * (double)dtype_size(o->be->act);
    printf("%6d %6d %5d %5d %-10s %5d %9.2f %9.2f %8.2f %9.1f\n", p->d.in, p->d.out, p->rank, p->n, workload_name(p->w),
           p->n_adapters, seconds * 1e6, bytes / o->bandwidth * 1e6, bytes / seconds * 1e-12, flops / seconds * 1e-9);
    fflush(stdout);
    if (o->csv)
        fprintf(o->csv, "%d,%d,%s,%d,%d,%s,%d,%.3f,%.3f,%.1f,%.4f\n", p->d.in, p->d.out, dtype_name(o->type), p->rank,
                p->n, workload_name(p->w), p->n_adapters, seconds * 1e6, bytes / o->bandwidth * 1e6,
                flops / seconds * 1e-9, flops / io);
}

static int run_point(op_bench *o, point *p, err *e)
{
    setup s = {0};
    int status = make_setup(o, p, &s, e);
    double seconds = status ? -1 : time_point(o, &s, e);
    if (seconds >= 0)
        print_point(o, p, seconds);
    drop_setup(o, p, &s);
    return seconds < 0 ? -1 : 0;
}

static int run_points(op_bench *o, err *e)
{
    const op_options *opt = o->opt;
    for (int d = 0; d < opt->n_dims; d++)
        for (int r = 0; r < opt->n_ranks; r++)
            for (int n = 0; n < opt->n_batches; n++)
                for (int w = WORKLOAD_IDENTICAL; w < N_WORKLOADS; w++) {
                    point p = {.d = opt->dims[d], .rank = opt->rank[r], .n = opt->batch[n], .w = (workload)w};
                    if (opt->run[w] && run_point(o, &p, e))
                        return -1;
                }
    return 0;
}

int op_run(const op_options *opt, err *e)
{
    op_bench o = {.opt = opt, .csv = opt->csv ? fopen(opt->csv, "w") : NULL};
    if (opt->csv && !o.csv)
        return err_set(e, "cannot write %s: %s", opt->csv, strerror(errno));
    if (o.csv)
        fprintf(o.csv, "in,out,dtype,rank,rows,workload,adapters,us,bytes_us,gflop_per_s,flop_per_byte\n");
    o.be = backend_open(opt->device, 1, opt->type, 0, e);
    if (o.be)
        o.type = backend_weight_type(o.be, opt->type);
    int status = o.be ? fill_pool(&o, e) : -1;
    if (status == 0) {
        o.bandwidth = o.be->ops->read_bandwidth(o.be);
        printf("punica " PUNICA_VERSION
               " bench op on %s, memory reads at %.2f TB/s\nshrink and expand of %s adapters, cold weights\n\n"
               "    in    out  rank  rows workload   adapt        us  bytes us     TB/s   GFLOP/s\n",
               o.be->name, o.bandwidth * 1e-12, dtype_name(o.type));
        status = run_points(&o, e);
    }
    if (o.pool)
        o.be->ops->release(o.be, o.pool);
    backend_close(o.be);
    if (o.csv && fclose(o.csv) != 0 && status == 0)
        status = err_set(e, "cannot write %s: %s", opt->csv, strerror(errno));
    return status;
}
