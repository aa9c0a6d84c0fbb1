/* checker.h - checks a scheduler's invariants at every event and command
 *
 * A checker sees what one scheduler sees, keeps its own plain account of it, and remembers the first violation:
 *   - a request is on one GPU at most, and goes there with all its tokens, its budget and a new attempt;
 *   - batch and page limits are kept, counted from reports as scheduler.h says; no two suspects share a GPU;
 *   - a request that leaves the queue is the first of those that wait, apart from suspects; one that is moved for lack
 *     of pages is the newest on its GPU;
 *   - tokens pass once, in order; nothing passes for a request that has ended or was cancelled;
 *   - a suspect whose worker died again runs alone; a request that ends for killing workers was alone on 3 that
 *     crashed, or 16 that were killed, in a row without a token between, or comes again after that;
 *   - a request that ends as too large was so for all GPUs open during max_aside or, if new, for all that ever were;
 *   - no GPU is idle while a request waits that it could hold;
 *   - the tenant whose newcomer is next had the least service by weight, as far as can be told without knowing what
 *     each had before; and while two tenants wait, over any time, neither leads the other by more than the bound of
 *     the paper that scheduler/shares.h names. */
#ifndef PUNICA_SIM_CHECKER_H
#define PUNICA_SIM_CHECKER_H

#include "scheduler/scheduler.h"

enum { MOST_GPUS = 64 }; /* GPU numbers are below this */

typedef struct checker checker;

checker *checker_new(const scheduler_options *o);
void checker_free(checker *k);

/* Note an event, before the scheduler gets it; arguments as in scheduler_tap. */
void checker_gpu_pace(checker *k, double now, int gpu, bool slow);
void checker_submit(checker *k, double now, int frontend, const submission *s);
void checker_cancel(checker *k, double now, int frontend, uint64_t id);
void checker_frontend_gone(checker *k, double now, int frontend);
void checker_gpu_up(checker *k, double now, int gpu, const gpu_info *info);
void checker_gpus_gone(checker *k, double now, const int *gpu, int n, gpu_loss how);
void checker_gpus_drain(checker *k, double now, const int *gpu, int n);
void checker_report(checker *k, double now, int gpu, const gpu_report *r);
void checker_tick(checker *k, double now);

/* checker_command() checks a command. checker_settle() checks what must hold when the scheduler has handled all events
 * so far; checker_has_news() returns whether there were any since the last time. */
void checker_command(checker *k, const command *c);
void checker_settle(checker *k);
bool checker_has_news(const checker *k);

/* Returns the first violation, or NULL. Borrowed. */
const char *checker_violation(const checker *k);

#endif
