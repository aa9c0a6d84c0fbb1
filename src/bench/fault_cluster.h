/* fault_cluster.h - the cluster of fault_sim.h: who is there, and what each does (internal to fault_*.c)
 *
 * Peers are numbered: frontends first, then runners. A peer has one connection at a time as it sees it; the scheduler
 * may see an older one a while longer. What a peer or the scheduler does on a message or a loss is what frontend/,
 * runner/ and scheduler/sched_server.c do.
 *
 *   fault_scheduler.c   the scheduler's process
 *   fault_peers.c       frontends with their clients, runners with their workers
 *   fault_sim.c         faults, and the story from start to end */
#ifndef PUNICA_BENCH_FAULT_CLUSTER_H
#define PUNICA_BENCH_FAULT_CLUSTER_H

#include "bench/fault_net.h"
#include "bench/fault_sim.h"
#include "bench/fault_watch.h"
#include "bench/fault_worker.h"

enum { MOST_FRONTENDS = 3, MOST_RUNNERS = 3, MOST_PEERS = MOST_FRONTENDS + MOST_RUNNERS, MOST_WORKERS = 2 };

enum {
    EVENT_CONNECT = N_NET_EVENTS,       /* a: peer */
    EVENT_STEP,                 /* a: runner, b: worker */
    EVENT_DEATH,                /* the runner learns that a worker has ended */
    EVENT_WORKER_UP,
    EVENT_HEARTBEAT,            /* the runner looks whether a worker still steps */
    EVENT_SPEED,                /* a slow worker is as before */
    EVENT_ARRIVE,               /* a: request */
    EVENT_CANCEL,               /* a: request */
    EVENT_TICK,                 /* of the scheduler */
    EVENT_RESTART,              /* a: peer, or -1: the scheduler */
    EVENT_FAULT
};

typedef enum {
    FAULT_LINK,                 /* breaks; both sides learn of it, at times of their own */
    FAULT_DROP,                 /* a peer closes its link for no reason */
    FAULT_WORKER, FAULT_HANG, FAULT_SLOW, FAULT_RUNNER, FAULT_SCHEDULER, FAULT_FRONTEND, FAULT_DRAIN, FAULT_CANCEL,
    N_FAULTS
} fault_kind;

typedef enum { REQUEST_TO_COME, REQUEST_LIVE, REQUEST_ENDED, REQUEST_CANCELLED, REQUEST_LOST } request_state;

typedef struct {
    request_state state;
    int frontend;
    double arrival;
    int n_output;               /* tokens the client has */
    int n_submits;              /* links it was submitted over */
} client_request;

typedef struct {
    fault_worker *w;            /* NULL: not running */
    uint64_t epoch;             /* grows with every start and end */
    uint64_t step;              /* number of the step that is planned */
    bool announced;             /* on the link as it is */
    bool hung, idle;
    double slow;
} worker_place;

typedef struct {
    bool alive, up;             /* up: the scheduler has said hello on this link */
    uint64_t instance, epoch;
    int conn;                   /* -1: none */
    double skew;                /* of a frontend's clock, seconds */
    bool draining;
    worker_place worker[MOST_WORKERS];
} peer;

/* What the scheduler's process knows of a connection. */
typedef struct {
    bool known;
    int frontend;               /* number; -1: it is a runner */
    int gpu[MOST_WORKERS];      /* numbers; -1: not up */
    uint64_t start[MOST_WORKERS], instance;
    message *results;
} served;

typedef struct {
    sim_net net;
    bool trace;
    buf *violation;
    fault_stats *stats;
    int n_frontends, n_runners, n_workers;
    peer peer[MOST_PEERS];
    uint64_t last_instance;
    fault_worker_setup worker_setup;        /* of the workers with the fewest pages */
    int more_pages[MOST_PEERS]; /* that a runner's workers have beyond those */
    double step_time, quiet_at, fault_every;
    bool enabled[N_FAULTS];
    client_request *request;    /* [n_requests + 1] by id, from 1 */
    fault_truth *truth;         /* likewise */
    int n_requests;
    scheduler_options opt;
    scheduler *s;               /* NULL: it is down */
    fault_watch *watch;
    uint64_t scheduler_epoch;
    served *served;             /* [served_cap] by connection */
    size_t served_cap;
    int conn_of_frontend[MOST_GPUS], conn_of_gpu[MOST_GPUS];        /* by number; -1: free */
} sim;

/* One line of the trace. */
void sim_say(const sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A rule was broken: the run ends. */
void sim_violate(sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool sim_is_runner(const sim *s, int p);
const char *sim_peer_name(const sim *s, int p);
fault_worker_setup sim_worker_setup(const sim *s, int p);       /* of a runner */
int sim_capacity(const sim *s);                                 /* tokens of a request that the largest GPU holds */

void sched_process_start(sim *s);
void sched_process_stop(sim *s);                                /* as at the end of the run */
void sched_process_crash(sim *s);                               /* and start again later */
void sched_process_tick(sim *s);
void sched_process_hear(sim *s, int conn, const message *m);
void sched_process_lose(sim *s, int conn);                      /* it learns that a connection is lost */

void peer_start(sim *s, int p);
void peer_crash(sim *s, int p);                                 /* and start again later, as another instance */
void peer_connect(sim *s, int p);                               /* unless it is, or try again later */
void peer_hear(sim *s, int p, int conn, message *m);            /* takes the message */
void peer_lose(sim *s, int p);                                  /* it learns that its connection is lost */
void peer_drain(sim *s, int p);                                 /* a runner */

void client_arrive(sim *s, int id);
void client_cancel(sim *s, int id);

/* Worker k of runner p. */
void worker_start(sim *s, int p, int k);
void worker_step(sim *s, int p, int k);
void worker_kill(sim *s, int p, int k);
void worker_learn_death(sim *s, int p, int k);                  /* its runner does */

#endif
