/* watch.h - the rules on what a scheduler may do, checked at every event and command
 *
 * A watch sees what one scheduler sees, keeps its own plain account of it, and tells the first violation:
 *   - a request is on one GPU at most, and goes there with all its tokens, its budget and a new attempt;
 *   - batch and page limits are kept, counted from reports as scheduler.h says; no two suspects share a GPU;
 *   - a request that leaves the queue is the first of those that wait, suspects aside; one that is moved for lack of
 *     pages is the newest on its GPU;
 *   - tokens pass once, in order; nothing passes for a request that has ended or was cancelled;
 *   - a suspect whose worker died again runs alone; a request that ends for killing workers was alone on 3 that
 *     crashed, or 16 that were killed, in a row without a token between, or comes again after that;
 *   - a request that ends as too large was so for all GPUs open during max_aside or, if new, for all that ever were;
 *   - no GPU is idle while a request waits that it could hold;
 *   - the tenant whose newcomer is next had the least service by weight, as far as can be told without knowing what
 *     each had before; and while two tenants wait, over any time, neither leads the other by more than the bound of
 *     the paper that scheduler/shares.h names. */
#ifndef PUNICA_SIM_WATCH_H
#define PUNICA_SIM_WATCH_H

#include "scheduler/scheduler.h"

enum { MOST_GPUS = 64 }; /* GPU numbers are below this */

typedef struct watch watch;

watch *watch_new(const scheduler_options *o);
void watch_free(watch *w);

/* Note an event, before the scheduler gets it; arguments as in scheduler_tap. */
void watch_gpu_pace(watch *w, double now, int gpu, bool slow);
void watch_submit(watch *w, double now, int frontend, const submission *s);
void watch_cancel(watch *w, double now, int frontend, uint64_t id);
void watch_frontend_gone(watch *w, double now, int frontend);
void watch_gpu_up(watch *w, double now, int gpu, const gpu_info *info);
void watch_gpus_gone(watch *w, double now, const int *gpu, int n, gpu_loss how);
void watch_gpus_drain(watch *w, double now, const int *gpu, int n);
void watch_report(watch *w, double now, int gpu, const gpu_report *r);
void watch_tick(watch *w, double now);

/* watch_command() checks a command. watch_settle() checks what must hold when the scheduler has handled all events so
 * far; watch_has_news() returns whether there were any since the last time. */
void watch_command(watch *w, const command *c);
void watch_settle(watch *w);
bool watch_has_news(const watch *w);

/* Returns the first violation, or NULL. Borrowed. */
const char *watch_violation(const watch *w);

#endif
