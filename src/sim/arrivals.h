/* arrivals.h - the requests of the cluster experiment: Poisson arrivals whose rate rises and falls, adapters by
 * Skewed popularity, the paper's lengths; each by itself, or as turns of conversations */
#ifndef PUNICA_SIM_ARRIVALS_H
#define PUNICA_SIM_ARRIVALS_H

#include <stdint.h>

#include "bench/workload.h"

/* A turn's prompt is all that was said in its conversation before, and a message; a request by itself is a
 * conversation's only turn. */
typedef struct {
    double arrival;
    bench_request what;
    int conversation;
    int n_known; /* tokens of the prompt that were said before: in the last turn, or to the same adapter */
} sim_arrival;

typedef struct {
    double seconds, peak; /* the rate rises evenly from 0 to peak requests a second at half time and falls to 0 again */
    int max_len;
    int turns; /* of each conversation, all within max_len; 0: requests by themselves */
    uint64_t seed;
} arrivals_options;

enum { SYSTEM_PROMPT = 256 }; /* tokens that all conversations of an adapter begin with */

/* [*n] by time; free(). */
sim_arrival *arrivals_make(const arrivals_options *o, int *n, int *n_adapters);

/* Token i of a request, of its prompt or its output. */
int sim_arrival_token(const sim_arrival *a, int i);

#endif
