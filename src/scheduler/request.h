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

/* When a worker dies, one of those it had taken in may have done it; which, nobody can say as long as there are two.
 * Who was there is a suspect, and shares no GPU with another suspect until it has made a token. If its worker dies
 * again it is confined: it runs alone until it has made a token. Only who is alone can be told to have killed, and not
 * even then is it certain, as hardware fails, too: so it takes MOST_DEATHS.alone in a row. Whoever makes a token now
 * and then, and has seen MOST_DEATHS.ever, is confined for good, so that no request can go on killing for ever.
 *
 * A worker that was killed from outside is no evidence against anybody but for the out-of-memory killer, which a
 * request may have called. So that such a request ends at last, these are counted too, apart from crashes and with
 * limits that nobody meets by chance.
 *
 * When a link to a runner is lost, those that were on their way over it are suspects as well: a message may have been
 * the runner's end. Links are lost for many reasons, so nobody is told to have done it before MOST_LOST in a row. */
typedef struct { int ever, alone; } death_count; /* alone: those it was alone on, in a row since its last token */
static const death_count MOST_DEATHS[N_DEATHS] = {[LOSS_CRASH] = {16, 3}, [LOSS_KILLED] = {64, 16}};
enum { MOST_LOST = 16 };

enum { CACHE_LINE = 64 };

/* There are many, touched in no order: what a token needs lies in one cache line, and the places in queues and lists,
 * which others' coming and going changes, in another. */
typedef struct request {
    /* Every token. */
    shares_tenant *tenant; /* borrowed */
    int frontend;
    uint32_t attempt; /* while on a GPU */
    uint32_t token_cap;
    bool taken_on;       /* placed before, or comes again: not to be refused */
    bool suspect;        /* its worker or runner may have died of it, and it has made no token since */
    bool confined;       /* a suspect whose worker died again: it runs alone until it has made a token */
    bool was_confined;   /* where it runs now */
    bool may_be_late;    /* in the list of those that wait for their first GPU */
    bool aside;          /* in the list of those that no open GPU could hold, and in no line */
    submission what;     /* copies; tokens grow. Its first half belongs to this line, the rest to the next two */
    struct gpu *on;      /* borrowed; NULL: it waits */
    wait_queue *line;    /* borrowed: the one it is in, or NULL */
    uint64_t add;        /* while on a GPU: number of its add among that GPU's commands */
    double since;        /* when it was submitted */
    double placed_again; /* when it last came to a GPU and was taken on before */
    /* Places. */
    _Alignas(CACHE_LINE) wait_item order; /* before it is taken on: by what its tenant asked, then by arrival. From then
                                           * on: by its turn, when that was; if it came again, by when it first came */
    TAILQ_ENTRY(request) siblings;        /* of the same frontend */
    TAILQ_ENTRY(request) later;           /* of those that may be late */
    /* Seldom. */
    TAILQ_ENTRY(request) beside; /* of those aside */
    double aside_since;
    death_count deaths[N_DEATHS]; /* of workers that had taken it in; alone: 0 unless it is a suspect */
    int n_lost; /* links on its way over which it was, since its last token: 0 unless it is a suspect */
} request;

_Static_assert(offsetof(request, what.id) <= CACHE_LINE, "what a token needs lies in one cache line");
_Static_assert(offsetof(request, order) / CACHE_LINE == (offsetof(request, beside) - 1) / CACHE_LINE,
               "the places lie in one cache line");

typedef TAILQ_HEAD(, request) request_list;

/* The request of an item of its queue; NULL for NULL. */
static inline request *request_of(const wait_item *i)
{
    return i ? (request *)((char *)i - offsetof(request, order)) : NULL;
}

/* Where requests lie, and what they and GPUs point to. */
typedef struct {
    slab *requests;
    slabs *rest;
} request_memory;

request *request_new(request_memory *memory, const submission *what, shares_tenant *t, int frontend, double now);
void request_free(request_memory *memory, request *r);

static inline int request_n_output(const request *r)
{
    return r->what.n_tokens - r->what.n_prompt;
}

/* How many tokens have been reported, and how many may be: those of the prompt that are scored, then output. */
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

/* Whether it has seen so many workers die that it is confined for good. */
static inline bool request_saw_too_many(const request *r)
{
    return r->deaths[LOSS_CRASH].ever >= MOST_DEATHS[LOSS_CRASH].ever ||
           r->deaths[LOSS_KILLED].ever >= MOST_DEATHS[LOSS_KILLED].ever;
}

/* What room it needs. */
static inline room_kind request_room(const request *r)
{
    return r->confined ? ROOM_ALONE : r->suspect ? ROOM_SUSPECT : ROOM_ANY;
}

/* Tokens have been reported: those of the prompt are counted, the others appended. How many these are. */
int request_take(request_memory *memory, request *r, const int *token, int n);

#endif
