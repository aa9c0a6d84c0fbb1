/* sim_gpu.h - a GPU in virtual time: the engine's rules over a step-time model
 *
 * Takes in commands between steps, runs one prompt and all decodes in each, gives the newest request back when it
 * runs out of pages, and reports like a worker. Requests are numbered by arrival. */
#ifndef PUNICA_BENCH_SIM_GPU_H
#define PUNICA_BENCH_SIM_GPU_H

#include "bench/step_model.h"
#include "scheduler/scheduler.h"

typedef struct {
    int request;                /* lower is older */
    int adapter;
    uint32_t attempt;
    int n_tokens, n_output;     /* so far, with those of earlier attempts */
    int n_total;                /* of output, when it ends */
    bool active;                /* has pages, and its prompt is read or being read */
    double ready;               /* when its adapter is there */
} sim_row;

typedef struct sim_gpu sim_gpu;

/* GPUs that did nothing and have been sent a command since. */
typedef struct { int *gpu; int n; } sim_wakeups;        /* room for all GPUs */

typedef struct {
    int number;
    int max_batch, n_pages, page_len, n_adapters;
    const step_model *model;    /* borrowed */
    sim_wakeups *wakeups;       /* borrowed */
} sim_gpu_setup;

sim_gpu *sim_gpu_new(const sim_gpu_setup *s);
void sim_gpu_free(sim_gpu *g);

/* Commands; taken in when the step that runs has ended. */
void sim_gpu_add(sim_gpu *g, const sim_row *row);
void sim_gpu_cancel(sim_gpu *g, int request, uint32_t attempt);

/* Take in what came and start a step. When it will end, or 0: there is nothing to do. Not while one runs. */
double sim_gpu_start(sim_gpu *g, double now);
bool sim_gpu_is_running(const sim_gpu *g);

/* What the step did; valid until the next call. */
const gpu_report *sim_gpu_end(sim_gpu *g);

int sim_gpu_n_requests(const sim_gpu *g);       /* all it has been given and not ended */

/* For policies that look into the GPU: whether one more request of so many tokens has room, as the scheduler counts. */
bool sim_gpu_has_room(const sim_gpu *g, int n_tokens);

#endif
