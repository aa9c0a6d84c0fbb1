/* sim_gpu.h - a GPU in virtual time: the engine's admission over a step-time model
 *
 * Takes in commands between steps and reports like a worker. The engine's own code (engine/admission.h) decides which
 * requests run, with which rows, pages and adapter slots, within the engine's usual limits. */
#ifndef PUNICA_SIM_SIM_GPU_H
#define PUNICA_SIM_SIM_GPU_H

#include "scheduler/scheduler.h"
#include "sim/arrivals.h"
#include "sim/step_model.h"

typedef struct {
    int id; /* lower is older */
    int adapter;
    uint32_t attempt;
    int n_tokens, n_output;     /* so far, in all attempts; n_tokens: with the prompt */
    int n_total;                /* tokens of output when it ends */
    const sim_arrival *arrival; /* its tokens, for the prefix cache; borrowed while on the GPU; NULL: only counted */
} sim_request;

typedef struct sim_gpu sim_gpu;

/* The GPUs that were idle and have been sent a command since. */
typedef struct {
    int *gpu;
    int n;
} sim_wakeups; /* room for all GPUs */

typedef struct {
    int number;
    int max_batch, n_pages, page_len, n_adapters;
    const step_model *model; /* borrowed */
    sim_wakeups *wakeups;    /* borrowed */
} sim_gpu_setup;

sim_gpu *sim_gpu_new(const sim_gpu_setup *s);
void sim_gpu_free(sim_gpu *g);

/* Send a command, which is taken in when the step that runs has ended. */
void sim_gpu_add(sim_gpu *g, const sim_request *r);
void sim_gpu_cancel(sim_gpu *g, int id, uint32_t attempt);

/* Takes in commands and starts a step; none may be running. Returns when it will end, or -1: there is nothing to do. A
 * step without rows ends at once: it reports commands that left nothing to do. */
double sim_gpu_start(sim_gpu *g, double now);
bool sim_gpu_is_running(const sim_gpu *g);
int sim_gpu_batch(const sim_gpu *g); /* requests with rows in the step that runs */

/* Ends the step. Returns what it did; valid until the next call. */
const gpu_report *sim_gpu_end(sim_gpu *g);

uint64_t sim_gpu_n_cached(const sim_gpu *g); /* prompt tokens so far that were found in the prefix cache */
int sim_gpu_n_requests(const sim_gpu *g);    /* all it was given that have not ended */

/* Returns whether one more request of so many tokens has room, as the scheduler counts; for policies that look into the
 * GPU. */
bool sim_gpu_has_room(const sim_gpu *g, int n_tokens);

#endif
