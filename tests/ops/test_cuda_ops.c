/* test_cuda_ops.c - every op of the CUDA backend against the CPU's, through the op table
 *
 * Both sides get the same random numbers, rounded to the GPU's type; the CPU computes in float32. What the
 * GPU writes is poisoned first, and so are the rows by which it rounds a batch up. Numbers are fresh on each
 * run: the seed is printed, and PUNICA_TEST_SEED sets it. PUNICA_TEST_QUICK runs a small selection, for the
 * sanitizers; PUNICA_TEST_ONLY names the tests to run ("test_lin*"). Without a GPU every test is skipped; with
 * PUNICA_TEST_GPU set that is a failure. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/group.h"
#include "base/fp8.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/test.h"

enum {
    SITES = 2,
    SITE = 1,
    PADDING = 40,
    MAX_ROWS = 640,
    MAX_SEQS = 256,
    MAX_PAGES = 260,
    PAGE_LEN = 16,
    RANK_SUM = 640,
    LONG_ROWS = 1600
}; /* of batches of prompts alone */

static backend *cpu, *gpu[2]; /* one for each 16-bit type */
static bool quick;
static bool kv_fp8;                                  /* the caches of the tests at hand are F8 */
static int page_len = PAGE_LEN, max_rows = MAX_ROWS; /* of the tests at hand */
static uint64_t seed, counter;

static double uniform(void) /* in [-1, 1) */
{
    return 2 * rng_uniform(seed, counter++) - 1;
}

static int below(int n)
{
    return (int)(rng_u64(seed, counter++) % (uint64_t)n);
}

static void check(int status, const err *e)
{
    if (status)
        fail_msg("%s", e->msg);
}

/* The same matrix on both sides. The GPU's has rows to spare. */
typedef struct { tensor cpu, gpu; } both;

static void *take(backend *be, size_t bytes)
{
    err e;
    void *p = be->ops->alloc(be, bytes, &e);
    if (!p)
        fail_msg("%s", e.msg);
    return p;
}

static void put(backend *be, void *to, const void *from, size_t bytes)
{
    err e;
    check(be->ops->sync(be, &e), &e); /* uploads do not wait for ops */
    be->ops->upload(be, to, from, bytes);
}

/* All of a GPU's tensor, spare rows too, becomes NaN. */
static void poison(backend *be, const tensor *t)
{
    size_t bytes = (size_t)(t->rows + PADDING) * (size_t)t->cols * dtype_size(t->type);
    void *ones = xmalloc(bytes);
    memset(ones, 0xff, bytes);
    put(be, t->data, ones, bytes);
    free(ones);
}

static void send(backend *be, const both *t)
{
    void *bits = xmalloc(tensor_bytes(&t->gpu));
    tensor_convert(bits, t->gpu.type, &t->cpu);
    put(be, t->gpu.data, bits, tensor_bytes(&t->gpu));
    free(bits);
}

static void fetch(backend *be, const both *t, float *out)
{
    tensor bits = t->gpu;
    bits.rows = t->cpu.rows;
    bits.data = xmalloc(tensor_bytes(&bits));
    be->ops->download(be, bits.data, t->gpu.data, tensor_bytes(&bits));
    tensor_convert(out, DTYPE_F32, &bits);
    free(bits.data);
}

/* Output: NaN on the GPU. */
static both blank(backend *be, dtype type, int rows, int cols)
{
    both t = {.cpu = {.type = DTYPE_F32, .rows = rows, .cols = cols},
              .gpu = {.type = type, .rows = rows, .cols = cols}};
    t.cpu.data = xcalloc((size_t)rows * (size_t)cols, sizeof(float));
    t.gpu.data = take(be, (size_t)(rows + PADDING) * (size_t)cols * dtype_size(type));
    poison(be, &t.gpu);
    return t;
}

/* Fresh numbers that the GPU's type can hold. */
static void refill(backend *be, both *t, double scale)
{
    tensor plain = t->cpu, bits = t->gpu;
    size_t n = (size_t)plain.rows * (size_t)plain.cols;
    for (size_t i = 0; i < n; i++)
        ((float *)plain.data)[i] = (float)(scale * uniform());
    bits.rows = plain.rows;
    bits.data = xmalloc(tensor_bytes(&bits));
    tensor_convert(bits.data, bits.type, &plain);
    tensor_convert(plain.data, DTYPE_F32, &bits);
    put(be, t->gpu.data, bits.data, tensor_bytes(&bits));
    free(bits.data);
}

static both randoms(backend *be, dtype type, int rows, int cols, double scale)
{
    both t = blank(be, type, rows, cols);
    refill(be, &t, scale);
    return t;
}

static void drop(backend *be, both *t)
{
    free(t->cpu.data);
    if (t->gpu.data)
        be->ops->release(be, t->gpu.data);
}

/* How far a result may be off, relative to its size: some roundings to the type. */
static double tolerance(const backend *be, double roundings)
{
    return roundings * (be->act == DTYPE_F16 ? 5e-4 : 4e-3);
}

/* Columns [from, to) of the CPU's rows; no number further off than 12 times what all are on average. */
static void compare_columns(backend *be, const char *what, const both *t, int from, int to, double tol)
{
    int cols = t->cpu.cols;
    size_t n = (size_t)t->cpu.rows * (size_t)cols, worst = 0;
    float *got = xmalloc(n * sizeof *got);
    const float *want = t->cpu.data;
    double off = 0, size = 0, most = -1;
    fetch(be, t, got);
    for (size_t i = 0; i < n; i++) {
        if ((int)(i % (size_t)cols) < from || (int)(i % (size_t)cols) >= to)
            continue;
        double d = fabs((double)got[i] - want[i]);
        off += d * d;
        size += (double)want[i] * want[i];
        if (!(d <= most)) {
            most = d;
            worst = i;
        }
    }
    double mean = sqrt(size / ((double)t->cpu.rows * (to - from)));
    if (!(sqrt(off) <= tol * sqrt(size) + 1e-30) || !(most <= 12 * tol * (fabs((double)want[worst]) + mean) + 1e-30))
        fail_msg("%s, %s [%d, %d]: off by %.3g of %.3g allowed; worst at [%zu, %zu]: %g, expected %g (seed %llu)", what,
                 dtype_name(be->act), t->cpu.rows, cols, sqrt(off / size), tol, worst / (size_t)cols,
                 worst % (size_t)cols, (double)got[worst], (double)want[worst], (unsigned long long)seed);
    free(got);
}

static void compare(backend *be, const char *what, const both *t, double tol)
{
    compare_columns(be, what, t, 0, t->cpu.cols, tol);
}

static tensor host_bits(dtype type, int rows, int cols, double scale)
{
    tensor t = {.type = type, .rows = rows, .cols = cols};
    tensor plain = {.type = DTYPE_F32, .rows = rows, .cols = cols};
    plain.data = xmalloc(tensor_bytes(&plain));
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++)
        ((float *)plain.data)[i] = (float)(scale * uniform());
    t.data = xmalloc(tensor_bytes(&t));
    tensor_convert(t.data, type, &plain);
    free(plain.data);
    return t;
}

/* Adapters, with parts left out here and there; site 0 of each is not adapted. */
enum { N_ADAPTERS = 10 };
static const int adapter_rank[N_ADAPTERS][3] = {
    {16, 16, 16}, {1, 0, 4}, {8, 12, 0},  {64, 16, 8}, {0, 128, 4},
    {0, 0, 0},    {4, 4, 4}, {33, 1, 17}, {16, 8, 64}, {300, 128, 200},
};

typedef struct { lora cpu, gpu; } both_lora;

static void place_part(backend *be, lora_part *part, const lora_part *host)
{
    *part = *host;
    if (host->rank == 0)
        return;
    part->a.data = take(be, tensor_bytes(&part->a));
    part->b.data = take(be, tensor_bytes(&part->b));
    put(be, part->a.data, host->a.data, tensor_bytes(&part->a));
    put(be, part->b.data, host->b.data, tensor_bytes(&part->b));
}

