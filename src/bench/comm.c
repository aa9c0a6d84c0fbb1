/* comm.c - see comm.h
 *
 * One invocation is a sequence of the same op, as a step would queue it; a device that records invocations replays it.
 * Two sets of parts take turns, so that nobody writes what another rank may still be reading. */
#include "bench/comm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/devices.h"
#include "backend/group.h"
#include "base/clock.h"
#include "bench/median.h"
#include "bench/shapes.h"
#include "engine/kv_pool.h"
#include "model/random.h"

enum { N_RUNS = 7, N_OPS = 160, MAX_ROWS = 4096 };

/* What is timed. Recordings of a kind belong to the address of its entry in `owner`. */
typedef enum { OF_ALL_RANKS, OF_ONE_RANK, LOGITS, N_KINDS } kind;

typedef struct {
    const comm_bench_options *opt;
    backend *be;
    int n_ranks, max_rows;
    tensor x[MAX_RANKS], y[MAX_RANKS], out[2][MAX_RANKS], w[MAX_RANKS]; /* by rank */
    tensor part[MAX_RANKS], logits[MAX_RANKS];                          /* by rank, by device */
    char owner[N_KINDS];
} comm_bench;

comm_bench_options comm_bench_options_default(void)
{
    return (comm_bench_options){.device = "cpu",
                                .tp = 2,
                                .type = DTYPE_F16,
                                .hidden = 8192,
                                .vocab = 32000,
                                .n_batches = 7,
                                .batch = {1, 8, 16, 32, 64, 128, 256}};
}

static int make(backend *be, tensor *t, dtype type, int rows, int cols, err *e)
{
    *t = (tensor){.type = type, .rows = rows, .cols = cols};
    if (!(t->data = be->ops->alloc(be, tensor_bytes(t), e)))
        return -1;
    random_upload(be, t->data, tensor_bytes(t), type, -2);
    return 0;
}

/* A rank's share of the vocabulary, in units of 8 as models' are. */
static int vocab_of(const comm_bench *c, int rank)
{
    int units = c->opt->vocab / 8, from = units * rank / c->n_ranks, to = units * (rank + 1) / c->n_ranks;
    return 8 * (to - from) + (rank == c->n_ranks - 1 ? c->opt->vocab % 8 : 0);
}

static int make_rank(comm_bench *c, int r, err *e)
{
    backend *be = group_device_of(c->be, r);
    int rows = c->max_rows, hidden = c->opt->hidden;
    return make(be, &c->x[r], DTYPE_F32, rows, hidden, e) || make(be, &c->y[r], be->act, rows, hidden, e) ||
                   make(be, &c->out[0][r], be->act, rows, hidden, e) ||
                   make(be, &c->out[1][r], be->act, rows, hidden, e) || make(be, &c->w[r], DTYPE_F32, 1, hidden, e) ||
                   make(be, &c->part[r], DTYPE_F32, rows, vocab_of(c, r), e)
               ? -1
               : 0;
}

static int make_device(comm_bench *c, int d, err *e)
{
    backend *be = group_device(c->be, d);
    extent x = {.max_rows = c->max_rows,
                .max_out = c->max_rows,
                .max_sequences = c->max_rows,
                .max_pages = c->max_rows,
                .page_len = KV_PAGE_LEN,
                .max_rank_sum = 1,
                .vocab = 1,
                .n_sites = 1,
                .h = {1, 1, 64}};
    return make(be, &c->logits[d], DTYPE_F32, c->max_rows, c->opt->vocab, e) || be->ops->reserve(be, &x, e) ? -1 : 0;
}

static int make_all(comm_bench *c, err *e)
{
    for (int i = 0; i < c->opt->n_batches; i++)
        c->max_rows = c->opt->batch[i] > c->max_rows ? c->opt->batch[i] : c->max_rows;
    for (int r = 0; r < c->n_ranks; r++)
        if (make_rank(c, r, e))
            return -1;
    for (int d = 0; d < group_devices(c->be); d++)
        if (make_device(c, d, e))
            return -1;
    return 0;
}

static void drop_tensor(backend *be, tensor *t)
{
    if (t->data)
        be->ops->release(be, t->data);
}

static void drop_all(comm_bench *c)
{
    for (int r = 0; r < c->n_ranks; r++) {
        tensor *all[] = {&c->x[r], &c->y[r], &c->out[0][r], &c->out[1][r], &c->w[r], &c->part[r]};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            drop_tensor(group_device_of(c->be, r), all[i]);
    }
    for (int d = 0; d < group_devices(c->be); d++)
        drop_tensor(group_device(c->be, d), &c->logits[d]);
}

static void set_rows(comm_bench *c, int rows)
{
    for (int r = 0; r < c->n_ranks; r++)
        c->x[r].rows = c->y[r].rows = c->out[0][r].rows = c->out[1][r].rows = c->part[r].rows = rows;
    for (int d = 0; d < group_devices(c->be); d++)
        c->logits[d].rows = rows;
}

