/* gpu.h - a GPU as the scheduler knows it: who runs there, and what room is left (internal to the scheduler)
 *
 * Pages are what the GPU last reported, less those of adds it had not taken in when it counted. Every command sent
 * to it has a number, from 1; a report says up to which it has taken them in. */
#ifndef PUNICA_SCHEDULER_GPU_H
#define PUNICA_SCHEDULER_GPU_H

#include "scheduler/gpu_order.h"
#include "scheduler/request.h"

/* A command on its way. An add: pages are what its request will take, 0 once that is cancelled. A cancel: pages
 * are what it gives back, once the add it undoes has been taken in. */
typedef struct {
    uint64_t undoes; /* number of the add; 0: this is an add */
    int pages;
} unseen_command;

typedef struct {
    uint64_t id;
    double turn;
    request *r;
} seat; /* what it is looked for by beside it, so that not all are touched */

typedef struct gpu {
    gpu_node order; /* first: a gpu_node of ours is a gpu */
    int number;
    uint32_t life;           /* from 1; of all GPUs that ever came up no two have the same: a number is used again */
    bool touched;            /* its place in the order is to be set again */
    bool draining;           /* its runner wants it empty, for good */
    bool slow;               /* it takes much longer than it should */
    bool shunned;            /* is slow, and another is open that is not */
    bool closed;             /* being emptied by consolidation: takes nobody */
    bool reserved;           /* for those who must be alone; others leave, and none come */
    int pages_free;          /* as reported */
    host_pages host;         /* the same */
    int64_t pages_coming;    /* of adds not taken in yet */
    uint64_t n_sent, n_seen; /* commands */
    seat *running;           /* [n_running] by turn */
    int n_running, n_suspects, n_confined; /* confined ones are suspects, too */
    int n_promised, n_promised_suspects;   /* places and pages that a plan of consolidation has spoken for */
    int64_t pages_promised;
    unseen_command *unseen; /* [n_sent - n_seen] from number n_seen + 1 on */
    gpu_info info;          /* its strings are owned */
    size_t running_bytes, unseen_bytes;
    slabs *memory; /* borrowed: where it and its arrays lie */
} gpu;

gpu *gpu_new(slabs *memory, int number, uint32_t life, const gpu_info *info);
void gpu_free(gpu *g);

/* Whether a GPU takes requests; from one that does not, those it has are to leave. */
static inline bool gpu_is_open(const gpu *g)
{
    return !g->draining && !g->shunned;
}

/* The request that is on this GPU as this attempt, or NULL. *near: where to look first; it moves on, so that a report
 * in our order is read off in one pass. */
request *gpu_find(const gpu *g, uint64_t id, uint32_t attempt, int *near);

/* Prefetches requests that will be touched soon, as they are spread over memory: to be called with 0, 1, 2 and so on
 * before the requests of a report are touched in our order. */
void gpu_prefetch(const gpu *g, int at);

/* Tokens of prompt and output that it could ever hold of one request. */
int64_t gpu_capacity(const gpu *g);

/* Pages that a request takes when it is added, counting the token it will make first. */
int gpu_pages_for(const gpu *g, const request *r);

/* Computes the room it has, for each kind of request (room_kind). */
void gpu_rooms(const gpu *g, int64_t rooms[N_ROOMS]);

/* Set its place in the order from everything else. */
void gpu_update_order(gpu *g, gpu_order *o);

/* Puts a request on the GPU, or takes it off. The caller sends the command right after. A request is taken off without
 * a command (told false) where the GPU has already forgotten it. */
void gpu_add(gpu *g, request *r);
void gpu_remove(gpu *g, request *r, bool told);

/* A suspect that runs here has made a token: it is none any more. */
void gpu_clear(gpu *g, request *r);

/* Any request that runs here has made a token. */
static inline void gpu_trust(gpu *g, request *r)
{
    if (r->suspect)
        gpu_clear(g, r);
}

/* Notes what a report says: how many commands the GPU has taken in, and how many pages are free after these. */
void gpu_saw(gpu *g, uint64_t n_seen, int pages_free);

/* Pages that will be free when all commands on their way are taken in; below 0: too few. */
int64_t gpu_balance(const gpu *g);

bool gpu_is_light(const gpu *g, double light_share); /* and open, not idle or reserved */

void gpu_check(const gpu *g);

#endif
