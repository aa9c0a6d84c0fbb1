/* dispatch.h - requests that are at the scheduler, and the link to it
 *
 * Keeps of every live request all that is needed to ask for the rest of it: prompt, sampling, and the tokens that have
 * come. So a lost link, or a scheduler that was restarted, costs nothing but time: when the link is up again all live
 * requests are submitted again, in the order of their arrival. Tokens reach the owner once each and in order, whatever
 * happens behind the link.
 *
 * One event loop, one thread, with one exception: when tokens of many requests come at once, their owners are told on
 * several threads, since what they do with a token (its text, its send()) takes far longer than the token's way to
 * them. */
#ifndef PUNICA_FRONTEND_DISPATCH_H
#define PUNICA_FRONTEND_DISPATCH_H

#include <stdatomic.h>

#include "base/digest.h"
#include "base/err.h"
#include "frontend/held_versions.h"
#include "net/link.h"

typedef struct {
    const char *scheduler; /* address */
    link_options link;     /* credentials, model; the role is set here */
    int max_live;          /* requests; more are refused */
    int threads;           /* on which owners are told of tokens */
    double patience;       /* seconds without a scheduler after which live requests end with TOO_LATE */
    atomic_int *context; /* borrowed: the most tokens of prompt and output together, as the model allows at first; kept
                          * lower while the GPUs hold less. NULL: not wanted */
    held_versions *held; /* borrowed; NULL: there is no disk cache */
    void (*residents)(void *ctx, const Residents *r); /* a GPU has these adapters; NULL: not wanted */
    void *residents_ctx;
} dispatch_options;

typedef struct dispatch dispatch;

/* What a request needs to be served. Everything is copied. */
typedef struct {
    const char *tenant;    /* whose share of the GPUs it takes; NULL: the tenant without a name */
    uint32_t weight;       /* of that share; 0: 1 */
    int priority;          /* among those of its tenant that wait: lower is earlier */
    const char *adapter;   /* NULL: the base model */
    const digest *version; /* of the adapter, for all of the request; NULL: whichever there is */
    const int *token;      /* [n_tokens] the prompt */
    int n_tokens, max_tokens;
    int n_to_score; /* the last so many tokens of the prompt come back with their logprobs, before any output */
    const Sampling *sampling;
} dispatch_request;

/* tokens: called when tokens have come, of the prompt while it is scored, then of output; p: [n] their logprobs, or
 * NULL. On any thread, while others may be told of other requests: it must touch nothing but its own and call nothing
 * of dispatch. after_tokens: called after each of these on the loop's thread, unless the request has been cancelled in
 * between. cached: called on the loop's thread before the first token, with the number of tokens of the prompt that did
 * not have to be computed; not called for 0. end: called when there will be no more; the id is not valid any more.
 * after_tokens and end may cancel any request, also their own. */
typedef struct {
    void (*tokens)(void *ctx, const int *token, int n, Logprobs *const *p);
    void (*after_tokens)(void *ctx);
    void (*cached)(void *ctx, uint32_t n);
    void (*end)(void *ctx, EndReason why, const char *message, double retry_after);
} dispatch_events;

/* Connects to the scheduler. NULL with e set when the address or the TLS files are bad. */
dispatch *dispatch_new(net_loop *on, const dispatch_options *o, err *e);
void dispatch_free(dispatch *d); /* cancels nothing: the scheduler notices the lost link */

/* Submits a request. Returns its id, or 0 when too many are live. events: static; none is called from within. */
uint64_t dispatch_submit(dispatch *d, const dispatch_request *r, const dispatch_events *events, void *ctx);

/* Forgets the request; the scheduler frees what it holds. Unknown ids are ignored. */
void dispatch_cancel(dispatch *d, uint64_t id);

bool dispatch_is_up(const dispatch *d);      /* the scheduler is there */
bool dispatch_is_patient(const dispatch *d); /* it is, or has been gone for less than `patience` */
int dispatch_n_gpus(const dispatch *d);      /* that take requests, as the scheduler says; 0: no scheduler */
int dispatch_n_live(const dispatch *d);
uint64_t dispatch_n_reconnections(const dispatch *d);

/* Wakes the threads, as tokens of many requests are about to come. */
void dispatch_wake(dispatch *d);

#endif
