/* faults.h - what goes wrong in a simulated cluster, and when
 *
 * The faults of a scenario are drawn before it begins, so that it can be run again with fewer of them. */
#ifndef PUNICA_SIM_FAULTS_H
#define PUNICA_SIM_FAULTS_H

#include "sim/cluster.h"

typedef enum {
    /* of a link of a frontend or runner, in the order of network_cut */
    FAULT_LINK_RESET,
    FAULT_LINK_SILENT,
    FAULT_LINK_HALF,
    FAULT_LINK_STALL,
    FAULT_LINK_SLOW,
    FAULT_LINK_NOISE,
    FAULT_ISOLATION, /* a process reaches nobody for a while */
    FAULT_WORKER_CRASH,
    FAULT_WORKER_KILLED, /* from outside: once, or for a while all of a machine as soon as they have work */
    FAULT_WORKER_HANG,
    FAULT_WORKER_SLOW,
    FAULT_WORKER_STOP,
    FAULT_RUNNER_CRASH,
    FAULT_RUNNER_STOP,
    FAULT_MACHINE_LOST,
    FAULT_DRAIN,
    FAULT_SCHEDULER_CRASH,
    FAULT_SCHEDULER_STOP,
    FAULT_SCHEDULER_LOST,
    FAULT_FRONTEND_CRASH,
    FAULT_FRONTEND_STOP,
    FAULT_FRONTEND_LOST,
    FAULT_CLOCK, /* a wall clock jumps */
    /* of an adapter on one machine's disk, or, when it is replaced, on a frontend's */
    FAULT_ADAPTER_REPLACED,
    FAULT_ADAPTER_MISSING,
    FAULT_ADAPTER_BROKEN,
    FAULT_ADAPTER_POISONED,
    FAULT_ADAPTER_BACK,
    FAULT_DISK_SLOW,
    FAULT_NO_PROCESSES,
    FAULT_STRANGER,
    FAULT_CLIENT_LEAVES,
    FAULT_CLIENT_STUCK,
    N_FAULTS
} fault_kind;

typedef struct {
    double at; /* seconds from the beginning */
    fault_kind kind;
    uint64_t which;   /* random: picks one of those that it can happen to */
    double magnitude; /* random, 0 to 1: how long, how far */
} fault;

enum { MOST_FAULTS = 256 };

typedef struct {
    fault fault[MOST_FAULTS];
    int n;
} fault_list;

/* Draws faults for so many seconds: of a few kinds or many, and more of the favourite kind than of others. */
void faults_draw(fault_list *l, world *w, double seconds, fault_kind favourite);

/* Returns whether such a fault may delay messages for long. */
bool fault_delays(fault_kind k);

/* Writes a fault in words: "at 3.1416 s: worker crashes (17)". */
void fault_print(const fault *f, char *text, size_t n);

void fault_inject(const fault *f, cluster *c);

#endif
