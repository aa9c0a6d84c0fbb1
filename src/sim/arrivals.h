/* arrivals.h - the requests of the cluster experiment: Poisson arrivals whose rate rises and falls, adapters by
 * the paper's Skewed popularity, lengths as in the paper; single requests, or turns of conversations */
#ifndef PUNICA_SIM_ARRIVALS_H
#define PUNICA_SIM_ARRIVALS_H

#include <stdint.h>

#include "bench/workload.h"

/* A turn's prompt is all of its conversation so far, and a new message; a single request is an only turn. */
typedef struct {
    double arrival;
    bench_request what;
    int conversation;
    int n_known; /* tokens that the prompt shares with the last turn, or with others of its adapter */
} sim_arrival;

typedef struct {
    double seconds, peak; /* the rate rises evenly from 0 to peak requests a second at half time and falls to 0 again */
    int max_len;
    int turns; /* of each conversation, all within max_len; 0: single requests */
    uint64_t seed;
} arrivals_options;

enum { SYSTEM_PROMPT = 256 }; /* tokens that all conversations of an adapter begin with */

/* Makes the requests, [*n] by time, of *n_adapters adapters; free with free(). */
sim_arrival *arrivals_make(const arrivals_options *o, int *n, int *n_adapters);

/* Returns token i of a request, prompt and output counted together. */
int sim_arrival_token(const sim_arrival *a, int i);

#endif
