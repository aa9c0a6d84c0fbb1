/* request.h - a request as the scheduler keeps it: in a line, or on one GPU (internal to the scheduler) */
#ifndef PUNICA_SCHEDULER_REQUEST_H
#define PUNICA_SCHEDULER_REQUEST_H

#include <limits.h>
#include <stddef.h>
#include <sys/queue.h>

#include "base/slab.h"
#include "scheduler/gpu_order.h"
#include "scheduler/scheduler.h"
#include "scheduler/shares.h"
#include "scheduler/wait_queue.h"

struct gpu;

/* When a worker dies, any request that it had taken in may have killed it; where there are two or more, nobody can say
 * which. Each becomes a suspect: it shares no GPU with another suspect until it has made a token. If the worker of a
 * suspect dies, the request is confined: it runs alone until it has made a token. Only a request that was alone can be
 * blamed, and even that is not certain, as hardware fails, too: it takes MOST_DEATHS.alone deaths in a row. One that
 * makes a token now and then, and has seen MOST_DEATHS.ever deaths, is confined for good, and ended by the next death
 * that it is alone on, so that no request can go on killing for ever.
 *
 * A worker killed from outside is no evidence against any request, unless it was the out-of-memory killer that a
 * request provoked. To end such a request at last, these deaths are counted too, apart from crashes and with limits
 * that are not reached by chance.
 *
 * When the link to a runner is lost, the requests that were on their way over it become suspects as well: a message may
 * have crashed the runner. Links are lost for many reasons, so a request is blamed only after MOST_LOST in a row. */
typedef struct { int ever, alone; } death_count; /* alone: in a row since its last token, with nothing else there */
static const death_count MOST_DEATHS[N_DEATHS] = {[LOSS_CRASH] = {16, 3}, [LOSS_KILLED] = {64, 16}};
enum { MOST_LOST = 16 };

enum { CACHE_LINE = 64 };

/* Requests are many and touched in no order: the fields that every token needs lie in one cache line, and the places in
 * queues and lists, which change as others come and go, in another. */
typedef struct request {
    /* Every token. */
    shares_tenant *tenant; /* borrowed */
    int frontend;
    uint32_t attempt; /* while on a GPU */
    uint32_t token_cap;
    bool taken_on;       /* placed before, or submitted again: not to be refused */
    bool suspect;        /* its worker or runner may have died of it, and it has made no token since */
    bool confined;       /* a suspect whose worker died again: it runs alone until it has made a token */
    bool was_confined;   /* until it made a token on the GPU where it runs now */
    bool may_be_late;    /* in the list of those that wait for their first GPU */
    bool aside;          /* in the list of those that no open GPU could hold, and in no line */
    submission what;     /* owned copies; tokens grow. The first half is in this cache line, the rest in the next two */
    struct gpu *on;      /* borrowed; NULL: it waits */
    wait_queue *line;    /* borrowed: the line it waits in, or NULL */
    uint64_t add;        /* while on a GPU: number of its add among that GPU's commands */
    double since;        /* when it was submitted */
    double placed_again; /* when it last came to a GPU and was taken on before */
    /* Places. */
    _Alignas(CACHE_LINE) wait_item order; /* until it is taken on: by priority, then arrival. From then on: by its turn,
                                           * or, if it was submitted again, by its first arrival */
    TAILQ_ENTRY(request) siblings;        /* in the list of its frontend */
    TAILQ_ENTRY(request) later;           /* in may_be_late (state.h) */
    /* Seldom. */
    TAILQ_ENTRY(request) beside; /* in the list of those aside */
    double aside_since;
    death_count deaths[N_DEATHS]; /* of workers that had taken it in; alone: 0 unless it is a suspect */
    int n_lost; /* links lost while it was on its way, since its last token: 0 unless it is a suspect */
} request;

_Static_assert(offsetof(request, what.id) <= CACHE_LINE, "what a token needs lies in one cache line");
_Static_assert(offsetof(request, order) / CACHE_LINE == (offsetof(request, beside) - 1) / CACHE_LINE,
               "the places lie in one cache line");

typedef TAILQ_HEAD(, request) request_list;

/* Returns the request whose `order` is i; NULL for NULL. */
static inline request *request_of(const wait_item *i)
{
    return i ? (request *)((char *)i - offsetof(request, order)) : NULL;
}

/* Allocators: one for requests, one for GPUs and for what both point to. */
typedef struct {
    slab *requests;
    slabs *rest;
} request_memory;

/* Makes a request of a submission, everything copied; it is taken on if it was submitted before. Free with
 * request_free(), when it is on no GPU and in no list. */
request *request_new(request_memory *memory, const submission *what, shares_tenant *t, int frontend, double now);
void request_free(request_memory *memory, request *r);

static inline int request_n_output(const request *r)
{
    return r->what.n_tokens - r->what.n_prompt;
}

/* Return how many tokens have been reported, and how many may be: the scored ones of the prompt, then output. */
static inline int request_n_told(const request *r)
{
    return r->what.n_scored + request_n_output(r);
}

static inline int request_most(const request *r)
{
    int n = r->what.n_to_score;
    return r->what.max_tokens < INT_MAX - n ? n + r->what.max_tokens : INT_MAX;
}

static inline bool request_is_spent(const request *r)
{
    return request_n_told(r) >= request_most(r);
}

/* Returns whether the request has seen so many workers die that it is confined for good. */
static inline bool request_saw_too_many(const request *r)
{
    return r->deaths[LOSS_CRASH].ever >= MOST_DEATHS[LOSS_CRASH].ever ||
           r->deaths[LOSS_KILLED].ever >= MOST_DEATHS[LOSS_KILLED].ever;
}

/* Returns the kind of room that the request needs. */
static inline room_kind request_room(const request *r)
{
    return r->confined ? ROOM_ALONE : r->suspect ? ROOM_SUSPECT : ROOM_ANY;
}

/* Records n tokens that were reported: counts those of the prompt, appends the output. Returns how many of these. */
int request_record(request_memory *memory, request *r, const int *token, int n);

#endif
