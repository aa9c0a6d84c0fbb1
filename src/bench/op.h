/* op.h - `punica bench op`: the LoRA operator by itself, shrink and expand, on cold weights */
#ifndef PUNICA_BENCH_OP_H
#define PUNICA_BENCH_OP_H

#include "bench/workload.h"
#include "model/config.h"

#define MAX_OP_SIZES 16
#define MAX_OP_ROWS 4096

typedef struct { int in, out; } op_dims;

typedef struct {
    const char *device;
    dtype type;
    int n_dims, n_ranks, n_batches;
    op_dims dims[MAX_OP_SIZES];
    int rank[MAX_OP_SIZES], batch[MAX_OP_SIZES];
    bool run[N_WORKLOADS];
    const char *csv; /* file to write, NULL: none */
} op_options;

op_options op_options_default(void);

/* Prints one line per dimensions, rank, batch size and workload. -1 with e set. */
int op_run(const op_options *o, err *e);

#endif
