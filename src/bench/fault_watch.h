/* fault_watch.h - what a scheduler may do and may not, checked at every event and command
 *
 * A watch sees what one scheduler sees, keeps its own plain account of it, and says what is wrong first:
 *   - a request is on one GPU at most, and goes there with all its tokens, its budget and a new attempt;
 *   - batch and page limits, reckoned from reports as the contract says; one suspect to a GPU;
 *   - whoever leaves the queue is the first of those who wait, suspects aside; who is moved for lack of pages is the
 *     newest on its GPU;
 *   - tokens pass once, in order; nothing passes for a request that has ended or was cancelled;
 *   - who ends for killing workers was with two that died, one after the other, and made no token between;
 *   - who ends as too large was so for all GPUs open during max_aside or, if new, for all that ever were;
 *   - no idle GPU is left while somebody waits whom it could hold. */
#ifndef PUNICA_BENCH_FAULT_WATCH_H
#define PUNICA_BENCH_FAULT_WATCH_H

#include "scheduler/scheduler.h"

enum { MOST_GPUS = 64 };        /* GPU numbers are below */

typedef struct fault_watch fault_watch;

/* Ids are below n_ids. */
fault_watch *fault_watch_new(const scheduler_options *o, size_t n_ids);
void fault_watch_free(fault_watch *w);

/* Before the scheduler gets the event. */
void fault_watch_submit(fault_watch *w, double now, int frontend, const submission *s);
void fault_watch_cancel(fault_watch *w, int frontend, uint64_t id);
void fault_watch_frontend_gone(fault_watch *w, int frontend);
void fault_watch_gpu_up(fault_watch *w, int gpu, const gpu_info *info);
void fault_watch_gpu_gone(fault_watch *w, int gpu, bool died);
void fault_watch_gpu_drain(fault_watch *w, int gpu);
void fault_watch_report(fault_watch *w, int gpu, const gpu_report *r);

/* Every command, and the end of the event. */
void fault_watch_command(fault_watch *w, double now, const command *c);
void fault_watch_settled(fault_watch *w, double now);

/* The first violation, or NULL. */
const char *fault_watch_violation(const fault_watch *w);

#endif