static both_lora random_lora(backend *be, int which, int in, const int *out, int n_parts)
{
    both_lora l = {{.n_sites = SITES, .site = XNEW_ARRAY(lora_site, SITES)},
                   {.n_sites = SITES, .site = XNEW_ARRAY(lora_site, SITES)}};
    for (int p = 0; p < n_parts; p++) {
        lora_part *part = &l.cpu.site[SITE].part[p];
        part->rank = adapter_rank[which][p];
        part->scale = (float)(1 + 0.5 * uniform());
        if (part->rank > 0) {
            part->a = host_bits(be->act, part->rank, in, 1 / sqrt(in));
            part->b = host_bits(be->act, part->rank, out[p], 1 / sqrt(part->rank));
        }
        place_part(be, &l.gpu.site[SITE].part[p], part);
    }
    be->ops->bind_lora(be, &l.gpu, take(be, be->ops->lora_table_bytes(be, SITES)));
    return l;
}

static void drop_lora(backend *be, both_lora *l)
{
    for (int p = 0; p < 3; p++) {
        lora_part *host = &l->cpu.site[SITE].part[p], *part = &l->gpu.site[SITE].part[p];
        if (host->rank > 0) {
            free(host->a.data);
            free(host->b.data);
            be->ops->release(be, part->a.data);
            be->ops->release(be, part->b.data);
        }
    }
    be->ops->release(be, l->gpu.table);
    free(l->cpu.site);
    free(l->gpu.site);
}

/* A batch with its arrays; the same for both sides but for the adapters. */
typedef struct {
    batch cpu, gpu;
    int token[LONG_ROWS], position[LONG_ROWS], out_row[MAX_ROWS];
    int prefill_indptr[MAX_SEQS + 1], page_indptr[MAX_SEQS + 1], page[MAX_PAGES];
    int seg_indptr[MAX_ROWS + 2];
    const lora *seg_cpu[MAX_ROWS + 1], *seg_gpu[MAX_ROWS + 1];
} both_batch;

/* Runs of rows that share an adapter: none, single ones, long ones and some of more than a tile of any kind. */
static void random_segments(both_batch *b, const both_lora *loras)
{
    int n = 0;
    for (int row = 0; row < b->cpu.n_rows;) {
        int len = below(20) == 0 ? below(200) : below(3) == 0 ? below(40) : below(3), who = below(N_ADAPTERS + 2);
        len = len < b->cpu.n_rows - row ? len : b->cpu.n_rows - row;
        if (n >= MAX_ROWS)
            len = b->cpu.n_rows - row;
        b->seg_cpu[n] = loras && who < N_ADAPTERS ? &loras[who].cpu : NULL;
        b->seg_gpu[n] = loras && who < N_ADAPTERS ? &loras[who].gpu : NULL;
        row += len;
        b->seg_indptr[++n] = row;
    }
    b->cpu.segs = (segments){n, b->seg_indptr, b->seg_cpu};
    b->gpu.segs = (segments){n, b->seg_indptr, b->seg_gpu};
}

/* Gives the first segment that has rows this adapter. */
static void give_first_rows(both_batch *b, const both_lora *l)
{
    int i = 0;
    while (b->seg_indptr[i + 1] == 0)
        i++;
    b->seg_cpu[i] = &l->cpu;
    b->seg_gpu[i] = &l->gpu;
}

/* Sequences of n_rows[i] rows (those of more than one first) after n_before[i] positions; pages in no order. */
static void make_batch(both_batch *b, int n_seqs, const int *n_rows, const int *n_before, int vocab)
{
    static int free_page[MAX_PAGES];
    int rows = 0, pages = 0, n_prefills = 0;
    for (int i = 0; i < MAX_PAGES; i++) {
        int j = below(i + 1);
        free_page[i] = free_page[j];
        free_page[j] = i;
    }
    for (int i = 0; i < n_seqs; i++) {
        for (int r = 0; r < n_rows[i]; r++, rows++) {
            b->token[rows] = below(vocab);
            b->position[rows] = n_before[i] + r;
        }
        n_prefills += n_rows[i] > 1;
        if (n_rows[i] > 1)
            b->prefill_indptr[n_prefills] = rows;
        for (int p = 0; p * page_len < n_before[i] + n_rows[i]; p++, pages++)
            b->page[pages] = free_page[pages];
        b->page_indptr[i + 1] = pages;
        b->out_row[i] = rows - 1;
    }
    assert_true(rows <= max_rows && pages <= MAX_PAGES && n_seqs <= MAX_SEQS);
    b->cpu = (batch){
        .n_rows = rows,
        .token = b->token,
        .position = b->position,
        .n_prefills = n_prefills,
        .n_decodes = n_seqs - n_prefills,
        .prefill_indptr = b->prefill_indptr,
        .page_indptr = b->page_indptr,
        .page = b->page,
        .n_out = n_seqs,
        .out_row = b->out_row,
    };
    b->gpu = b->cpu;
}

static void make_decodes(both_batch *b, int n, int max_before, int vocab)
{
    int rows[MAX_SEQS], before[MAX_SEQS];
    for (int i = 0; i < n; i++) {
        rows[i] = 1;
        before[i] = below(4) == 0 ? below(3) : below(max_before);
    }
    make_batch(b, n, rows, before, vocab);
}

/* Two prefills, one of which goes on after a first chunk, and some decodes. */
static void make_mixed(both_batch *b, int n_prefill, int n_decodes, int max_before, int vocab)
{
    int rows[MAX_SEQS] = {n_prefill, 17}, before[MAX_SEQS] = {0, 5 + below(max_before)};
    for (int i = 2; i < n_decodes + 2; i++) {
        rows[i] = 1;
        before[i] = below(max_before);
    }
    make_batch(b, n_decodes + 2, rows, before, vocab);
}

static void reserve(backend *be, heads h, int vocab)
{
    err e;
    extent x = {
        .max_rows = max_rows,
        .max_out = MAX_ROWS,
        .max_sequences = MAX_SEQS,
        .max_pages = MAX_PAGES,
        .page_len = page_len,
        .max_rank_sum = RANK_SUM,
        .vocab = vocab,
        .n_sites = SITES,
        .kv_fp8 = kv_fp8,
        .h = h,
    };
    check(be->ops->reserve(be, &x, &e), &e);
    check(cpu->ops->reserve(cpu, &x, &e), &e);
}

static void settle(backend *be)
{
    err e;
    check(be->ops->sync(be, &e), &e);
}

/* Each test body runs for both types, or is skipped. */
static void on_each_type(void (*body)(backend *))
{
    for (int i = 0; i < 2; i++) {
        if (!gpu[i])
            skip();
        body(gpu[i]);
    }
}

static void norms_on(backend *be)
{
    static const int sizes[] = {60, 72, 136, 256, 4096, 11008, 20000, 1};
    for (size_t s = 0; s < (quick ? 4 : sizeof sizes / sizeof sizes[0]); s++) {
        int n = sizes[s], rows = 1 + below(70);
        both x = randoms(be, DTYPE_F32, rows, n, 3), w = randoms(be, DTYPE_F32, 1, n, 1),
             y = blank(be, be->act, rows, n);
        both delta = randoms(be, be->act, rows, n, 2);
        cpu->ops->rms_norm(cpu, &y.cpu, &x.cpu, &w.cpu, 1e-5f);
        be->ops->rms_norm(be, &y.gpu, &x.gpu, &w.gpu, 1e-5f);
        compare(be, "rms_norm", &y, tolerance(be, 1));
        poison(be, &y.gpu);
        cpu->ops->add_rms_norm(cpu, &y.cpu, &x.cpu, &delta.cpu, &w.cpu, 1e-5f);
        be->ops->add_rms_norm(be, &y.gpu, &x.gpu, &delta.gpu, &w.gpu, 1e-5f);
        compare(be, "add_rms_norm, sum", &x, 1e-7);
        compare(be, "add_rms_norm", &y, tolerance(be, 1));
        both *all[] = {&x, &w, &y, &delta};
        for (int i = 0; i < 4; i++)
            drop(be, all[i]);
    }
}

static void silu_on(backend *be)
{
    static const int sizes[] = {100, 136, 7, 11008, 1};
    for (size_t s = 0; s < (quick ? 3 : sizeof sizes / sizeof sizes[0]); s++) {
        int n = sizes[s], rows = 1 + below(70);
        both x = randoms(be, be->act, rows, 2 * n, s % 2 ? 100 : 5), y = blank(be, be->act, rows, n);
        cpu->ops->silu_mul(cpu, &y.cpu, &x.cpu);
        be->ops->silu_mul(be, &y.gpu, &x.gpu);
        compare(be, "silu_mul", &y, tolerance(be, 1));
        drop(be, &x);
        drop(be, &y);
    }
}

