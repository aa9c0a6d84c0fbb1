/* workload.h - the paper's request mixes: which adapter each request uses, and its lengths */
#ifndef PUNICA_BENCH_WORKLOAD_H
#define PUNICA_BENCH_WORKLOAD_H

#include <stdint.h>

#include "base/err.h"

typedef enum {
    WORKLOAD_NONE,
    WORKLOAD_IDENTICAL,
    WORKLOAD_UNIFORM,
    WORKLOAD_SKEWED,
    WORKLOAD_DISTINCT,
    N_WORKLOADS
} workload;

const char *workload_name(workload w);
int workload_find(const char *name, workload *w, err *e);

typedef struct { int adapter, prompt_len, gen_len; } bench_request; /* adapter -1: the base model */

/* Makes n requests. none: the base model; identical: one adapter; uniform: ceil(sqrt(n)) adapters, equally often;
 * skewed: each adapter 1.5 times as often as the next; distinct: each its own. The order is shuffled by the seed.
 * prompt_len or gen_len 0: the paper's lengths, prompts log-normal (shape 0.8, location -1, scale 18), total uniform up
 * to max_len. Returns how many adapters there are. */
int workload_make(workload w, int n, int prompt_len, int gen_len, int max_len, uint64_t seed, bench_request *out);

#endif
