/* step.h - `punica bench step` and `punica bench layer`: how long a decode step takes, whole or per layer, with and
 * without rows of a prompt, compared with its floor: the time for its bytes at the memory's read bandwidth or for its
 * operations at the rate of large products, whichever is longer */
#ifndef PUNICA_BENCH_STEP_H
#define PUNICA_BENCH_STEP_H

#include "bench/decode.h"

#define MAX_STEP_SIZES 32

typedef struct {
    const char *device, *shape;
    int tp; /* ranks that the model is split over */
    dtype type;
    weights_form form;
    kv_form kv;
    int n_ranks, rank[MAX_DECODE_RANKS]; /* of the adapters, in turn */
    int n_batches, batch[MAX_STEP_SIZES];
    int n_contexts, context[MAX_STEP_SIZES];
    int n_prompts, prompt[MAX_STEP_SIZES]; /* rows of a prompt in the same step; 0: none */
    bool run[N_WORKLOADS];
    bool masked;     /* tokens are drawn with masks, as for outputs that follow a grammar */
    bool per_layer;  /* one layer, as the difference of two depths; nothing is sampled */
    const char *csv; /* file to write, NULL: none */
} step_options;

step_options step_options_default(bool per_layer);

/* Prints one row per batch size, context, workload and prompt; sizes whose KvCache does not fit are named and left out.
 * -1 with e set. */
int step_run(const step_options *o, err *e);

#endif
