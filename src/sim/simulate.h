/* simulate.h - `punica simulate`: the paper's cluster experiment in virtual time
 *
 * Sixteen GPUs, one hour, a request rate that rises and falls: the real scheduler over a step-time model, and, with the
 * same arrivals, two baseline policies (sim_policy.h): one spreads requests out, one gives each GPU one adapter at a
 * time. With turns, requests belong to conversations and GPUs have prefix caches; then a third baseline is the
 * scheduler without its memory of prefixes. */
#ifndef PUNICA_SIM_SIMULATE_H
#define PUNICA_SIM_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
    int gpus, batch, pages, page_len, max_len;
    float hours;
    float rate; /* requests a second at the peak; 0: nine tenths of what the GPUs can serve */
    int turns;  /* of each conversation; 0: single requests, nothing is shared */
    uint64_t seed;
    const char *steps; /* file of measured step times; no default */
    const char *csv;   /* NULL: not written */
    bool only_packed;  /* skip the two that do not use the scheduler */
} simulate_options;

simulate_options simulate_options_default(void);
/* Runs the policies and prints what they did. 0, or -1 with e set. */
int simulate_run(const simulate_options *o, err *e);

#endif
