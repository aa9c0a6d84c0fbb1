/* textgen.h - `punica bench textgen`: the paper's text generation experiment on one device
 *
 * Sends requests through the engine, at most `batch` at a time, for one workload or all; shows tokens per second, and
 * where the time and the memory went. */
#ifndef PUNICA_BENCH_TEXTGEN_H
#define PUNICA_BENCH_TEXTGEN_H

#include "bench/workload.h"
#include "model/model.h"

typedef struct {
    const char *shape;     /* random weights of this shape; NULL: see model_dir */
    const char *model_dir; /* a model directory, if shape is NULL */
    dtype type;            /* of random weights */
    weights_form form;
    kv_form kv;
    bool run[N_WORKLOADS];
    const char *device; /* "cpu", "cuda", "cuda:N", "cuda:N-M" */
    int tp;             /* ranks that the model is split over */
    int requests, batch, rank, threads;
    int prompt_len, gen_len; /* 0: the paper's distribution */
    int prefill_rows;        /* 0: as many as the engine chooses */
    int itl_target;          /* milliseconds */
    uint64_t seed;
    const char *csv; /* file to write, NULL: none */
} textgen_options;

textgen_options textgen_options_default(void);

int textgen_run(const textgen_options *o, err *e);

#endif
