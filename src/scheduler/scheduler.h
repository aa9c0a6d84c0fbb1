/* scheduler.h - which GPU serves what
 *
 * Policy only: events and a clock reading go in, commands come out through one function. It has no
 * sockets, threads or clock of its own, so that the same code runs in production, in the one-hour experiment
 * (in virtual time, within seconds) and in the fault simulation.
 *
 *   frontends ── submit, cancel ──▶ scheduler ── add, cancel ──▶ GPUs
 *   frontends ◀── tokens, end ───── scheduler ◀── reports ────── GPUs
 *
 * A request belongs to the frontend that submitted it. It is in the queue or on one GPU, never both. Each time
 * it is given to a GPU is an attempt with a number of its own; what a report says of another attempt is stale
 * and ignored. To move a request, for whatever reason, is to forget it on its GPU and to give `prompt + tokens so
 * far` to another GPU as its next attempt.
 *
 * Requests that wait for their first GPU come after those that have been on one; among the former tenants share by
 * weight (shares.h). The time when a request is first given to a GPU is its turn. Everything else is ordered by turn:
 * requests that are in line again, and those on a GPU, of which the newest leave first when pages are short. So the
 * request of a tenant with a small share is not the newest for ever.
 *
 * A GPU is open if it is up, not draining, and not slow while another is open that is not slow. A request that no open
 * GPU could hold, however empty, waits aside and holds up nobody until a GPU opens that can, or max_aside is over; only
 * a new one that is too large for every GPU seen so far is ended at once. While no GPU is open, all wait in line.
 *
 * The scheduler keeps no ledger of pages: a GPU reports how many are free, and how many commands it had taken in
 * when it counted; the pages of requests added since are subtracted. */
#ifndef PUNICA_SCHEDULER_SCHEDULER_H
#define PUNICA_SCHEDULER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct scheduler scheduler;

typedef struct {
    int max_queue;            /* requests that may wait; one more is refused (unless its tenant has few in line) */
    double max_wait;          /* seconds a request may wait for its first GPU; 0: for ever */
    double max_no_gpu;        /* the same while no GPU is open */
    double max_aside;         /* seconds a request may wait for a GPU that is large enough for it; 0: for ever */
    double consolidate_every; /* seconds between looks at lightly loaded GPUs; 0: never */
    double move_again_after;  /* seconds before consolidation moves the same request again */
    double light_share;       /* a GPU is lightly loaded below this share of its batch limit */
    double prefill_rate;      /* tokens of prefill a second on the new GPU: what a move costs */
    double step_time;         /* seconds of a decode step: what not emptying a GPU costs, per token left */
    size_t max_prefixes;      /* marks of requests' beginnings to remember (prefixes.h); 0: none */
} scheduler_options;

scheduler_options scheduler_options_default(void);

/* A request as a frontend submits it, for the first time or again after a lost link. Everything is copied. */
typedef struct {
    const int *token; /* [n_tokens] prompt, then output the frontend already has */
    int n_tokens, n_prompt;
    int max_tokens;           /* of output, over all attempts */
    int n_to_score, n_scored; /* tokens of the prompt to be reported as if they were output, ahead of it; those that
                                 have been */
    bool again;               /* it was submitted before (implied if it has output), so it is taken on, not new; only
                               * new ones are refused for a full queue or a long wait */
    uint64_t id;              /* unique in the cluster */
    double arrival;           /* when it first came, by the clock of `now`; towards GPUs: its turn, their order */
    const char *adapter;      /* NULL: the base model */
    const void *digest;       /* [digest_bytes] of the adapter's content; handed on unread, 0 bytes: none */
    size_t digest_bytes;
    const void *sampling; /* the rest of what the worker needs; handed on unread */
    size_t sampling_bytes;
    const char *tenant; /* whose share of the GPUs it takes; NULL: the one without a name */
    uint32_t weight;    /* of that tenant (shares.h) */
    int priority;       /* among those of its tenant that wait for their first GPU: lower is earlier */
} submission;

/* Why a request, or an attempt of it, ended. Workers report the first four; END_EVICTED ends only the attempt, and the
 * request is scheduled again. Frontends are told all but END_EVICTED, and make a finish reason or an HTTP status
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
    int index; /* of the first, counted from the first token reported of the request */
    int n;
    const int *token;  /* [n] */
    const void *extra; /* logprobs, handed on unread */
    size_t extra_bytes;
    uint32_t cached; /* tokens of the prompt that did not have to be computed, handed on unread */
} report_tokens;

/* The end of an attempt. retry_after: of a failure, seconds after which a retry may help; 0: never. Handed on. */
typedef struct {
    uint64_t id;
    uint32_t attempt;
    end_reason why;
    const char *message;
    double retry_after;
} report_end;

