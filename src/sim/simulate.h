/* simulate.h - `punica simulate`: the paper's cluster experiment in virtual time
 *
 * Sixteen GPUs, one hour, arrivals that rise and fall: the real scheduler over a step-time model, and for comparison
 * a policy that spreads requests out and one that gives each GPU one adapter at a time, with the same arrivals. With
 * turns, requests are conversations' and GPUs have prefix caches; then one more is the scheduler without its memory of
 * beginnings. */
#ifndef PUNICA_SIM_SIMULATE_H
#define PUNICA_SIM_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
    int gpus, batch, pages, page_len, max_len;
    float hours;
    float rate; /* requests a second at the peak; 0: nine tenths of what the GPUs can serve */
    int turns;  /* of each conversation; 0: requests by themselves, nothing is shared */
    uint64_t seed;
    const char *steps; /* file of measured step times; no default */
    const char *csv;   /* NULL: not written */
    bool only_packed;  /* skip the policies to compare with */
} simulate_options;

simulate_options simulate_options_default(void);
int simulate_run(const simulate_options *o, err *e);

#endif