/* Tokens from the batch, from the last sample, and rows picked out. */
static void embed_on(backend *be)
{
    static const int sizes[] = {60, 72, 4096};
    static both_batch b;
    for (int s = 0; s < (quick ? 2 : 3); s++) {
        int hidden = sizes[s], vocab = 300;
        reserve(be, (heads){1, 1, 16}, vocab);
        tensor host = host_bits(be->act, vocab, hidden, 1), table = host;
        err e;
        check(be->ops->adopt(be, &table, &e), &e);
        both logits = randoms(be, DTYPE_F32, 5, vocab, 4);
        sample_spec greedy[5];
        for (int i = 0; i < 5; i++)
            greedy[i] = (sample_spec){.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1};
        be->ops->sample(be, &logits.gpu, greedy, 5);
        const sample_result *drawn = be->ops->collect(be, &e);
        assert_non_null(drawn);
        make_mixed(&b, 30, 11, 60, vocab);
        random_segments(&b, NULL);
        int token[MAX_ROWS];
        memcpy(token, b.token, sizeof token);
        for (int r = 3; r < b.cpu.n_rows; r += 7) {
            token[r] = drawn[r % 5].token;
            b.token[r] = TOKEN_DRAWN(r % 5);
        }
        both x = blank(be, DTYPE_F32, b.cpu.n_rows, hidden), y = blank(be, be->act, b.cpu.n_out, hidden);
        both picked = randoms(be, be->act, b.cpu.n_rows, hidden, 1);
        be->ops->begin(be, &b.gpu, &b);
        be->ops->embed(be, &x.gpu, &table, 0, &b.gpu);
        be->ops->gather(be, &y.gpu, &picked.gpu, &b.gpu);
        be->ops->end(be);
        b.cpu.token = token;
        cpu->ops->embed(cpu, &x.cpu, &host, 0, &b.cpu);
        cpu->ops->gather(cpu, &y.cpu, &picked.cpu, &b.cpu);
        compare(be, "embed", &x, 0);
        compare(be, "gather", &y, 0);
        both *all[] = {&logits, &x, &y, &picked};
        for (int i = 0; i < 4; i++)
            drop(be, all[i]);
        free(host.data);
    }
}

/* A linear on both sides; the GPU keeps its copy until it is freed. */
typedef struct { linear cpu, gpu; } both_linear;

/* How weights are stored; MIXED: some parts in one way, some in another. */
typedef enum { STORED_ACT, STORED_F8_ROWS, STORED_F8_BLOCKS, STORED_MIXED, N_STORED } stored_as;

/* F8 numbers of all magnitudes and, by their scales, about as large as other weights. */
static void random_f8(proj *p, int out, int in, bool blocks)
{
    p->w = (tensor){.type = DTYPE_F8, .rows = out, .cols = in, .data = xmalloc((size_t)out * (size_t)in)};
    for (size_t i = 0; i < (size_t)out * (size_t)in; i++)
        ((uint8_t *)p->w.data)[i] = (uint8_t)(below(2) << 7 | below(127));
    p->scale = host_bits(DTYPE_F32, blocks ? (in + SCALE_BLOCK - 1) / SCALE_BLOCK : 1, out, 0.02 / sqrt(in));
}

static both_linear random_linear(backend *be, int n_parts, const int *out, int in, bool bias, stored_as stored)
{
    err e;
    both_linear w = {.cpu = {.n = n_parts}};
    for (int i = 0; i < n_parts; i++) {
        stored_as how = stored == STORED_MIXED ? (stored_as)(i % 3) : stored;
        if (how == STORED_ACT)
            w.cpu.part[i].w = host_bits(be->act, out[i], in, 1.7 / sqrt(in));
        else
            random_f8(&w.cpu.part[i], out[i], in, how == STORED_F8_BLOCKS);
        if (bias && i != 1)
            w.cpu.part[i].bias = host_bits(DTYPE_F32, 1, out[i], 1);
    }
    w.gpu = w.cpu;
    check(be->ops->adopt_linear(be, &w.gpu, &e), &e);
    return w;
}

static void drop_linear(both_linear *w)
{
    for (int i = 0; i < w->cpu.n; i++) {
        free(w->cpu.part[i].w.data);
        free(w->cpu.part[i].scale.data);
        free(w->cpu.part[i].bias.data);
    }
}

static int linear_cols(const linear *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->part[i].w.rows;
    return n;
}

static void linears_on(backend *be)
{
    static const struct {
        int in, n_parts, out[3], rows[6];
        bool f32;
    } shapes[] = {
        {60, 3, {60, 20, 20}, {1, 7, 33, 200}, false},
        {72, 2, {136, 136}, {2, 16, 64, 129}, false},
        {100, 1, {60}, {1, 5, 31, 90}, false},
        {136, 1, {72}, {3, 8, 65, 256}, false},
        {72, 1, {293}, {1, 12, 50, 70}, true},
        {256, 3, {256, 128, 128}, {1, 128, 9, 48, 256}, false},
        {896, 2, {4864, 4864}, {100, 24, 64, 130, 1, 128}, false},
        {4096, 3, {4096, 1024, 1024}, {1, 13, 33, 100, 64, 127}, false},
        {11008, 1, {4096}, {4, 32, 63, 150, 65, 128}, false},
        {4096, 1, {32000}, {1, 6, 32, 64, 96}, true},
        {1, 1, {1}, {1, 2, 3, 4}, false},
        {4096, 2, {11008, 11008}, {1, 8, 40, 64, 72, 128}, false},
    };
    int n_shapes = quick ? 6 : (int)(sizeof shapes / sizeof shapes[0]);
    for (int c = 0; c < n_shapes * N_STORED; c++) {
        int s = c / N_STORED;
        both_linear w =
            random_linear(be, shapes[s].n_parts, shapes[s].out, shapes[s].in, s % 2 == 0, (stored_as)(c % N_STORED));
        for (int i = 0; i < (quick ? 2 : 6) && shapes[s].rows[i] > 0; i++) {
            int rows = shapes[s].rows[i];
            both x = randoms(be, be->act, rows, shapes[s].in, 1);
            both y = blank(be, shapes[s].f32 ? DTYPE_F32 : be->act, rows, linear_cols(&w.cpu));
            cpu->ops->linear(cpu, &y.cpu, &x.cpu, &w.cpu);
            be->ops->linear(be, &y.gpu, &x.gpu, &w.gpu);
            char what[80];
            snprintf(what, sizeof what, "linear, %d in, %d rows, weights stored as %d", shapes[s].in, rows,
                     c % N_STORED);
            compare(be, what, &y, shapes[s].f32 ? 2e-5 : tolerance(be, 1));
            drop(be, &x);
            drop(be, &y);
        }
        drop_linear(&w);
    }
}

static void sgmv_on(backend *be)
{
    static const struct {
        int in, n_parts, out[3];
    } shapes[] = {
        {60, 3, {60, 20, 20}},     {72, 2, {136, 136}},       {136, 1, {72}},
        {67, 3, {64, 19, 1}},      {256, 3, {256, 128, 128}}, {4096, 3, {4096, 1024, 1024}},
        {4096, 2, {11008, 11008}}, {11008, 1, {4096}},
    };
    static both_batch b;
    for (size_t s = 0; s < (quick ? 4 : sizeof shapes / sizeof shapes[0]); s++) {
        both_lora l[N_ADAPTERS];
        linear w = {.n = shapes[s].n_parts};
        for (int i = 0; i < N_ADAPTERS; i++)
            l[i] = random_lora(be, i, shapes[s].in, shapes[s].out, shapes[s].n_parts);
        for (int i = 0; i < w.n; i++)
            w.part[i].w = (tensor){.rows = shapes[s].out[i], .cols = shapes[s].in, .type = be->act};
        reserve(be, (heads){1, 1, 16}, 300);
        for (int i = 0; i < (quick ? 2 : 4); i++) {
            int prefill = i == 0 ? 2 : i == 1 ? 540 : 20 + below(120);
            make_mixed(&b, prefill, below(60), 25, 300);
            random_segments(&b, l);
            both x = randoms(be, be->act, b.cpu.n_rows, shapes[s].in, 1),
                 y = randoms(be, be->act, b.cpu.n_rows, linear_cols(&w), 1);
            both v = blank(be, DTYPE_F32, b.cpu.n_rows, RANK_SUM);
            be->ops->begin(be, &b.gpu, &b);
            for (int site = 0; site < SITES; site++) {
                be->ops->sgmv_shrink(be, &v.gpu, &x.gpu, &b.gpu, site);
                be->ops->sgmv_expand(be, &y.gpu, &v.gpu, &b.gpu, site, &w);
            }
            be->ops->end(be);
            cpu->ops->sgmv_shrink(cpu, &v.cpu, &x.cpu, &b.cpu, SITE);
            cpu->ops->sgmv_expand(cpu, &y.cpu, &v.cpu, &b.cpu, SITE, &w);
            compare(be, "sgmv", &y, tolerance(be, 2));
            drop(be, &x);
            drop(be, &y);
            drop(be, &v);
        }
        for (int i = 0; i < N_ADAPTERS; i++)
            drop_lora(be, &l[i]);
    }
}

