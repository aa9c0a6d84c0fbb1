/* scheduler.h - which GPU serves what
 *
 * Policy only: events and a clock reading go in, commands come out through one function. No sockets, no
 * threads, no time of its own, so that the same code runs in production, in the one-hour experiment in
 * seconds of virtual time, and in the fault simulation.
 *
 *   frontends ── submit, cancel ──▶ scheduler ── add, cancel ──▶ GPUs
 *   frontends ◀── tokens, end ───── scheduler ◀── reports ────── GPUs
 *
 * A request belongs to the frontend that submitted it. It is in the queue or on one GPU, never both. Every time
 * it is given to a GPU is an attempt with a number of its own; whatever a report says of another attempt is stale
 * and ignored. Moving a request, for whatever reason, is: forget it there, give `prompt + tokens so far` to
 * another GPU as its next attempt.
 *
 * Who waits for its first GPU comes after those who have been on one; among the former tenants share by weight
 * (shares.h). The first time a request is given to a GPU is its turn. Order everywhere else is by turn: in line again,
 * and on GPUs, whose newest leave first when pages are short. So whoever has a small share is not the newest for ever.
 *
 * A request that no open GPU could hold, however empty, waits aside and holds up nobody until one opens that can, or
 * max_aside is over; only a new one that is too large for every GPU seen so far is ended at once. (Open: up, not
 * draining, and not slow while another is open that is not. While none is, all wait in line.)
 *
 * The scheduler keeps no ledger of pages: a GPU reports how many are free, and how many commands it had taken in
 * when it counted; pages of requests added since are reckoned off. */
#ifndef PUNICA_SCHEDULER_SCHEDULER_H
#define PUNICA_SCHEDULER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct scheduler scheduler;

typedef struct {
    int max_queue;            /* requests that wait; one more is refused */
    double max_wait;          /* seconds a request may wait for its first GPU; 0: for ever */
    double max_no_gpu;        /* the same while there is no GPU at all */
    double max_aside;         /* seconds a request may wait for a GPU that is large enough for it; 0: for ever */
    double consolidate_every; /* seconds between looks at lightly loaded GPUs; 0: never */
    double move_again_after;  /* seconds before consolidation moves the same request again */
    double light_share;       /* a GPU is lightly loaded below this share of its batch limit */
    double prefill_rate;      /* tokens a second a GPU re-reads after a move: what a move costs */
    double step_time;         /* seconds of a decode step: what a GPU that is not emptied costs, per token left */
    size_t max_prefixes;      /* marks of requests' beginnings that are remembered (prefixes.h); 0: none */
} scheduler_options;

scheduler_options scheduler_options_default(void);

/* A request as a frontend submits it, for the first time or again after a lost link. Everything is copied. */
typedef struct {
    const int *token; /* [n_tokens] prompt, then output the frontend already has */
    int n_tokens, n_prompt;
    int max_tokens;           /* of output, over all attempts */
    int n_to_score, n_scored; /* tokens of the prompt that are reported as if they were output, before it: so many; so
                                 many have been */
    bool again;               /* it was submitted before, as is clear where there is output: it has been taken on, and
                               * is not new. New ones alone are refused for a full queue or a long wait */
    uint64_t id;              /* unique in the cluster */
    double arrival;           /* when it first came, by the clock of `now`; towards GPUs: what their order is by */
    const char *adapter;      /* NULL: the base model */
    const void *digest;       /* [digest_bytes] of the adapter's content; handed on unread, 0 bytes: none */
    size_t digest_bytes;
    const void *sampling; /* the rest of what the worker needs; handed on unread */
    size_t sampling_bytes;
    const char *tenant; /* whose share of the GPUs it takes; NULL: of the one without a name */
    uint32_t weight;    /* of that tenant's share (shares.h) */
    int priority;       /* among those of its tenant that wait for their first GPU: lower is earlier */
} submission;

/* Why a request ended, or an attempt of it. Workers report the first four, of which END_EVICTED ends the attempt alone:
 * the request is scheduled again. Frontends are told all but END_EVICTED, and make a finish reason or an HTTP status
 * of it. wire_end.h has the same set on the wire. */
typedef enum {
    END_STOP,
    END_LENGTH,
    END_FAILED,
    END_EVICTED,
    END_QUEUE_FULL,
    END_TOO_LATE,
    END_TOO_LARGE,
    END_KILLS_WORKERS
} end_reason;
enum { N_END_REASONS = END_KILLS_WORKERS + 1 };

typedef struct {
    uint64_t id;
    uint32_t attempt;
    int index; /* of the first, counted from the first that is reported */
    int n;
    const int *token;  /* [n] */
    const void *extra; /* logprobs, handed on unread */
    size_t extra_bytes;
    uint32_t cached; /* tokens of the prompt that did not have to be computed, handed on unread */
} report_tokens;

/* retry_after: of a failure, seconds after which coming again may help; 0: never. Handed on. */
typedef struct {
    uint64_t id;
    uint32_t attempt;
    end_reason why;
    const char *message;
    double retry_after;
} report_end;

/* A GPU's pages in host memory: there now; gone there and come back since its worker was started. For metrics. */
typedef struct {
    uint32_t n_pages;
    uint64_t saved, fetched;
} host_pages;

/* What a GPU did in a step, or that it is still there. Tokens come before ends. */
typedef struct {
    uint64_t n_seen; /* commands taken in so far, counted from gpu_up */
    int pages_free;  /* with those off that its waiting requests will need; below 0: it has too many, and
                      * the newest go elsewhere */
    host_pages host;
    int n_tokens, n_ends;
    const report_tokens *tokens;
    const report_end *ends;
} gpu_report;

