/* sched_server_state.h - everything the scheduler's server knows (internal to its parts)
 *
 *   sched_server.c      its life, links and timer; the scheduler's commands into outboxes
 *   sched_peers.c       who is connected, and who may be
 *   sched_frontends.c   what frontends say and are told
 *   sched_gpus.c        what runners say of their GPUs, and how fast those are */
#ifndef PUNICA_SCHEDULER_SCHED_SERVER_STATE_H
#define PUNICA_SCHEDULER_SCHED_SERVER_STATE_H

#include "scheduler/outbox.h"
#include "scheduler/pace.h"
#include "scheduler/sched_server.h"
#include "scheduler/sched_wire.h"

/* One of a runner's GPUs, as long as the runner's link is up. */
typedef struct {
    outbox *out;   /* borrowed: of the server's outboxes; NULL: it is not ready */
    double probed; /* when it was last probed (sched_gpus.h) */
    bool crashed;  /* its last worker did, and it has not been found well since */
} runner_gpu;

/* A frontend or a runner, as long as its link is up. It is the link's data (link_data()). */
typedef struct sched_peer sched_peer;
struct sched_peer {
    sched_server *server; /* borrowed */
    net_link *link;       /* borrowed: the listener's */
    uint64_t instance;
    char *model;     /* "": it does not say */
    int frontend;    /* its number; -1: it is a runner */
    int n_gpus_told; /* of a frontend; -1: it has not been told yet */
    int64_t capacity_told;
    runner_gpu *gpu; /* [n_gpus] of a runner, by its own numbers */
    size_t n_gpus, gpus_cap;
    bool draining;
    sched_peer *prev, *next;
};

struct sched_server {
    net_loop *on; /* borrowed */
    scheduler *policy;
    pace *pace;
    link_listener *listener;
    sched_peer *peers;
    char *model; /* that the frontends serve; "": none has said yet */
    outboxes out;
    step_scratch scratch;
    loop_timer *tick;
    scale_hook *hook; /* borrowed; NULL: none */
    buf advice;       /* scratch: of the scale hook */
    double epoch;     /* to be added to the monotonic clock */
};

/* Returns the scheduler's time: seconds since the epoch when the server started, monotonic from then on. */
static inline double sched_server_now(const sched_server *v)
{
    return v->epoch + loop_now(v->on);
}

#endif