/* A cache with the same random history on both sides. As a matrix: a row is one position of one head. Of an F8 one
 * there is no such matrix. */
typedef struct {
    both rows;
    kv_cache cpu, gpu;
} both_cache;

enum { LAYERS = 2, LAYER = 1 };

static size_t cache_bytes(const kv_cache *kv)
{
    return (size_t)kv->n_pages * kv_page_bytes(kv);
}

/* Any numbers but NaN, under scales near 1 / 448. */
static both_cache random_fp8_cache(backend *be, heads h)
{
    both_cache c = {.cpu = {NULL, DTYPE_F8, MAX_PAGES, LAYERS, h.n_kv_heads, page_len, h.head_dim}};
    size_t bytes = cache_bytes(&c.cpu), block = kv_block_bytes(&c.cpu), numbers = kv_numbers_bytes(&c.cpu);
    uint8_t *data = xmalloc(bytes);
    for (size_t at = 0; at < bytes; at += block) {
        for (size_t i = 0; i < numbers; i++)
            data[at + i] = (uint8_t)(below(127) | below(2) << 7);
        for (int i = 0; i < page_len; i++)
            ((float *)(data + at + numbers))[i] = (float)((1 + 0.5 * uniform()) / 448);
    }
    c.gpu = c.cpu;
    c.cpu.data = data;
    c.gpu.data = take(be, bytes);
    put(be, c.gpu.data, data, bytes);
    return c;
}

static both_cache random_cache(backend *be, heads h)
{
    both_cache c;
    if (kv_fp8)
        return random_fp8_cache(be, h);
    c.rows = randoms(be, be->act, MAX_PAGES * LAYERS * 2 * h.n_kv_heads * page_len, h.head_dim, 1);
    c.cpu = (kv_cache){c.rows.cpu.data, DTYPE_F32, MAX_PAGES, LAYERS, h.n_kv_heads, page_len, h.head_dim};
    c.gpu = (kv_cache){c.rows.gpu.data, be->act, MAX_PAGES, LAYERS, h.n_kv_heads, page_len, h.head_dim};
    return c;
}

static void drop_cache(backend *be, both_cache *c)
{
    if (!kv_fp8) {
        drop(be, &c->rows);
        return;
    }
    free(c->cpu.data);
    be->ops->release(be, c->gpu.data);
}

/* Of F8 caches the numbers, scales counted, must agree but where rounding went the other way; the CPU's then becomes
 * the GPU's. */
static void compare_cache(backend *be, const char *what, both_cache *c, double tol)
{
    if (!kv_fp8) {
        compare(be, what, &c->rows, tol);
        return;
    }
    size_t bytes = cache_bytes(&c->cpu), block = kv_block_bytes(&c->cpu), numbers = kv_numbers_bytes(&c->cpu);
    uint8_t *got = xmalloc(bytes), *want = c->cpu.data;
    double off = 0, size = 0;
    be->ops->download(be, got, c->gpu.data, bytes);
    for (size_t at = 0; at < bytes; at += block)
        for (size_t i = 0; i < numbers; i++) {
            size_t row = i / (size_t)c->cpu.head_dim;
            double a = (double)e4m3_to_float(got[at + i]) * ((float *)(got + at + numbers))[row];
            double b = (double)e4m3_to_float(want[at + i]) * ((float *)(want + at + numbers))[row];
            off += (a - b) * (a - b);
            size += b * b;
            if (!(fabs(a - b) <= 0.13 * fabs(b) + 0.01))
                fail_msg("%s: number %zu of a block at %zu is %g, expected %g (seed %llu)", what, i, at, a, b,
                         (unsigned long long)seed);
        }
    if (!(sqrt(off) <= (tol + 0.02) * sqrt(size)))
        fail_msg("%s: off by %.3g (seed %llu)", what, sqrt(off / size), (unsigned long long)seed);
    memcpy(want, got, bytes);
    free(got);
}

static float *inverse_frequencies(int head_dim)
{
    float *f = XNEW_ARRAY(float, (size_t)(head_dim / 2));
    for (int i = 0; i < head_dim / 2; i++)
        f[i] = powf(10000, -2.0f * (float)i / (float)head_dim);
    return f;
}

static const heads shapes_of_heads[] = {
    {5, 5, 12}, {4, 2, 16}, {8, 2, 32}, {14, 2, 64}, {32, 8, 128}, {8, 8, 128}, {4, 1, 256}, {3, 3, 64}, {2, 1, 10},
};
enum { N_HEADS = sizeof shapes_of_heads / sizeof shapes_of_heads[0] };

/* head_norm, rope_append and attention, of decodes only and with prefills, each after its parts. */
static void attention_case(backend *be, heads h, both_batch *b, int window, bool norm)
{
    int q = h.n_heads * h.head_dim, cols = q + 2 * h.n_kv_heads * h.head_dim;
    both_cache c = random_cache(be, h);
    both qkv = randoms(be, be->act, b->cpu.n_rows, cols, 2), y = blank(be, be->act, b->cpu.n_rows, q);
    both q_w = randoms(be, DTYPE_F32, 1, h.head_dim, 1), k_w = randoms(be, DTYPE_F32, 1, h.head_dim, 1);
    float *freq = inverse_frequencies(h.head_dim), *there = take(be, (size_t)h.head_dim * 2);
    put(be, there, freq, (size_t)h.head_dim * 2);

    invocation in = be->ops->begin(be, &b->gpu, &c);
    qkv.gpu.rows = y.gpu.rows = in.n_rows;
    if (norm) {
        be->ops->head_norm(be, &qkv.gpu, h, &q_w.gpu, &k_w.gpu, 1e-6f);
        cpu->ops->head_norm(cpu, &qkv.cpu, h, &q_w.cpu, &k_w.cpu, 1e-6f);
    }
    be->ops->rope_append(be, &qkv.gpu, h, there, &b->gpu, &c.gpu, LAYER);
    be->ops->attention(be, &y.gpu, &qkv.gpu, h, &b->gpu, &c.gpu, LAYER, window);
    be->ops->end(be);
    cpu->ops->rope_append(cpu, &qkv.cpu, h, freq, &b->cpu, &c.cpu, LAYER);
    compare_cache(be, "rope_append, cache", &c, tolerance(be, 1));
    cpu->ops->attention(cpu, &y.cpu, &qkv.cpu, h, &b->cpu, &c.cpu, LAYER, window);
    settle(be);
    qkv.gpu.rows = y.gpu.rows = b->cpu.n_rows;
    compare_columns(be, "rope_append, queries", &qkv, 0, q, tolerance(be, norm ? 2 : 1));
    compare(be, "attention", &y, tolerance(be, 3));
    be->ops->forget(be, &c);
    be->ops->release(be, there);
    free(freq);
    both *all[] = {&qkv, &y, &q_w, &k_w};
    for (int i = 0; i < 4; i++)
        drop(be, all[i]);
    drop_cache(be, &c);
}

/* One long sequence, whose keys are divided among the blocks of a cluster; the second time on what the first left
 * behind. */
static void long_decodes(backend *be, heads h)
{
    static both_batch b;
    for (int k = 0; k < 4; k++) {
        int rows = 1, before = 1600 + below(1500);
        make_batch(&b, 1, &rows, &before, 300);
        random_segments(&b, NULL);
        attention_case(be, h, &b, k < 2 ? 0 : 1500, false);
    }
}

