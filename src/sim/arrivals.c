/* arrivals.c - see arrivals.h */
#include "sim/arrivals.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

/* When so many were expected to have come: the inverse of the rate's integral, a parabola for each half. */
static double when_expected(double expected, double seconds, double all)
{
    if (expected <= all / 2)
        return seconds * sqrt(expected / (2 * all));
    return seconds * (1 - sqrt((all - expected) / (2 * all)));
}

arrival *arrivals_make(double seconds, double peak, int max_len, uint64_t seed, int *n, int *n_adapters)
{
    double all = seconds * peak / 2, expected = 0;
    arrival *a = NULL;
    size_t cap = 0;
    *n = 0;
    for (uint64_t i = 0;; i++) {
        expected -= log(1 - rng_uniform(seed ^ 0x61727276, i));
        if (expected > all)
            break;
        a = xgrow(a, &cap, (size_t)*n + 1, sizeof *a);
        a[(*n)++].arrival = when_expected(expected, seconds, all);
    }
    bench_request *what = XNEW_ARRAY(bench_request, (size_t)*n + 1);
    *n_adapters = *n ? workload_make(WORKLOAD_SKEWED, *n, 0, 0, max_len, seed, what) : 0;
    for (int i = 0; i < *n; i++)
        a[i].what = what[i];
    free(what);
    return a;
}
