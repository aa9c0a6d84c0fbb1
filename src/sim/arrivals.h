/* arrivals.h - the requests of the cluster experiment: Poisson arrivals whose rate rises and falls, adapters by
 * Skewed popularity, the paper's lengths */
#ifndef PUNICA_SIM_ARRIVALS_H
#define PUNICA_SIM_ARRIVALS_H

#include <stdint.h>

#include "bench/workload.h"

typedef struct { double arrival; bench_request what; } arrival;

/* The rate rises evenly from 0 to `peak` a second at half time and falls evenly to 0 again. [*n] by time; free(). */
arrival *arrivals_make(double seconds, double peak, int max_len, uint64_t seed, int *n, int *n_adapters);

#endif