/* More work items than clusters of blocks, of all lengths: most have several to do. */
static void many_decodes(backend *be, heads h)
{
    static both_batch b;
    reserve(be, h, 300);
    make_decodes(&b, 40, 64, 300);
    random_segments(&b, NULL);
    attention_case(be, h, &b, 0, false);
}

/* Whatever no sequence has reached becomes NaN on the GPU: the ends of last pages, and pages that are nobody's. */
static void poison_unused(backend *be, const both_cache *c, const batch *b)
{
    int used[MAX_PAGES] = {0}, n_seqs = b->n_prefills + b->n_decodes, first_decode = b->prefill_indptr[b->n_prefills];
    for (int i = 0; i < n_seqs; i++) {
        int last = i < b->n_prefills ? b->prefill_indptr[i + 1] - 1 : first_decode + i - b->n_prefills;
        for (int p = b->page_indptr[i], left = b->position[last] + 1; p < b->page_indptr[i + 1]; p++, left -= page_len)
            used[b->page[p]] = left < page_len ? left : page_len;
    }
    size_t row = (size_t)c->gpu.head_dim * dtype_size(c->gpu.type), block = (size_t)page_len * row;
    size_t blocks = kv_page_bytes(&c->gpu) / block, n = (size_t)MAX_PAGES * blocks;
    char *bits = xmalloc(n * block);
    tensor_convert(bits, c->gpu.type, &c->rows.cpu);
    for (size_t i = 0; i < n; i++) {
        size_t keep = (size_t)used[i / blocks] * row;
        memset(bits + i * block + keep, 0xff, block - keep);
    }
    put(be, c->gpu.data, bits, n * block);
    free(bits);
}

/* rope_append, then attention twice, over a cache whose unused rows are poisoned. */
static void prefill_case(backend *be, heads h, both_batch *b, int window)
{
    int q = h.n_heads * h.head_dim, cols = q + 2 * h.n_kv_heads * h.head_dim;
    both_cache c = random_cache(be, h);
    both qkv = randoms(be, be->act, b->cpu.n_rows, cols, 2), y = blank(be, be->act, b->cpu.n_rows, q);
    float *freq = inverse_frequencies(h.head_dim), *there = take(be, (size_t)h.head_dim * 2);
    char what[160];
    snprintf(what, sizeof what,
             "attention of prompts: %d/%d heads of %d, pages of %d, window %d, %d prompts (first: %d rows from %d)",
             h.n_heads, h.n_kv_heads, h.head_dim, page_len, window, b->cpu.n_prefills, b->prefill_indptr[1],
             b->position[0]);
    put(be, there, freq, (size_t)h.head_dim * 2);
    poison_unused(be, &c, &b->cpu);
    cpu->ops->rope_append(cpu, &qkv.cpu, h, freq, &b->cpu, &c.cpu, LAYER);
    cpu->ops->attention(cpu, &y.cpu, &qkv.cpu, h, &b->cpu, &c.cpu, LAYER, window);
    be->ops->begin(be, &b->gpu, &c);
    be->ops->rope_append(be, &qkv.gpu, h, there, &b->gpu, &c.gpu, LAYER);
    for (int k = 0; k < 2; k++) { /* what the first left behind does not disturb the second */
        poison(be, &y.gpu);
        be->ops->attention(be, &y.gpu, &qkv.gpu, h, &b->gpu, &c.gpu, LAYER, window);
        settle(be);
        compare(be, what, &y, tolerance(be, 3));
    }
    be->ops->end(be);
    be->ops->forget(be, &c);
    be->ops->release(be, there);
    free(freq);
    drop(be, &qkv);
    drop(be, &y);
    drop_cache(be, &c);
}

/* Prompts around the sizes of tiles of rows and keys, alone and together, from the beginning or after cached positions,
 * and decodes beside them. All have more rows than are taken as decodes. */
static void prefills_on(backend *be)
{
    static const struct {
        int n, rows[7], before[7];
    } lists[] = {
        {5, {5, 200, 129, 2, 300}, {1000, 0, 640, 15, 16}},
        {2, {63, 64}, {0, 5}},
        {1, {127}, {0}},
        {1, {128}, {0}},
        {1, {129}, {0}},
        {1, {193}, {128}},
        {1, {1000}, {0}},
        {1, {1300}, {77}},
        {1, {512}, {2048}},
        {5, {64, 191, 16, 1, 1}, {64, 1, 112, 300, 17}},
    };
    static const heads shapes[] = {{4, 4, 128}, {14, 2, 64},  {8, 2, 128}, {3, 3, 64},
                                   {7, 1, 128}, {16, 2, 128}, {4, 1, 256}};
    static const int windows[] = {0, 100, 0, 1, 0, 1000}, pages[] = {16, 32, 48};
    enum { N_LISTS = sizeof lists / sizeof lists[0], N_SHAPES = sizeof shapes / sizeof shapes[0] };
    static both_batch b;
    max_rows = LONG_ROWS;
    for (int i = 0, n = 0; i < (quick ? 2 : N_LISTS); i++)
        for (int k = 0; k < (quick ? 2 : 4); k++, n++) {
            heads h = shapes[n % N_SHAPES];
            page_len = pages[below(3)];
            reserve(be, h, 300);
            make_batch(&b, lists[i].n, lists[i].rows, lists[i].before, 300);
            random_segments(&b, NULL);
            prefill_case(be, h, &b, windows[below(6)]);
        }
    max_rows = MAX_ROWS;
    page_len = PAGE_LEN;
}

static void attention_on(backend *be)
{
    static const int windows[] = {0, 0, 7, 100, 1};
    static both_batch b;
    for (int i = 0; i < (quick ? 4 : N_HEADS); i++) {
        heads h = shapes_of_heads[i];
        reserve(be, h, 300);
        for (int k = 0; k < (quick ? 2 : 5); k++) {
            if (k % 2 == 0)
                make_mixed(&b, 2 + below(150), below(8), 300, 300);
            else if (k == 1)
                make_decodes(&b, 1 + below(4), 700, 300);
            else
                make_decodes(&b, 1 + below(40), 60, 300);
            random_segments(&b, NULL);
            attention_case(be, h, &b, windows[(i + k) % 5], k == 2);
        }
        if (!quick && h.head_dim >= 64)
            long_decodes(be, h);
    }
    many_decodes(be, (heads){16, 16, 64});
    if (!quick)
        many_decodes(be, (heads){16, 16, 128});
}

/* One layer's linears with what follows each, as the model runs them. */
typedef struct {
    backend *be;
    heads h;
    int hidden, ffn;
    bool norm;
    both_linear w[3]; /* qkv, o, gate and up */
    both_lora lora[3][N_ADAPTERS];
    both x, residual, qkv, delta, y, gate_up, act, v;
    both q_w, k_w, norm_w;
    both_cache cache;
    float *freq, *freq_there;
} chain;

static void chain_init(chain *c, backend *be, heads h, int hidden, int ffn, bool norm, stored_as stored)
{
    int q = h.n_heads * h.head_dim, kv = h.n_kv_heads * h.head_dim, rows = MAX_ROWS;
    int out[3][3] = {{q, kv, kv}, {hidden}, {ffn, ffn}}, n_parts[3] = {3, 1, 2};
    *c = (chain){.be = be, .h = h, .hidden = hidden, .ffn = ffn, .norm = norm};
    for (int i = 0; i < 3; i++) {
        c->w[i] = random_linear(be, n_parts[i], out[i], hidden, i == 0, stored);
        for (int j = 0; j < N_ADAPTERS; j++)
            c->lora[i][j] = random_lora(be, j, hidden, out[i], n_parts[i]);
    }
    c->x = blank(be, be->act, rows, hidden);
    c->residual = blank(be, DTYPE_F32, rows, hidden);
    c->qkv = blank(be, be->act, rows, q + 2 * kv);
    c->delta = blank(be, be->act, rows, hidden);
    c->y = blank(be, be->act, rows, hidden);
    c->gate_up = blank(be, be->act, rows, 2 * ffn);
    c->act = blank(be, be->act, rows, ffn);
    c->v = blank(be, DTYPE_F32, rows, RANK_SUM);
    c->q_w = randoms(be, DTYPE_F32, 1, h.head_dim, 1);
    c->k_w = randoms(be, DTYPE_F32, 1, h.head_dim, 1);
    c->norm_w = randoms(be, DTYPE_F32, 1, hidden, 1);
    c->cache = random_cache(be, h);
    c->freq = inverse_frequencies(h.head_dim);
    c->freq_there = take(be, (size_t)h.head_dim * 2);
    put(be, c->freq_there, c->freq, (size_t)h.head_dim * 2);
    reserve(be, h, 300);
}

