/* gpu.h - a GPU as the scheduler knows it: who runs there, and what room is left (internal to the scheduler)
 *
 * Pages are what the GPU last reported, less those of adds it had not taken in when it counted. Every command sent
 * to it has a number, from 1; a report says up to which it has taken them in. */
#ifndef PUNICA_SCHEDULER_GPU_H
#define PUNICA_SCHEDULER_GPU_H

#include "scheduler/gpu_order.h"
#include "scheduler/request.h"

/* A command on its way. pages: of an add, what its request will take, or 0 once that is cancelled; of a cancel, what it
 * gives back once the add that it undoes has been taken in. */
typedef struct {
    uint64_t undoes; /* number of the add; 0: this is an add */
    int pages;
} unseen_command;

typedef struct {
    uint64_t id;
    double turn;
    request *r;
} seat; /* a request beside the keys it is searched by, so that a search touches one request alone */

typedef struct gpu {
    gpu_node order; /* first: a gpu_node of ours is a gpu */
    int number;
    uint32_t life;           /* from 1; unique among all GPUs that ever came up, while numbers are used again */
    bool touched;            /* its place in the order is out of date */
    bool draining;           /* its runner wants it empty, for good */
    bool slow;               /* it takes much longer than it should */
    bool shunned;            /* it is slow, and another is open that is not */
    bool closed;             /* being emptied by consolidation: takes nobody */
    bool reserved;           /* kept for a confined request: others leave, and none come */
    int pages_free;          /* as reported */
    host_pages host;         /* the same */
    int64_t pages_coming;    /* of adds not taken in yet */
    uint64_t n_sent, n_seen; /* commands */
    seat *running;           /* [n_running] by turn */
    int n_running, n_suspects, n_confined; /* confined ones are suspects, too */
    int n_promised, n_promised_suspects;   /* places and pages reserved by a plan of consolidation */
    int64_t pages_promised;
    unseen_command *unseen; /* [n_sent - n_seen] from number n_seen + 1 on */
    gpu_info info;          /* its strings are owned */
    size_t running_bytes, unseen_bytes;
    slabs *memory; /* borrowed: allocator of it and its arrays */
} gpu;

gpu *gpu_new(slabs *memory, int number, uint32_t life, const gpu_info *info);
void gpu_free(gpu *g);

/* Returns whether a GPU takes requests; those on one that does not are to leave it. */
static inline bool gpu_is_open(const gpu *g)
{
    return !g->draining && !g->shunned;
}

/* Returns the request that is on this GPU as this attempt, or NULL. *near: index to look at first; it is set behind the
 * request found, so that a report in the order of `running` takes one pass. */
request *gpu_find(const gpu *g, uint64_t id, uint32_t attempt, int *near);

/* Prefetches requests that will be touched soon, as they are spread over memory: to be called with at 0, 1, 2 and so
 * on, before each request of a report is touched in the order of `running`. */
void gpu_prefetch(const gpu *g, int at);

/* Returns the tokens of prompt and output that an empty GPU holds of one request. */
int64_t gpu_capacity(const gpu *g);

/* Returns the pages that a request takes when it is added, counting the token it will make first. */
int gpu_pages_for(const gpu *g, const request *r);

/* Sets its place in the order from everything else. */
void gpu_update_order(gpu *g, gpu_order *o);

/* Puts a request on the GPU, or takes it off. The caller sends the command right after. A request is taken off without
 * a command (told false) where the GPU has already forgotten it. */
void gpu_add(gpu *g, request *r);
void gpu_remove(gpu *g, request *r, bool told);

/* Clears a suspect that runs here, as it has made a token; one that saw too many workers die stays confined. */
void gpu_clear(gpu *g, request *r);

/* Notes that a request that runs here has made a token. */
static inline void gpu_trust(gpu *g, request *r)
{
    if (r->suspect)
        gpu_clear(g, r);
}

/* Notes what a report says: how many commands the GPU has taken in, and how many pages are free after these. */
void gpu_record_report(gpu *g, uint64_t n_seen, int pages_free);

/* Returns the pages that will be free when all commands on their way are taken in; below 0: too few. */
int64_t gpu_balance(const gpu *g);

bool gpu_is_light(const gpu *g, double light_share); /* and open, neither idle nor reserved */

void gpu_check(const gpu *g);

#endif
