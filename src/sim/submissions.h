/* submissions.h - what frontends have submitted, over the lives of all schedulers
 *
 * A request that is submitted again must be the same one: with the arrival and the tokens that were said before, perhaps
 * more of them, and said to come again. A scheduler forgets, so it cannot tell. */
#ifndef PUNICA_SIM_SUBMISSIONS_H
#define PUNICA_SIM_SUBMISSIONS_H

#include "scheduler/scheduler.h"

typedef struct { uint64_t id, tokens; double arrival; int n_tokens, n_prompt; } submitted;      /* tokens: their hash */
typedef struct { submitted *at; size_t n, cap; } submissions;

void submissions_deinit(submissions *l);

/* Remember a submission. NULL, or what is wrong with it. */
const char *submissions_add(submissions *l, const submission *s);

#endif