static void chain_deinit(chain *c)
{
    both *all[] = {&c->x,   &c->residual, &c->qkv, &c->delta, &c->y,     &c->gate_up,
                   &c->act, &c->v,        &c->q_w, &c->k_w,   &c->norm_w};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        drop(c->be, all[i]);
    for (int i = 0; i < 3; i++) {
        drop_linear(&c->w[i]);
        for (int j = 0; j < N_ADAPTERS; j++)
            drop_lora(c->be, &c->lora[i][j]);
    }
    drop_cache(c->be, &c->cache);
    free(c->freq);
    c->be->ops->release(c->be, c->freq_there);
}

static void chain_set_rows(chain *c, int n_cpu, int n_gpu)
{
    both *all[] = {&c->x, &c->residual, &c->qkv, &c->delta, &c->y, &c->gate_up, &c->act, &c->v};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        all[i]->cpu.rows = n_cpu;
        all[i]->gpu.rows = n_gpu;
    }
}

/* Linear `i` of the chain, its shrink, and the fused op after it, on one side. */
static void chain_run(chain *c, int i, backend *be, const batch *b)
{
    bool here = be == cpu;
#define SIDE(t) (here ? &c->t.cpu : &c->t.gpu)
    tensor *y = i == 0 ? SIDE(qkv) : i == 1 ? SIDE(delta) : SIDE(gate_up);
    adapted a = {SIDE(w[i]), SITE, SIDE(v)};
    head_norms norms = {.eps = 1e-6f};
    if (c->norm) {
        norms.q_w = *SIDE(q_w);
        norms.k_w = *SIDE(k_w);
    }
    be->ops->linear_shrink(be, y, SIDE(x), &a, b);
    if (i == 0)
        be->ops->expand_rope_append(be, y, c->h, &norms, here ? c->freq : c->freq_there, &a, b, SIDE(cache), LAYER);
    else if (i == 1)
        be->ops->expand_add_rms_norm(be, y, SIDE(y), SIDE(residual), SIDE(norm_w), 1e-5f, &a, b);
    else
        be->ops->expand_silu_mul(be, y, SIDE(act), &a, b);
#undef SIDE
}

static void chain_compare(chain *c, int i, const char *how)
{
    char what[80];
    snprintf(what, sizeof what, "linear %d%s, %s", i, c->norm ? " with head norms" : "", how);
    if (i == 0) {
        compare_columns(c->be, what, &c->qkv, 0, c->h.n_heads * c->h.head_dim, tolerance(c->be, 3));
        compare_cache(c->be, what, &c->cache, tolerance(c->be, 3));
    } else if (i == 1) {
        compare(c->be, what, &c->residual, tolerance(c->be, 3));
        compare(c->be, what, &c->y, tolerance(c->be, 3));
    } else {
        compare(c->be, what, &c->act, tolerance(c->be, 5));
    }
}

/* Three invocations with fresh numbers and batches of one size: of decodes alone the first runs op by op,
 * the second is recorded, the third replayed. n_prefill 0: decodes alone. */
static void chain_check(chain *c, int i, int n_prefill, int n_decodes)
{
    static const char *const how[] = {"op by op", "recorded", "replayed"};
    static both_batch b;
    int ranks = below(2) ? RANK_SUM : 0; /* what adapters say they have, the last the most: decides kernels' grids */
    for (int j = 0; j < N_ADAPTERS; j++)
        c->lora[i][j].gpu.max_rank_sum = j == N_ADAPTERS - 1 ? ranks : ranks / 16;
    for (int k = 0; k < 3; k++) {
        if (n_prefill > 0)
            make_mixed(&b, n_prefill, n_decodes, 30, 300);
        else
            make_decodes(&b, n_decodes, n_decodes <= MAX_PAGES / 2 ? 30 : PAGE_LEN - 1, 300);
        random_segments(&b, c->lora[i]);
        if (ranks > 0 && n_prefill == 0) /* so that all three are of one kind, mostly */
            give_first_rows(&b, &c->lora[i][N_ADAPTERS - 1]);
        chain_set_rows(c, b.cpu.n_rows, MAX_ROWS);
        refill(c->be, &c->x, 1.7);
        refill(c->be, &c->residual, 2);
        const tensor *out[] = {&c->qkv.gpu, &c->delta.gpu, &c->y.gpu, &c->gate_up.gpu, &c->act.gpu, &c->v.gpu};
        for (size_t j = 0; j < sizeof out / sizeof out[0]; j++)
            poison(c->be, out[j]);
        invocation in = c->be->ops->begin(c->be, &b.gpu, &c->w[i]);
        assert_true(in.n_rows >= b.cpu.n_rows && in.n_rows <= MAX_ROWS);
        chain_set_rows(c, b.cpu.n_rows, in.n_rows);
        if (!in.replayed)
            chain_run(c, i, c->be, &b.gpu);
        c->be->ops->end(c->be);
        chain_run(c, i, cpu, &b.cpu);
        settle(c->be);
        chain_compare(c, i, n_prefill > 0 ? "with prefills" : how[k]);
    }
    c->be->ops->forget(c->be, &c->w[i]);
}

static void chains_on(backend *be)
{
    static const struct {
        heads h;
        int hidden, ffn;
        bool norm;
    } shapes[] = {
        {{5, 5, 12}, 60, 100, false},     {{6, 2, 32}, 192, 512, true},  {{4, 2, 32}, 72, 136, true},
        {{14, 2, 64}, 896, 4864, false},  {{4, 1, 256}, 136, 256, true}, {{32, 8, 128}, 4096, 11008, false},
        {{16, 8, 128}, 2560, 1000, true}, {{2, 2, 16}, 8192, 64, false}, {{48, 8, 128}, 256, 64, false},
        {{2, 2, 16}, 8960, 64, true},
    };
    static const int sizes[] = {1,  2,  3,  5,  8,  13,  17,  31,  32,  33,  47,
                                63, 64, 65, 70, 96, 100, 127, 128, 129, 200, 256};
    enum { N_SIZES = sizeof sizes / sizeof sizes[0] };
    int n_shapes = quick ? 2 : (int)(sizeof shapes / sizeof shapes[0]);
    for (int n = 0; n < 3 * n_shapes; n++) {
        int s = n / 3;
        chain c;
        chain_init(&c, be, shapes[s].h, shapes[s].hidden, shapes[s].ffn, shapes[s].norm, (stored_as)(n % 3));
        for (int i = 0; i < 3; i++) {
            for (int k = s % 3; k < N_SIZES; k += quick ? 9 : 3)
                if (sizes[k] <= 64 || shapes[s].hidden * shapes[s].ffn <= 2560 * 1000) /* or the CPU takes long */
                    chain_check(&c, i, 0, sizes[k]);
            chain_check(&c, i, 2 + below(100), below(60));
            chain_check(&c, i, 100 + below(60), below(60));
            if (shapes[s].hidden * shapes[s].ffn <= 2560 * 1000)
                chain_check(&c, i, 500 + below(60), below(60)); /* adapters by large tiles, or just not */
        }
        chain_deinit(&c);
    }
}

/* The op that appends to an F8 cache. */
static void fp8_chains_on(backend *be)
{
    static const struct {
        heads h;
        int hidden;
        bool norm;
    } shapes[] = {{{5, 5, 12}, 60, false},
                  {{6, 2, 32}, 192, true},
                  {{14, 2, 64}, 896, false},
                  {{32, 8, 128}, 1024, true},
                  {{4, 1, 256}, 136, false}};
    for (size_t s = 0; s < (quick ? 2 : sizeof shapes / sizeof shapes[0]); s++) {
        chain c;
        chain_init(&c, be, shapes[s].h, shapes[s].hidden, 64, shapes[s].norm, (stored_as)0);
        chain_check(&c, 0, 0, 5);
        chain_check(&c, 0, 0, 33);
        chain_check(&c, 0, 2 + below(100), below(60));
        chain_deinit(&c);
    }
}

