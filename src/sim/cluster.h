/* cluster.h - a simulated cluster: the real scheduler's server, frontends and runners, each a process of its own
 *
 * Processes are started, crash and are started again; each time it is a new one. A scheduler is watched: its events and
 * commands are held against the rules (watch.h) and against what a naive scheduler says (naive_scheduler.h). */
#ifndef PUNICA_SIM_CLUSTER_H
#define PUNICA_SIM_CLUSTER_H

#include "frontend/call.h"
#include "runner/runner.h"
#include "scheduler/sched_server.h"
#include "sim/client.h"
#include "sim/naive_scheduler.h"
#include "sim/network.h"
#include "sim/sim_tenants.h"
#include "sim/sim_worker.h"
#include "sim/stranger.h"
#include "sim/submissions.h"
#include "sim/watch.h"

enum { MOST_FRONTENDS = 3, MOST_MACHINES = 3, MOST_SPANS = 128 };

typedef struct cluster cluster;

/* What may crash: a process of the cluster, and its return. */
typedef struct {
    cluster *in; /* borrowed */
    int number;  /* among its kind */
    sim_process p;
    bool is_up;
    sim_task restart;
} sim_member;

typedef struct {
    sim_member m; /* first, as in the others */
    sched_server *server;
    scheduler_tap tap;
    watch *watch;
    naive *naive;           /* NULL: the history has become too large for it */
    int machine[MOST_GPUS]; /* of each GPU that came */
    buf said;               /* the scheduler's commands since the last event */
} sched_member;

/* When something was so; the last has no end, HUGE_VAL, while it is. */
typedef struct {
    struct { double from, to; } at[MOST_SPANS];
    int n;
} spans;

typedef struct {
    sim_member m;
    dispatch *at_scheduler;
    catalog *models;
    versions *versions;
    tenants *tenants; /* NULL: there are none */
    metrics counts;
    service s;
    uint64_t content[N_ADAPTERS]; /* of the adapters, on its disk */
    spans outages;                /* it was without a scheduler */
    atomic_int context;
} front_member;

typedef struct {
    sim_member m;
    sim_machine machine;
    int n_workers;
    runner *r;
    int n_starts;
    bool draining;
    bool drain_heard; /* a scheduler has been told so */
    int n_idle_looks; /* in a row at which nothing kept it */
    sim_task leaving; /* it has drained */
    sim_task look;    /* whether it should have */
} run_member;

typedef struct {
    uint64_t finished, cancelled, refused, killers, innocents, tokens, evicted, moved, recovered, stale;
} cluster_counts;

struct cluster {
    world w;
    link_options link; /* of all */
    scheduler_options policy;
    double patience, hang_seconds, keep_alive;
    int max_live;
    sched_member sched;
    front_member front[MOST_FRONTENDS];
    run_member run[MOST_MACHINES];
    int n_fronts, n_machines;
    sim_tenant tenant[MOST_TENANTS];
    int n_tenants; /* 0: clients are nobody's */
    stranger at_the_door;
    client *client; /* [n_clients] */
    int n_clients;
    uint64_t newest[N_ADAPTERS]; /* content of the adapters */
    submissions submitted;
    bool replaced[N_ADAPTERS];   /* at some time, on some disk */
    spans bad_files[N_ADAPTERS]; /* some machine could not read it */
    bool poisoned[N_ADAPTERS];   /* some file was poisoned: a worker may have it in memory for ever */
    int n_crashes;    /* workers that crashed or hung by a fault, which looks as if it were of what they ran */
    int gone_adapter; /* whose files are missing when all is in order again; -1: none's */
    bool in_order;    /* all faults are over, and their consequences */
    cluster_counts counts;
};

/* Everything but w is set up; all processes are started. */
void cluster_start(cluster *c);
void cluster_stop(cluster *c);

/* Crash, and start again some seconds later. silent: nobody is told, as when a host loses power. */
void cluster_crash_scheduler(cluster *c, bool silent);
void cluster_crash_front(cluster *c, int i, bool silent);
void cluster_crash_machine(cluster *c, int i, bool silent);

/* Crash after so many more acts, between any two of which something can be; 0: do not. */
void cluster_doom(sim_member *m, int n_acts);
void cluster_end_doomed(cluster *c); /* after every task */

/* Somebody who does not belong here tries to get in for so many seconds. */
void cluster_have_stranger(cluster *c, stranger_kind kind, double seconds);

/* Empty a machine, then end its runner, and start it again later. */
void cluster_drain(cluster *c, int i);

/* An adapter is this on a frontend's disk from now on. */
void cluster_set_content(cluster *c, int front, int adapter, uint64_t content);

/* What the adapter's file on a machine's disk is like from now on. */
void cluster_set_file(cluster *c, int machine, int adapter, file_state s);

/* Whether one of the spans and the time between overlap. */
bool spans_touch(const spans *s, double from, double to);

/* After every task: the scheduler has done what was to be done. */
void cluster_settle(cluster *c);

int cluster_capacity(const cluster *c); /* tokens of a request that the largest GPU holds */

/* Everybody is there, nobody drains, and no GPU is taken to be slow. */
bool cluster_is_whole(const cluster *c);

/* All clients have their answers, and all messages have arrived: nothing may be left of them. */
void cluster_check_nothing_left(cluster *c);

/* Add what the scheduler that is up has done to the counts. */
void cluster_count(cluster *c);

#endif
