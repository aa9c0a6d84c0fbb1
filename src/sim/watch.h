/* watch.h - what a scheduler may do and may not, checked at every event and command
 *
 * A watch sees what one scheduler sees, keeps its own plain account of it, and says what is wrong first:
 *   - a request is on one GPU at most, and goes there with all its tokens, its budget and a new attempt;
 *   - batch and page limits, reckoned from reports as the contract says; one suspect to a GPU;
 *   - whoever leaves the queue is the first of those who wait, suspects aside; who is moved for lack of pages is the
 *     newest on its GPU;
 *   - tokens pass once, in order; nothing passes for a request that has ended or was cancelled;
 *   - a suspect whose worker died again runs alone; who ends for killing workers was alone on three that crashed, or 16
 * that were killed, one after the other, and made no token between, or comes again after that;
 *   - who ends as too large was so for all GPUs open during max_aside or, if new, for all that ever were;
 *   - no idle GPU is left while somebody waits whom it could hold;
 *   - of tenants' newcomers the next is of the one that had least by its weight, as far as can be told without knowing
 * what each had before, and over any time in which two of them wait neither is given more than the paper's bound beyond
 * the other. */
#ifndef PUNICA_SIM_WATCH_H
#define PUNICA_SIM_WATCH_H

#include "scheduler/scheduler.h"

enum { MOST_GPUS = 64 }; /* GPU numbers are below */

typedef struct watch watch;

watch *watch_new(const scheduler_options *o);
void watch_free(watch *w);

/* Before the scheduler gets the event; as scheduler_tap has them. */
void watch_gpu_pace(watch *w, double now, int gpu, bool slow);
void watch_submit(watch *w, double now, int frontend, const submission *s);
void watch_cancel(watch *w, double now, int frontend, uint64_t id);
void watch_frontend_gone(watch *w, double now, int frontend);
void watch_gpu_up(watch *w, double now, int gpu, const gpu_info *info);
void watch_gpus_gone(watch *w, double now, const int *gpu, int n, gpu_loss how);
void watch_gpus_drain(watch *w, double now, const int *gpu, int n);
void watch_report(watch *w, double now, int gpu, const gpu_report *r);
void watch_tick(watch *w, double now);

/* Every command; and when the scheduler has done all that the events were to it. */
void watch_command(watch *w, const command *c);
void watch_settle(watch *w);
bool watch_has_news(const watch *w); /* since it was settled */

/* The first violation, or NULL. */
const char *watch_violation(const watch *w);

#endif