static void with_fp8_cache(void (*body)(backend *), backend *be)
{
    kv_fp8 = true;
    body(be);
    kv_fp8 = false;
}

static void fp8_cache_on(backend *be)
{
    with_fp8_cache(attention_on, be);
    with_fp8_cache(fp8_chains_on, be);
}

static float sampled_logit(int kind, double scale)
{
    double x = scale * (uniform() + uniform() + uniform());
    return kind == 1 ? rintf((float)x) : kind == 2 ? 0.25f : kind == 3 ? (float)(-fabs(x) - 1) : (float)x;
}

/* A row of logits: ties at the top, ties everywhere, all equal, all negative; now and then not finite. */
static void fill_logits(float *x, int vocab)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    int kind = below(8);
    double scale = 1 + 10 * fabs(uniform());
    for (int i = 0; i < vocab; i++)
        x[i] = sampled_logit(kind, scale);
    for (int i = 0; i < 4 && kind > 3; i++)
        x[below(vocab)] = (float)(3 * scale);
    if (below(12) == 0)
        x[below(vocab)] = bad[below(3)];
}

/* lists: [6 * vocab] room for its history, bans, bias and mask. */
static sample_spec random_spec(int vocab, int *lists)
{
    sample_spec s = {.top_p = 1, .repetition_penalty = 1, .n_logprobs = below(3) ? -1 : below(MAX_LOGPROBS + 3)};
    s.seed = rng_u64(seed, counter++);
    s.position = rng_u64(seed, counter++);
    if (below(4))
        s.temperature = below(10) ? (float)(0.05 + 2 * fabs(uniform())) : 1e-7f;
    if (below(2))
        s.top_k = 1 + below(below(2) ? 60 : vocab + 5);
    if (below(2))
        s.top_p = below(9) ? (float)fabs(uniform()) : 0;
    if (below(3) == 0)
        s.min_p = (float)fabs(uniform()) * (below(2) ? 0.1f : 1.05f);
    if (below(3) == 0) {
        int *seen = lists, *count = lists + vocab, step = 1 + below(vocab < 100 ? 3 : 100);
        s.repetition_penalty = (float)(1 + 0.5 * uniform());
        s.presence_penalty = (float)uniform();
        s.frequency_penalty = (float)uniform();
        for (int token = -1; token < vocab + 2 && s.n_seen < vocab; token += step, s.n_seen++) {
            seen[s.n_seen] = token;
            count[s.n_seen] = below(4);
        }
        s.seen = seen;
        s.seen_output = count;
    }
    if (below(4) == 0) {
        s.banned = lists + 2 * vocab;
        s.n_banned = below(20) ? 1 + below(5) : vocab;
        for (int i = 0; i < s.n_banned; i++)
            lists[2 * vocab + i] = s.n_banned == vocab ? i : below(vocab + 10) - 5;
    }
    if (below(4) == 0) {
        s.biased = lists + 3 * vocab;
        s.bias = (const float *)(lists + 4 * vocab);
        for (int token = below(3); token < vocab && s.n_bias < 300; token += 1 + below(50), s.n_bias++) {
            lists[3 * vocab + s.n_bias] = token;
            ((float *)(lists + 4 * vocab))[s.n_bias] = (float)(20 * uniform());
        }
    }
    if (below(3) == 0) { /* few, many or no tokens are allowed */
        uint32_t *mask = (uint32_t *)(lists + 5 * vocab);
        int kind = below(8);
        for (int i = 0; i < vocab; i++)
            if (kind > 4 ? below(40) == 0 : kind > 0 ? below(10) : 0)
                mask[i >> 5] |= 1u << (i & 31);
        s.mask = mask;
    }
    if (below(5) == 0) {
        s.given = true;
        s.token = below(vocab);
        s.n_logprobs = s.n_logprobs < 0 ? 0 : s.n_logprobs;
    }
    return s;
}

static void compare_sample(const backend *be, const sample_spec *s, const sample_result *got, const sample_result *want,
                           int vocab)
{
    if (got->token != want->token)
        fail_msg("%s, vocab %d: token %d, expected %d (temperature %g, top_k %d, top_p %g, min_p %g, %d seen, "
                 "%d banned, %d biased%s; seed %llu)",
                 be->name, vocab, got->token, want->token, (double)s->temperature, s->top_k, (double)s->top_p,
                 (double)s->min_p, s->n_seen, s->n_banned, s->n_bias, s->mask ? ", masked" : "",
                 (unsigned long long)seed);
    if (want->token < 0 || s->n_logprobs < 0)
        return;
    assert_true(fabs((double)got->logprob - want->logprob) < 2e-5 * (1 + fabs((double)want->logprob)));
    assert_int_equal(got->rank, want->rank);
    for (int i = 0; i < s->n_logprobs && i < MAX_LOGPROBS; i++) {
        assert_int_equal(got->top[i].token, want->top[i].token);
        if (want->top[i].token >= 0)
            assert_true(fabs((double)got->top[i].logprob - want->top[i].logprob) <
                        2e-5 * (1 + fabs((double)want->top[i].logprob)));
    }
}

/* Two samples at a time. Drawn tokens must be equal: the two sides' sums differ by less than 1e-6 of the
 * total, and a draw would have to fall just there. */
static void sample_case(backend *be, int vocab, int rows)
{
    err e;
    int *lists = XNEW_ARRAY(int, (size_t)rows * 6 * (size_t)vocab + 4);
    sample_spec *spec = XNEW_ARRAY(sample_spec, (size_t)rows);
    both logits = blank(be, DTYPE_F32, rows, vocab);
    for (int r = 0; r < rows; r++) {
        fill_logits((float *)logits.cpu.data + (size_t)r * (size_t)vocab, vocab);
        spec[r] = random_spec(vocab, lists + (size_t)r * 6 * (size_t)vocab);
    }
    send(be, &logits);
    int first = rows / 2;
    cpu->ops->sample(cpu, &logits.cpu, spec, rows);
    const sample_result *want = cpu->ops->collect(cpu, &e);
    be->ops->sample(be, &logits.gpu, spec, first);
    be->ops->sample(be, &logits.gpu, spec, rows);
    for (int k = 0; k < 2; k++) {
        const sample_result *got = be->ops->collect(be, &e);
        if (!got)
            fail_msg("%s", e.msg);
        for (int r = 0; r < (k ? rows : first); r++)
            compare_sample(be, &spec[r], &got[r], &want[r], vocab);
    }
    drop(be, &logits);
    free(lists);
    free(spec);
}

static void sample_on(backend *be)
{
    static const int vocabs[] = {1, 7, 37, 280, 1003, 32000, 50257, 152064};
    for (size_t i = 0; i < (quick ? 4 : sizeof vocabs / sizeof vocabs[0]); i++) {
        reserve(be, (heads){1, 1, 16}, vocabs[i]);
        for (int k = 0; k < (quick ? 1 : 4); k++)
            sample_case(be, vocabs[i], 2 + below(quick ? 6 : vocabs[i] > 10000 ? 20 : 100));
    }
}

/* Ranks that share a GPU, or (many) NCCL's with one rank, against the CPU's. The residual stream is added to several
 * times, so that one op's parts are written while nobody may still read them. */
