/* decode.h - a model on random weights, ready to decode any batch at any context: what the step and layer
 * experiments time */
#ifndef PUNICA_BENCH_DECODE_H
#define PUNICA_BENCH_DECODE_H

#include "bench/workload.h"
#include "model/model.h"

#define MAX_DECODE_RANKS 16

typedef struct {
    const char *shape;
    int n_layers;                        /* 0: as many as the shape has */
    int n_ranks, rank[MAX_DECODE_RANKS]; /* of the adapters, in turn, each on all seven projections */
    int max_batch, max_prompt;
    weights_form form;
    kv_form kv;
    int max_positions; /* most cached positions of a whole batch */
    bool samples;      /* a step draws tokens too */
    bool masked;       /* with a mask for each row, as for outputs that follow a grammar */
} decode_options;

typedef struct decode_bench decode_bench;

/* Makes the model, max_batch adapters and the KvCache. be is borrowed. NULL with e set. */
decode_bench *decode_new(backend *be, const decode_options *o, dtype type, err *e);
void decode_free(decode_bench *d); /* d may be NULL */
const model *decode_model(const decode_bench *d);

/* What a step needs at least: bytes of weights, of adapters in the batch, and of keys and values to be read, and
 * floating-point operations. */
typedef struct { double weights, adapters, kv, flops; } decode_floor;

/* The rows of a step: `batch` sequences with `context` positions each, and a prompt of `prompt` tokens (0: none) with
 * the first sequence's adapter. */
typedef struct {
    int batch, context, prompt;
    workload w;
} decode_rows;

/* Returns the seconds of one step: the median of several runs of steps queued one after the other. Negative with e set
 * when the device fails. */
double decode_time(decode_bench *d, decode_rows r, decode_floor *work, err *e);

#endif
