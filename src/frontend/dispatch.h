/* dispatch.h - requests that are at the scheduler, and the link to it
 *
 * Of every live request this keeps all that is needed to ask for the rest of it: prompt, sampling, and the tokens
 * that have come. A lost link, or a scheduler that was restarted, therefore costs nothing but time: when the link is
 * up again all live requests are submitted again, in the order of their arrival. Tokens reach the owner once each and
 * in order, whatever happens behind the link.
 *
 * One event loop, one thread, with one exception: when tokens of many requests come at once, their owners are told on
 * several threads, since what they do with a token (its text, its send()) takes far longer than its way to them. */
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
    atomic_int *context; /* borrowed: tokens of prompt and output together that a request may have, as the model allows;
                          * kept at what the GPUs hold where that is less. NULL: nobody wants to know */
    held_versions *held; /* borrowed; NULL: there is no disk cache */
    void (*residents)(void *ctx, const Residents *r); /* a GPU has these adapters; NULL: nobody wants to know */
    void *residents_ctx;
} dispatch_options;

typedef struct dispatch dispatch;

/* What a request needs to be served. Everything is copied. */
typedef struct {
    const char *tenant;    /* whose share of the GPUs it takes; NULL: of the one without a name */
    uint32_t weight;       /* of that share; 0: 1 */
    int priority;          /* among those of its tenant that wait: lower is earlier */
    const char *adapter;   /* NULL: the base model */
    const digest *version; /* of the adapter, that all of it is to be served with; NULL: whatever it is */
    const int *token;      /* [n_tokens] the prompt */
    int n_tokens, max_tokens;
    int n_to_score; /* the last so many tokens of the prompt come back with their logprobs, before any output */
    const Sampling *sampling;
} dispatch_request;

/* tokens: some have come, of the prompt where it is scored, then of output; p: [n] their logprobs, or NULL. On any
 * thread, while others may be told of other requests: it must touch nothing but its own and call nothing of dispatch.
 * settle: behind each of these, on the loop's thread, unless the request has been cancelled in between. cached: how
 * many tokens of its prompt did not have to be computed, before its first token, on the loop's thread; nobody says so
 * where it is none. end: there will be no more; the id is not valid any more. Settle and end may cancel any request,
 * also their own. */
typedef struct {
    void (*tokens)(void *ctx, const int *token, int n, Logprobs *const *p);
    void (*settle)(void *ctx);
    void (*cached)(void *ctx, uint32_t n);
    void (*end)(void *ctx, EndReason why, const char *message, double retry_after);
} dispatch_events;

/* NULL with e set when the address or the TLS files are bad. */
dispatch *dispatch_new(net_loop *on, const dispatch_options *o, err *e);
void dispatch_free(dispatch *d); /* cancels nothing: the scheduler notices the lost link */

/* The request's id, or 0 when too many are live. Nothing is called from within. */
uint64_t dispatch_submit(dispatch *d, const dispatch_request *r, const dispatch_events *events, void *ctx);

/* Forget the request; the scheduler frees what it holds. Unknown ids are ignored. */
void dispatch_cancel(dispatch *d, uint64_t id);

bool dispatch_is_up(const dispatch *d);      /* the scheduler is there */
bool dispatch_is_patient(const dispatch *d); /* or has not been gone for long */
int dispatch_n_gpus(const dispatch *d);      /* that take requests, as the scheduler says; 0 without one */
int dispatch_n_live(const dispatch *d);
uint64_t dispatch_n_reconnections(const dispatch *d);

/* Tokens of many requests are about to come: be quick. */
void dispatch_rouse(dispatch *d);

#endif
