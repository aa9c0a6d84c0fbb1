/* state.h - everything the scheduler knows (internal to scheduler.c, placement.c and consolidate.c) */
#ifndef PUNICA_SCHEDULER_STATE_H
#define PUNICA_SCHEDULER_STATE_H

#include "base/id_map.h"
#include "scheduler/gpu.h"
#include "scheduler/prefixes.h"
#include "scheduler/shares.h"

/* Never moved in memory: the first entry of a list points back at its head. */
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
    const scheduler_tap *tap; /* borrowed; NULL: none, else sink and ctx are ours, and these the caller's: */
    command_sink *tapped_sink;
    void *tapped_ctx;
    frontend_state **frontends; /* [n_frontends] by number; NULL: none */
    gpu **gpus;                 /* [n_gpus] by number; NULL: none */
    size_t n_frontends, frontends_cap, n_gpus, gpus_cap;
    uint32_t n_lives;   /* numbers given to GPUs so far (gpu.h) */
    gpu_order order;    /* of the GPUs that have room */
    prefixes *prefixes; /* of the requests that were placed */
    gpu **touched;      /* [n_touched] GPUs whose place in `order` is out of date */
    size_t n_touched, touched_cap;
    int n_open;            /* GPUs that are open (gpu_is_open()) */
    double none_since;     /* since when no GPU is open, as far as is known; below 0: one is */
    int64_t capacity;      /* tokens of one request that the largest open GPU holds */
    int64_t most_capacity; /* the same of the largest GPU that ever came up */
    id_map *requests;      /* all, by id */
    request_memory memory;
    shares newcomers;                              /* requests that wait for their first GPU */
    wait_queue queue, suspects, confined, leaving; /* requests that have been on one */
    double last_turn;                              /* the last turn given out; no two are equal */
    gpu *reserved;                                 /* borrowed: the GPU kept for a confined request; NULL: none */
    known_killer killers[MOST_KILLERS];            /* ring of the newest: to know them when they come again */
    size_t n_killers;                              /* added so far */
    request_list may_be_late;                      /* by submission */
    request_list aside;                            /* those no open GPU could hold, by when they stepped aside */
    int n_aside;                                   /* of those, the ones on no GPU */
    uint32_t n_attempts; /* numbers given out: a request submitted again must not repeat one */
    int n_running;
    double next_look;      /* when consolidation is due */
    scheduler_stats stats; /* the counters */
};

#endif