static void run_op(comm_bench *c, kind k, int i)
{
    comm *sum = c->be->group->sum;
    const tensor *w[MAX_RANKS];
    for (int r = 0; r < c->n_ranks; r++)
        w[r] = &c->w[r];
    if (k == OF_ALL_RANKS)
        sum->ops->add_rms_norm(sum, c->y, c->x, c->out[i % 2], w, 1e-5f);
    else if (k == OF_ONE_RANK)
        c->be->ops->add_rms_norm(c->be, &c->y[0], &c->x[0], &c->out[i % 2][0], &c->w[0], 1e-5f);
    else
        sum->ops->all_gather(sum, c->logits, c->part);
}

static int run_ops(comm_bench *c, const batch *b, kind k, err *e)
{
    invocation v = {0};
    int n_devices = k == OF_ONE_RANK ? 1 : group_devices(c->be);
    for (int d = 0; d < n_devices; d++) {
        backend *be = group_device(c->be, d);
        v = be->ops->begin(be, b, &c->owner[k]);
    }
    set_rows(c, v.n_rows < c->max_rows ? v.n_rows : c->max_rows);
    for (int i = 0; i < N_OPS && !v.replayed; i++)
        run_op(c, k, i);
    int status = 0;
    for (int d = 0; d < n_devices; d++) {
        backend *be = group_device(c->be, d);
        be->ops->end(be);
    }
    for (int d = 0; d < n_devices && status == 0; d++) {
        backend *be = group_device(c->be, d);
        status = be->ops->sync(be, e);
    }
    return status;
}

/* Seconds of one op: the median over invocations; negative with e set on failure. */
static double time_ops(comm_bench *c, int rows, kind k, err *e)
{
    static const int zeros[MAX_ROWS];
    static const lora *none;
    int count[MAX_ROWS + 1], ends[] = {0, rows};
    double seconds[N_RUNS];
    for (int i = 0; i <= rows; i++)
        count[i] = i;
    batch b = {.n_rows = rows,
               .token = zeros,
               .position = zeros,
               .n_decodes = rows,
               .prefill_indptr = zeros,
               .page_indptr = count,
               .page = count,
               .segs = {1, ends, &none},
               .n_out = rows,
               .out_row = count};
    for (int i = -3; i < N_RUNS; i++) {
        double start = clock_now();
        if (run_ops(c, &b, k, e))
            return -1;
        if (i >= 0)
            seconds[i] = (clock_now() - start) / N_OPS;
    }
    return median(seconds, N_RUNS);
}

static int run_batches(comm_bench *c, FILE *csv, err *e)
{
    const comm_bench_options *o = c->opt;
    for (int i = 0; i < o->n_batches; i++) {
        double us[N_KINDS];
        for (int k = 0; k < N_KINDS; k++)
            if ((us[k] = 1e6 * time_ops(c, o->batch[i], (kind)k, e)) < 0)
                return -1;
        printf("%5d %12.2f %12.2f %12.2f\n", o->batch[i], us[OF_ALL_RANKS], us[OF_ONE_RANK], us[LOGITS]);
        fflush(stdout);
        if (csv)
            fprintf(csv, "%d,%d,%d,%d,%d,%.3f,%.3f,%.3f\n", c->n_ranks, group_devices(c->be), o->hidden, o->vocab,
                    o->batch[i], us[OF_ALL_RANKS], us[OF_ONE_RANK], us[LOGITS]);
    }
    return 0;
}

static int run_all(const comm_bench_options *o, FILE *csv, err *e)
{
    comm_bench c = {.opt = o, .be = backend_open(o->device, o->tp, o->type, 0, e), .n_ranks = o->tp};
    if (!c.be)
        return -1;
    int status = make_all(&c, e);
    if (status == 0) {
        printf("punica " PUNICA_VERSION " bench comm on %s\nrows of %d numbers, a vocabulary of %d; us of one op\n\n"
               "batch  sum and norm  one rank's    gather of\n       of all ranks        alone       logits\n",
               c.be->name, o->hidden, o->vocab);
        status = run_batches(&c, csv, e);
    }
    for (int d = 0; d < group_devices(c.be); d++)
        for (int k = 0; k < N_KINDS; k++)
            group_device(c.be, d)->ops->forget(group_device(c.be, d), &c.owner[k]);
    drop_all(&c);
    backend_close(c.be);
    return status;
}

int comm_bench_run(const comm_bench_options *o, err *e)
{
    FILE *csv = o->csv ? fopen(o->csv, "w") : NULL;
    if (o->csv && !csv)
        return err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    if (csv)
        fprintf(csv, "ranks,devices,hidden,vocab,batch,sum_norm_us,norm_us,gather_us\n");
    int status = run_all(o, csv, e);
    if (csv && fclose(csv) != 0 && status == 0)
        status = err_set(e, "cannot write %s: %s", o->csv, strerror(errno));
    return status;
}