/* A GPU's pages in host memory: there now; saved to it and fetched back since its worker was started. For metrics. */
typedef struct {
    uint32_t n_pages;
    uint64_t saved, fetched;
} host_pages;

/* What a GPU did in a step, or that it is still there. Tokens come before ends. */
typedef struct {
    uint64_t n_seen; /* commands taken in so far, counted from gpu_up */
    int pages_free;  /* less those that its waiting requests will need; below 0: too few, and its newest
                      * requests go elsewhere */
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
    bool on_probation;  /* its last worker crashed: it counts as slow until scheduler_gpu_pace() */
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

/* Receives every command, in order, from within the functions below; must not call them. */
typedef void command_sink(void *ctx, const command *c);

/* Options are copied; ctx is passed to sink. Free with scheduler_free(). */
scheduler *scheduler_new(const scheduler_options *o, command_sink *sink, void *ctx);
void scheduler_free(scheduler *s);

/* How a GPU is lost. LOSS_CRASH: its worker crashed or hung; one of the requests it had taken in may be the cause.
 * LOSS_KILLED: the worker was killed or stopped from outside, which is no request's fault unless it was the
 * out-of-memory killer. LOSS_LINK: the link to its runner was lost; a request on its way may have ended the runner. */
typedef enum { LOSS_CRASH, LOSS_KILLED, LOSS_LINK } gpu_loss;
enum { N_DEATHS = LOSS_LINK }; /* the losses before it are deaths of workers */

/* An observer: told of every event before it is handled, and of every command. For simulations and tests. */
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

/* Add and remove frontends and GPUs, known by small numbers that the caller gives out and may use again. The requests
 * of a frontend that is gone are dropped; those of a GPU that is gone go to others. */
void scheduler_frontend_up(scheduler *s, int frontend);
void scheduler_frontend_gone(scheduler *s, double now, int frontend);
void scheduler_gpu_up(scheduler *s, double now, int gpu, const gpu_info *info);

void scheduler_gpu_gone(scheduler *s, double now, int gpu, gpu_loss how);

/* Removes several GPUs whose link was lost, gpu[n], at once, so that no request moves from one of them to another. */
void scheduler_gpus_gone(scheduler *s, double now, const int *gpu, int n);

/* Drains gpu[n]: they get no new requests, and those they have move away as others have room; none moves from one of
 * them to another. */
void scheduler_gpus_drain(scheduler *s, double now, const int *gpu, int n);

/* Notes that a GPU has become slow, or is no longer (pace.h). As long as another is open that is not slow, a slow GPU
 * is given nothing new, and the requests it has move away as others have room. */
void scheduler_gpu_pace(scheduler *s, double now, int gpu, bool slow);

/* Submits a request. An id that is there already is an error of the frontend: it is ended with END_FAILED, and the
 * older request dropped if it is of the same frontend. Cancel forgets a request of this frontend; unknown ids are
 * ignored. */
void scheduler_submit(scheduler *s, double now, int frontend, const submission *r);
void scheduler_cancel(scheduler *s, double now, int frontend, uint64_t id);

/* Handles a GPU's report of what it has done. False if it reports what cannot be: tokens that are not the next of their
 * request, or more commands than it was sent, or fewer than before. The GPU is then lost, as by scheduler_gpus_gone(),
 * and the caller should drop its link. */
bool scheduler_report(scheduler *s, double now, int gpu, const gpu_report *r);

/* Does what time has made due: ends late requests, consolidates. Returns seconds until it is to be called again. */
double scheduler_tick(scheduler *s, double now);

typedef struct {
    int n_gpus, n_idle, n_light, n_full, n_slow; /* full: at the batch limit */
    int n_running, n_queued;
    int n_suspects;  /* their worker or runner died, and they have made no token since */
    bool wants_more; /* no lightly loaded or idle GPU is left */
    uint64_t submitted, finished, failed, refused, cancelled, evicted, moved, recovered, stale; /* since new */
} scheduler_stats;

scheduler_stats scheduler_get_stats(const scheduler *s);
int scheduler_n_open(const scheduler *s); /* GPUs that take requests */
int64_t scheduler_capacity(
    const scheduler *s); /* tokens of one request that the largest open GPU holds; 0: none is open */

typedef struct {
    const char *uuid;
    int n_running, max_batch, pages_free, n_pages, page_len;
    bool draining, slow;
    const char *device;
    host_pages host;
} gpu_state;

/* Reads the state of a GPU; its strings are borrowed until the GPU is gone. False if there is none of this number. */
bool scheduler_get_gpu(const scheduler *s, int gpu, gpu_state *state);

/* Aborts unless the scheduler's state is consistent. For tests: takes time. */
void scheduler_check(const scheduler *s);

#endif
