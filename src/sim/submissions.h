/* submissions.h - what frontends have submitted, over the lives of all schedulers
 *
 * A request that is submitted again must be the same one: come when it came before, as far as messages are not late,
 * with the tokens that were said before, perhaps more of them, for the same tenant, and said to come again. A scheduler
 * forgets, so it cannot tell. */
#ifndef PUNICA_SIM_SUBMISSIONS_H
#define PUNICA_SIM_SUBMISSIONS_H

#include "scheduler/scheduler.h"

typedef struct {
    uint64_t id, tokens, tenant;
    double came;
    int n_tokens, n_prompt;
} submitted; /* tokens, tenant: hashes */
typedef struct {
    submitted *at;
    size_t n, cap;
    double lateness;
} submissions; /* lateness: of a message at most */

void submissions_deinit(submissions *l);

/* Remember a submission of a request that came then. NULL, or what is wrong with it. */
const char *submissions_add(submissions *l, const submission *s, double came);

#endif
