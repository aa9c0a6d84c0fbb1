/* cpu_comm.c - the communicator of ranks on the CPU: they share memory, so a sum is a loop
 *
 * The ranks share one backend, whose threads take rows in turn. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/group.h"
#include "base/mem.h"

typedef struct {
    comm base;
    cpu_backend *cpu; /* borrowed */
    int n_ranks;
} cpu_comm;

/* What its threads share. */
typedef struct {
    const cpu_comm *c;
    tensor *y, *x;
    const tensor *part;
    const tensor *const *w;
    float eps;
} comm_op;

static float *row_of(const tensor *t, int row)
{
    return (float *)t->data + (size_t)row * (size_t)t->cols;
}

/* Sums into the first rank's y, then copies to the others'. */
static void reduce_row(void *arg, int row, int thread)
{
    (void)thread;
    const comm_op *j = arg;
    size_t cols = (size_t)j->y[0].cols;
    float *sum = row_of(&j->y[0], row);
    memcpy(sum, row_of(&j->part[0], row), cols * sizeof(float));
    for (int r = 1; r < j->c->n_ranks; r++)
        j->c->cpu->k->add(sum, row_of(&j->part[r], row), (int)cols);
    for (int r = 1; r < j->c->n_ranks; r++)
        memcpy(row_of(&j->y[r], row), sum, cols * sizeof(float));
}

static void cpu_all_reduce(comm *base, tensor *y, const tensor *part)
{
    cpu_comm *c = (cpu_comm *)base;
    pool_run(c->cpu->pool, y[0].rows, reduce_row, &(comm_op){.c = c, .y = y, .part = part});
}

static void add_norm_row(void *arg, int row, int thread)
{
    (void)thread;
    const comm_op *j = arg;
    const cpu_kernels *k = j->c->cpu->k;
    int cols = j->x[0].cols;
    for (int r = 0; r < j->c->n_ranks; r++) {
        float *x = row_of(&j->x[r], row);
        for (int part = 0; part < j->c->n_ranks; part++)
            k->add(x, row_of(&j->part[part], row), cols);
        k->rms_norm(row_of(&j->y[r], row), x, j->w[r]->data, j->w[r]->type, cols, j->eps);
    }
}

static void cpu_add_rms_norm(comm *base, tensor *y, tensor *x, const tensor *part, const tensor *const *w, float eps)
{
    cpu_comm *c = (cpu_comm *)base;
    pool_run(c->cpu->pool, x[0].rows, add_norm_row,
             &(comm_op){.c = c, .y = y, .x = x, .part = part, .w = w, .eps = eps});
}

static void gather_row(void *arg, int row, int thread)
{
    (void)thread;
    const comm_op *j = arg;
    float *to = row_of(j->y, row);
    for (int r = 0; r < j->c->n_ranks; to += j->part[r++].cols)
        memcpy(to, row_of(&j->part[r], row), (size_t)j->part[r].cols * sizeof(float));
}

static void cpu_all_gather(comm *base, tensor *y, const tensor *part)
{
    cpu_comm *c = (cpu_comm *)base;
    int cols = 0;
    for (int r = 0; r < c->n_ranks; r++)
        cols += part[r].cols;
    CHECK(y->cols == cols && y->rows == part[0].rows);
    pool_run(c->cpu->pool, y->rows, gather_row, &(comm_op){.c = c, .y = y, .part = part});
}

static void cpu_comm_free(comm *c)
{
    free(c);
}

static const comm_ops ops = {
    .all_reduce = cpu_all_reduce,
    .add_rms_norm = cpu_add_rms_norm,
    .all_gather = cpu_all_gather,
    .free = cpu_comm_free,
};

comm *comm_cpu_new(backend *cpu, int n_ranks)
{
    cpu_comm *c = XNEW(cpu_comm);
    *c = (cpu_comm){.base.ops = &ops, .cpu = cpu_of(cpu), .n_ranks = n_ranks};
    return &c->base;
}