static void comm_case(backend *be, comm *sum, int n, int rows, int cols)
{
    enum { TIMES = 3 };
    both x[MAX_RANKS], y[MAX_RANKS], part[TIMES][MAX_RANKS], w[MAX_RANKS], embedded[MAX_RANKS],
        logits = blank(be, DTYPE_F32, rows, n * cols);
    tensor on[2][5][MAX_RANKS]; /* [CPU, GPU]: x, y, embedded, and room */
    const tensor *norm[2][MAX_RANKS];
    for (int r = 0; r < n; r++) {
        x[r] = blank(be, DTYPE_F32, rows, cols);
        y[r] = blank(be, be->act, rows, cols);
        w[r] = randoms(be, DTYPE_F32, 1, cols, 1);
        embedded[r] = randoms(be, DTYPE_F32, rows, cols, 1);
        for (int i = 0; i < TIMES; i++)
            part[i][r] = randoms(be, be->act, rows, cols, 1);
        on[0][0][r] = x[r].cpu, on[1][0][r] = x[r].gpu;
        on[0][1][r] = y[r].cpu, on[1][1][r] = y[r].gpu;
        on[0][2][r] = embedded[r].cpu, on[1][2][r] = embedded[r].gpu;
        norm[0][r] = &w[r].cpu, norm[1][r] = &w[r].gpu;
    }
    comm *both_sums[] = {comm_cpu_new(cpu, n), sum};
    for (int side = 0; side < 2; side++) {
        comm *c = both_sums[side];
        c->ops->all_reduce(c, on[side][0], on[side][2]);
        for (int i = 0; i < TIMES; i++) {
            for (int r = 0; r < n; r++)
                on[side][3][r] = side ? part[i][r].gpu : part[i][r].cpu;
            c->ops->add_rms_norm(c, on[side][1], on[side][0], on[side][3], norm[side], 1e-5f);
        }
        c->ops->all_gather(c, side ? &logits.gpu : &logits.cpu, on[side][2]);
    }
    char what[80];
    snprintf(what, sizeof what, "sums of %d ranks, %d rows of %d", n, rows, cols);
    for (int r = 0; r < n; r++) {
        compare(be, what, &x[r], 1e-5);
        compare(be, what, &y[r], tolerance(be, 1));
    }
    compare(be, "gathered", &logits, 0);
    both_sums[0]->ops->free(both_sums[0]);
    for (int r = 0; r < n; r++) {
        both *all[] = {&x[r], &y[r], &w[r], &embedded[r], &part[0][r], &part[1][r], &part[2][r]};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            drop(be, all[i]);
    }
    drop(be, &logits);
}

static void comm_on(backend *be)
{
    static const int ranks[] = {1, 2, 3, 4, 8}, rows[] = {1, 7, 64, 256, 300}, cols[] = {8, 100, 4096, 8192, 8200};
    err e;
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        comm *one = comm_cuda_new(be, ranks[i], &e);
        if (!one)
            fail_msg("%s", e.msg);
        for (int k = 0; k < (quick ? 10 : 25); k++)
            comm_case(be, one, ranks[i], rows[k % 5], cols[k / 5]);
        one->ops->free(one);
    }
}

/* One rank is all that one GPU can have: the sum is the part itself. Not under a sanitizer, which reports NCCL's own
 * way to find out which of its kernels a GPU can run. */
static void nccl_on(backend *be)
{
    err e;
    if (quick)
        return;
    comm *sum = comm_nccl_new(&be, 1, &e);
    if (!sum) {
        printf("NCCL is not tested: %s\n", e.msg);
        return;
    }
    comm_case(be, sum, 1, 5, 4096);
    comm_case(be, sum, 1, 300, 4096); /* through NCCL */
    sum->ops->free(sum);
}

static void wait_for_copy(backend *be, copy_lane lane)
{
    double seconds = -1;
    assert_true(be->ops->copy_ended(be, lane, true, &seconds));
    assert_true(seconds >= 0 && seconds < 10);
    assert_false(be->ops->copy_ended(be, lane, false, &seconds)); /* told once */
}

/* Copies beside the ops: in several pieces there and back, behind the ops that were queued before, ahead of those that
 * were told to wait. */
static void copies_on(backend *be)
{
    enum { PIECES = 5, ROWS = 512, COLS = 4096, OPS = 50 };
    size_t bytes = (size_t)ROWS * COLS * sizeof(float);
    tensor x = {take(be, bytes), DTYPE_F32, ROWS, COLS}, w = {take(be, COLS * sizeof(float)), DTYPE_F32, 1, COLS};
    tensor y = {take(be, bytes), be->act, ROWS, COLS}, delta = {take(be, bytes / 2), be->act, ROWS, COLS};
    char *host = be->ops->alloc_host(be, bytes), *back = take(be, bytes), *want = xmalloc(bytes), *got = xmalloc(bytes);
    float *numbers = (float *)want;
    for (size_t i = 0; i < bytes / sizeof *numbers; i++)
        numbers[i] = (float)uniform();
    put(be, x.data, want, bytes);
    put(be, w.data, want, COLS * sizeof(float));
    put(be, delta.data, want, bytes / 4);
    for (int i = 0; i < OPS; i++)
        be->ops->add_rms_norm(be, &y, &x, &delta, &w, 1e-5f); /* x moves on each time */
    copy_piece out[PIECES], in[PIECES];
    for (int i = 0; i < PIECES; i++) {
        size_t from = bytes / PIECES / 64 * 64 * (size_t)i,
               n = i + 1 < PIECES ? bytes / PIECES / 64 * 64 : bytes - from;
        out[i] = (copy_piece){host + from, (char *)x.data + from, n};
        in[PIECES - 1 - i] = (copy_piece){back + from, host + from, n};
    }
    be->ops->copy_begin(be, COPY_OUT, out, PIECES, true);
    wait_for_copy(be, COPY_OUT);
    be->ops->download(be, want, x.data, bytes);
    assert_memory_equal(host, want, bytes);
    be->ops->copy_begin(be, COPY_IN, in, PIECES, false);
    be->ops->copy_order(be);
    be->ops->download(be, got, back, bytes); /* in order with the ops */
    assert_memory_equal(got, want, bytes);
    wait_for_copy(be, COPY_IN);
    for (int i = 0; i < 100; i++) /* many batches at a time, in order */
        be->ops->copy_begin(be, COPY_IN, &(copy_piece){back, host + 64 * i, 64}, 1, i % 2);
    for (int i = 0; i < 100; i++) {
        double seconds;
        assert_true(be->ops->copy_ended(be, COPY_IN, true, &seconds));
    }
    be->ops->download(be, got, back, 64);
    assert_memory_equal(got, want + 64 * 99, 64);
    void *all[] = {x.data, w.data, y.data, delta.data, back};
    for (int i = 0; i < 5; i++)
        be->ops->release(be, all[i]);
    be->ops->release_host(be, host);
    free(want);
    free(got);
}

static void test_norms(void **state)
{
    (void)state;
    on_each_type(norms_on);
}
static void test_silu_mul(void **state)
{
    (void)state;
    on_each_type(silu_on);
}
static void test_embed_and_gather(void **state)
{
    (void)state;
    on_each_type(embed_on);
}
static void test_linear(void **state)
{
    (void)state;
    on_each_type(linears_on);
}
static void test_sgmv(void **state)
{
    (void)state;
    on_each_type(sgmv_on);
}
static void test_attention(void **state)
{
    (void)state;
    on_each_type(attention_on);
}
static void test_prefill(void **state)
{
    (void)state;
    on_each_type(prefills_on);
}
static void test_fp8_cache(void **state)
{
    (void)state;
    on_each_type(fp8_cache_on);
}
static void test_fused_ops(void **state)
{
    (void)state;
    on_each_type(chains_on);
}
static void test_sample(void **state)
{
    (void)state;
    on_each_type(sample_on);
}
static void test_comm(void **state)
{
    (void)state;
    on_each_type(comm_on);
}
static void test_copies(void **state)
{
    (void)state;
    on_each_type(copies_on);
}
static void test_nccl(void **state)
{
    (void)state;
    on_each_type(nccl_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),     cmocka_unit_test(test_silu_mul),
        cmocka_unit_test(test_sample),    cmocka_unit_test(test_embed_and_gather),
        cmocka_unit_test(test_linear),    cmocka_unit_test(test_sgmv),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_fp8_cache), cmocka_unit_test(test_fused_ops),
        cmocka_unit_test(test_comm),      cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_copies),
    };
    const char *wish = getenv("PUNICA_TEST_SEED");
    err e = {""};
    seed = wish ? strtoull(wish, NULL, 10) : (uint64_t)time(NULL);
    quick = getenv("PUNICA_TEST_QUICK") != NULL;
    if (getenv("PUNICA_TEST_ONLY"))
        cmocka_set_test_filter(getenv("PUNICA_TEST_ONLY"));
    cpu = backend_cpu_new(0);
    gpu[0] = backend_cuda_new(0, DTYPE_F16, &e);
    gpu[1] = gpu[0] ? backend_cuda_new(0, DTYPE_BF16, &e) : NULL;
    if (gpu[0])
        printf("%s, seed %llu\n", gpu[0]->name, (unsigned long long)seed);
    else
        printf("not tested: %s\n", e.msg);
    if (!gpu[1] && getenv("PUNICA_TEST_GPU"))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (gpu[i])
            gpu[i]->ops->free(gpu[i]);
    cpu->ops->free(cpu);
    return failed;
}
