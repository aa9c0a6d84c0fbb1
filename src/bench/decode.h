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
    int n_ranks, rank[MAX_DECODE_RANKS]; /* of the adapters, which take them in turn, each on all seven projections */
    int max_batch, max_prompt;
    weights_form form;
    kv_form kv;
    int max_positions; /* most cached positions of a batch in all */
    bool samples;      /* a step draws tokens too */
    bool masked;       /* by masks, as of outputs that follow a grammar; of every row its own */
} decode_options;

typedef struct decode_bench decode_bench;

/* Memory for max_batch adapters and the KvCache is claimed here. */
decode_bench *decode_new(backend *be, const decode_options *o, dtype type, err *e);
void decode_free(decode_bench *d); /* d may be NULL */
const model *decode_model(const decode_bench *d);

/* What a step cannot do without: reading weights, adapters in the batch, keys and values, in bytes, and so many
 * floating-point operations. */
typedef struct { double weights, adapters, kv, flops; } decode_work;

/* The rows of a step: `batch` sequences that each have `context` positions, and a prompt of so many tokens, 0: none,
 * which has the first sequence's adapter. */
typedef struct {
    int batch, context, prompt;
    workload w;
} decode_rows;

/* Seconds of one step: median of several runs of steps queued one after the other. Negative with e set when the device
 * fails. */
double decode_time(decode_bench *d, decode_rows r, decode_work *work, err *e);

#endif
