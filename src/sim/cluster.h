/* cluster.h - a simulated cluster: the real scheduler's server, frontends and runners, each a process of its own
 *
 * Processes start, crash and are started again, each time as a new one. The scheduler's events and commands are checked
 * against rules (checker.h) and compared with those of a naive scheduler (naive_scheduler.h). */
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
#include "sim/checker.h"

enum { MOST_FRONTENDS = 3, MOST_MACHINES = 3, MOST_SPANS = 128 };

typedef struct cluster cluster;

/* A process of the cluster, which may crash, and its restart. */
typedef struct {
    cluster *in; /* borrowed */
    int number;  /* among its kind; below 0: the only one */
    sim_process p;
    bool is_up;
    sim_task restart;
} sim_member;

typedef struct {
    sim_member m; /* first, as in the others */
    sched_server *server;
    scheduler_tap tap;
    checker *checker;
    naive *naive;           /* NULL: there have been more frontends or GPUs than it has room for */
    int machine[MOST_GPUS]; /* of each GPU that came up, by its number */
    buf said;               /* the scheduler's commands since the last event */
} sched_member;

/* The intervals of time in which something was so; while it still is, the last one ends at HUGE_VAL. */
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
    uint64_t content[N_ADAPTERS]; /* of the adapters on its disk */
    spans outages;                /* when it was without a scheduler */
    atomic_int context;
} front_member;

typedef struct {
    sim_member m;
    sim_machine machine;
    int n_workers;
    runner *r;
    int n_starts;
    bool draining;
    bool drain_heard; /* a scheduler has been told that it drains */
    int n_idle_looks; /* looks in a row at which nothing was left to wait for */
    sim_task leaving; /* its end, when it has drained */
    sim_task look;    /* checks that it ends when it should */
} runner_member;

typedef struct {
    uint64_t finished, cancelled, refused, killers, innocents, tokens, evicted, moved, recovered, stale;
} cluster_counts;

struct cluster {
    world w;
    link_options link; /* options of all links */
    scheduler_options policy;
    double patience, hang_seconds, keep_alive;
    int max_live;
    sched_member sched;
    front_member front[MOST_FRONTENDS];
    runner_member runner[MOST_MACHINES];
    int n_fronts, n_machines;
    sim_tenant tenant[MOST_TENANTS];
    int n_tenants; /* 0: clients have no tenants */
    stranger stranger;
    client *client; /* [n_clients] */
    int n_clients;
    uint64_t newest[N_ADAPTERS]; /* newest content of each adapter */
    submissions submitted;
    bool replaced[N_ADAPTERS];   /* its files were, at some time, on some disk */
    spans bad_files[N_ADAPTERS]; /* when some machine could not read it */
    bool poisoned[N_ADAPTERS];   /* some file was poisoned; a worker may keep it in memory for ever */
    int n_crashes;               /* workers that crashed or hung by a fault, as if a request had done it */
    int gone_adapter;            /* whose files are missing even when all is in order again; -1: none's */
    bool in_order;               /* all faults and their consequences are over */
    cluster_counts counts;
};

/* Starts all processes of a cluster that has been set up (world_init(), scenario_setup.h). cluster_stop() ends them. */
void cluster_start(cluster *c);
void cluster_stop(cluster *c);

/* Crash a process, which is started again some seconds later. silent: nobody is told, as when a host loses power. */
void cluster_crash_scheduler(cluster *c, bool silent);
void cluster_crash_front(cluster *c, int i, bool silent);
void cluster_crash_machine(cluster *c, int i, bool silent);

/* cluster_crash_after() has a process crash after so many more acts (world.h); n_acts 0: it is not to. When they are
 * over, cluster_crash_due() crashes it. */
void cluster_crash_after(sim_member *m, int n_acts);
void cluster_crash_due(cluster *c); /* call after every task */

/* Has a stranger (stranger.h) try to connect for so many seconds. */
void cluster_have_stranger(cluster *c, stranger_kind kind, double seconds);

/* Drains a machine: empties it, then ends its runner, and starts it again later. */
void cluster_drain(cluster *c, int i);

/* Sets the content of an adapter on a frontend's disk. */
void cluster_set_content(cluster *c, int front, int adapter, uint64_t content);

/* Sets the state of an adapter's file on a machine's disk. */
void cluster_set_file(cluster *c, int machine, int adapter, file_state s);

/* Returns whether one of the spans overlaps the time from `from` to `to`. */
bool spans_touch(const spans *s, double from, double to);

/* Checks frontends and the scheduler. Call it after every task, when they have handled all events so far. */
void cluster_settle(cluster *c);

int cluster_capacity(const cluster *c); /* tokens of a request that the largest GPU holds */

/* Returns whether all processes are up and linked, none drains, and no GPU counts as slow. */
bool cluster_is_whole(const cluster *c);

/* Checks that nothing is left of requests, after all clients have their answers and all messages have arrived. */
void cluster_check_nothing_left(cluster *c);

/* Adds the statistics of the scheduler, which is up, to the counts. */
void cluster_count(cluster *c);

#endif
