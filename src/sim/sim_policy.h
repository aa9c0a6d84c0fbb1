/* sim_policy.h - policies that decide which simulated GPU serves what
 *
 *   packed      the scheduler itself (scheduler/scheduler.h)
 *   forgetful   the same, without its memory of prefixes (scheduler/prefixes.h)
 *   spread      the GPU with the fewest requests that has room; first come first served
 *   dedicated   a GPU serves one adapter at a time: one that serves it already and has room, or else an idle one;
 *               first come first served within an adapter
 *
 * The last two see the true state of each GPU's pages, and changing a GPU's adapter costs them nothing. */
#ifndef PUNICA_SIM_SIM_POLICY_H
#define PUNICA_SIM_SIM_POLICY_H

#include "sim/arrivals.h"
#include "sim/sim_gpu.h"

typedef enum { POLICY_PACKED, POLICY_FORGETFUL, POLICY_SPREAD, POLICY_DEDICATED, N_POLICIES } policy_kind;

const char *policy_name(policy_kind k);

typedef struct policy policy;

typedef struct {
    int n_gpus, n_requests, n_adapters;
    sim_gpu **gpu;              /* [n_gpus] borrowed */
    const sim_arrival *request; /* [n_requests] borrowed */
    int max_batch, n_pages, page_len, max_tokens;
    bool has_cache; /* GPUs have a prefix cache */
    scheduler_options scheduling;
} policy_setup;

policy *policy_new(policy_kind k, const policy_setup *p);
void policy_free(policy *p);

void policy_arrive(policy *p, double now, int request);
void policy_report(policy *p, double now, int gpu, const gpu_report *r);
double policy_tick(policy *p, double now); /* returns seconds until the next */

uint64_t policy_moved(const policy *p); /* requests moved from GPU to GPU, evictions not counted */
uint64_t policy_evicted(const policy *p);

#endif
