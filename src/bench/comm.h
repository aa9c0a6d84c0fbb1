/* comm.h - `punica bench comm`: the ops by which the ranks of a split model add up, by themselves */
#ifndef PUNICA_BENCH_COMM_H
#define PUNICA_BENCH_COMM_H

#include "backend/tensor.h"
#include "base/err.h"

#define MAX_COMM_SIZES 16

typedef struct {
    const char *device;
    int tp;     /* ranks */
    dtype type; /* of activations, on a GPU */
    int hidden, vocab;
    int n_batches, batch[MAX_COMM_SIZES];
    const char *csv; /* file to write, NULL: none */
} comm_bench_options;

comm_bench_options comm_bench_options_default(void);

/* Prints one line per batch size. -1 with e set. */
int comm_bench_run(const comm_bench_options *o, err *e);

#endif
