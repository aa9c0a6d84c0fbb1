/* state.h - everything the scheduler knows (internal to scheduler.c, placement.c and consolidate.c) */
#ifndef PUNICA_SCHEDULER_STATE_H
#define PUNICA_SCHEDULER_STATE_H

#include "base/id_map.h"
#include "scheduler/gpu.h"
#include "scheduler/prefixes.h"
#include "scheduler/shares.h"

/* Stays where it is: a list knows the address of its head. */
typedef struct { request_list requests; } frontend_state;

/* Prompt and adapter of a request that was ended for killing workers. */
typedef struct {
    uint64_t mark[2];
    double until;
} known_killer;
enum { MOST_KILLERS = 256 };

struct scheduler {
    scheduler_options opt;
    command_sink *sink;
    void *ctx;                /* borrowed */
    const scheduler_tap *tap; /* borrowed; NULL: none, else sink and ctx are ours, and the caller's these: */
    command_sink *tapped_sink;
    void *tapped_ctx;
    frontend_state **frontends; /* [n_frontends] by number; NULL: none */
    gpu **gpus;                 /* [n_gpus] by number; NULL: none */
    size_t n_frontends, frontends_cap, n_gpus, gpus_cap;
    uint32_t n_lives;   /* of GPUs, so far */
    gpu_order order;    /* of the GPUs that have room */
    prefixes *prefixes; /* of requests that were placed */
    gpu **touched;      /* [n_touched] whose place in it is not up to date */
    size_t n_touched, touched_cap;
    int n_open;            /* GPUs that do not drain */
    double none_since;     /* while there are none: since when, as far as is known; else below 0 */
    int64_t capacity;      /* the largest of theirs */
    int64_t most_capacity; /* the largest ever */
    id_map *requests;      /* all, by id */
    request_memory memory;
    shares newcomers;                              /* who waits for its first GPU */
    wait_queue queue, suspects, confined, leaving; /* who has been on one */
    double last_turn;                              /* given out: no two are equal (request.h) */
    gpu *reserved;                                 /* borrowed: that takes only those who must be alone; NULL: none */
    known_killer killers[MOST_KILLERS];            /* the newest, so that they are known when they come again */
    size_t n_killers;                              /* ever */
    request_list may_be_late;                      /* by submission */
    request_list aside;                            /* that no open GPU could hold, by when they stepped aside */
    int n_aside;                                   /* of those, on no GPU */
    uint32_t n_attempts; /* numbers given out: a request that comes again must not repeat one */
    int n_running;
    double next_look;      /* when consolidation is due */
    scheduler_stats stats; /* the counters */
};

#endif