typedef struct {
    const char *uuid;
    int max_batch;
    int n_pages, page_len;
    int max_tokens;     /* of prompt and output together, as the model allows */
    const char *device; /* what it is, in words; NULL: not said */
    bool on_probation;  /* its last worker crashed: as slow until scheduler_gpu_pace() says that it is not */
} gpu_info;

typedef enum { COMMAND_ADD, COMMAND_CANCEL, COMMAND_TOKENS, COMMAND_END } command_kind;

/* Pointers are valid during the call. */
typedef struct {
    command_kind kind;
    uint64_t id;
    int gpu;                     /* ADD, CANCEL: where to */
    int frontend;                /* TOKENS, END: where to */
    uint32_t attempt;            /* ADD, CANCEL */
    const submission *what;      /* ADD: with all tokens so far */
    const report_tokens *tokens; /* TOKENS: to be appended at their index */
    end_reason why;              /* END */
    const char *message;         /* END; NULL for STOP and LENGTH */
    double retry_after;          /* END_FAILED: as reported */
} command;

/* Called for every command, in order, from within the functions below; must not call them. */
typedef void command_sink(void *ctx, const command *c);

scheduler *scheduler_new(const scheduler_options *o, command_sink *sink, void *ctx);
void scheduler_free(scheduler *s);

/* How a GPU is lost. LOSS_CRASH: its worker crashed or hung, and one of those it had taken in may have done it.
 * LOSS_KILLED: somebody outside killed or stopped the worker, which is nobody's fault unless it was the out-of-memory
 * killer. LOSS_LINK: the link to its runner was lost, and one of those on their way may have ended the runner. */
typedef enum { LOSS_CRASH, LOSS_KILLED, LOSS_LINK } gpu_loss;
enum { N_DEATHS = LOSS_LINK }; /* the losses before it are deaths of workers */

/* Somebody who looks on: told of every event before it is handled, and of every command. For simulations and tests. */
typedef struct {
    void (*frontend_up)(void *ctx, int frontend);
    void (*frontend_gone)(void *ctx, double now, int frontend);
    void (*gpu_up)(void *ctx, double now, int gpu, const gpu_info *info);
    void (*gpus_gone)(void *ctx, double now, const int *gpu, int n, gpu_loss how);
    void (*gpus_drain)(void *ctx, double now, const int *gpu, int n);
    void (*gpu_pace)(void *ctx, double now, int gpu, bool slow);
    void (*submit)(void *ctx, double now, int frontend, const submission *r);
    void (*cancel)(void *ctx, double now, int frontend, uint64_t id);
    void (*report)(void *ctx, double now, int gpu, const gpu_report *r);
    void (*tick)(void *ctx, double now);
    void (*command)(void *ctx, const command *c);
    void *ctx;
} scheduler_tap;

void scheduler_set_tap(scheduler *s, const scheduler_tap *tap); /* borrowed */

/* Frontends and GPUs are known by small numbers that the caller gives out and may use again. A frontend that is
 * gone takes its requests with it; the requests of a GPU that is gone go to others. */
void scheduler_frontend_up(scheduler *s, int frontend);
void scheduler_frontend_gone(scheduler *s, double now, int frontend);
void scheduler_gpu_up(scheduler *s, double now, int gpu, const gpu_info *info);

void scheduler_gpu_gone(scheduler *s, double now, int gpu, gpu_loss how);

/* The link of several, gpu[n], was lost: all go at once, so that no request moves from one of them to another. */
void scheduler_gpus_gone(scheduler *s, double now, const int *gpu, int n);

/* No new requests for any of gpu[n], and those they have move away as others have room; not from one of them to
 * another. */
void scheduler_gpus_drain(scheduler *s, double now, const int *gpu, int n);

/* A GPU has become slow, or is no longer (pace.h). As long as another is open that is not slow, it is given nothing
 * new, and the requests it has move away as others have room. */
void scheduler_gpu_pace(scheduler *s, double now, int gpu, bool slow);

/* Submit takes on a request; one whose id is there already is an error of the frontend, and is ended with END_FAILED.
 * Cancel forgets a request of this frontend; unknown ids are ignored. */
void scheduler_submit(scheduler *s, double now, int frontend, const submission *r);
void scheduler_cancel(scheduler *s, double now, int frontend, uint64_t id);

/* Handles a GPU's report of what it has done. False when that cannot be, since its tokens are not the next of their
 * request or it has seen other commands than it was sent; the GPU is then lost, as by scheduler_gpus_gone(), and the
 * caller should drop its link. */
bool scheduler_report(scheduler *s, double now, int gpu, const gpu_report *r);

/* Let time pass: late requests, consolidation. Returns seconds until it wants to be called again. */
double scheduler_tick(scheduler *s, double now);

typedef struct {
    int n_gpus, n_idle, n_light, n_full, n_slow; /* full: at the batch limit */
    int n_running, n_queued;
    int n_suspects;  /* their worker died, and they have made no token since */
    bool wants_more; /* no lightly loaded or idle GPU is left */
    uint64_t submitted, finished, failed, refused, cancelled, evicted, moved, recovered, stale; /* since new */
} scheduler_stats;

scheduler_stats scheduler_get_stats(const scheduler *s);
int scheduler_n_open(const scheduler *s); /* GPUs that take requests */
int64_t scheduler_capacity(
    const scheduler *s); /* tokens of a request that the largest of them holds; 0: there is none */

typedef struct {
    const char *uuid;
    int n_running, max_batch, pages_free, n_pages, page_len;
    bool draining, slow;
    const char *device;
    host_pages host;
} gpu_state;

/* Whether there is a GPU of this number, and how it stands. */
bool scheduler_get_gpu(const scheduler *s, int gpu, gpu_state *state);

/* Abort unless everything the scheduler knows agrees with itself. For tests: takes time. */
void scheduler_check(const scheduler *s);

#endif
