/* submissions.h - what frontends have submitted, over the lives of all schedulers
 *
 * A request that is submitted again must be the same one: with the same arrival, but for late messages, with the tokens
 * it had before, perhaps more, for the same tenant, and marked as again. The scheduler cannot check that: a restarted
 * one has forgotten. */
#ifndef PUNICA_SIM_SUBMISSIONS_H
#define PUNICA_SIM_SUBMISSIONS_H

#include "scheduler/scheduler.h"

typedef struct {
    uint64_t id, tokens, tenant; /* tokens, tenant: hashes */
    double came;                 /* when it was first submitted */
    int n_tokens, n_prompt;
} submitted;
typedef struct {
    submitted *at;
    size_t n, cap;
    double lateness; /* seconds that a message may be late */
} submissions;

void submissions_deinit(submissions *l);

/* Remembers a submission; came: when its request first came. Returns what is wrong with it, or NULL. */
const char *submissions_add(submissions *l, const submission *s, double came);

#endif
