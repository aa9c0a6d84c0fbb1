/* fault_worker.h - a simulated worker: the engine's rules, and tokens that are a pure function of request and index
 *
 * What a request does is in its fault_truth, which the worker asks; so a wrong, missing or repeated token is
 * seen by whoever gets it. */
#ifndef PUNICA_BENCH_FAULT_WORKER_H
#define PUNICA_BENCH_FAULT_WORKER_H

#include "bench/fault_message.h"

/* What happens to a request when all goes well. */
typedef struct {
    int n_prompt, max_tokens;
    int n_output;               /* tokens it makes; fewer than max_tokens: it stops by itself */
    int kills_at;               /* -1, or the token at which it kills its worker */
    bool fails;                 /* its adapter is broken */
} fault_truth;

/* Token `index` of a request's prompt and output together. */
int fault_token(uint64_t id, int index);

typedef struct {
    int max_batch, n_pages, page_len;
    bool late_ends;             /* that a budget is spent is reported a step after its last token */
    const fault_truth *truth;   /* by id; borrowed */
} fault_worker_setup;

typedef struct fault_worker fault_worker;

fault_worker *fault_worker_new(const fault_worker_setup *s);
void fault_worker_free(fault_worker *w);         /* w may be NULL */

/* Forget everything, as at the start. */
void fault_worker_reset(fault_worker *w);

/* A command; it is taken in before the next step. Takes the message. */
void fault_worker_send(fault_worker *w, message *m);

/* Take in what came; NULL, or the report that says so: sent before the step, so that it is known who was there if the
 * step kills the worker. */
message *fault_worker_take_in(fault_worker *w);

/* One step, over whoever is there; also an idle one. NULL: it has died of it. */
message *fault_worker_step(fault_worker *w);

bool fault_worker_is_empty(const fault_worker *w);          /* no request here or on its way, all pages free */

/* The first rule the scheduler made it break, or NULL. */
const char *fault_worker_violation(const fault_worker *w);

#endif
