/* network.h - connections between simulated processes, and what goes wrong with them
 *
 * Implements net/stream.h between one process's dialer and another's acceptor, which is found by name. Bytes arrive in
 * order, late, and in pieces of any size. A connection can be cut in the middle of a message, go silent in one
 * direction or both, stall, or be read slowly. What a process had written when it dies still arrives, or part of it. */
#ifndef PUNICA_SIM_NETWORK_H
#define PUNICA_SIM_NETWORK_H

#include "sim/world.h"

typedef struct sim_network sim_network;

/* The network's behaviour apart from cuts. */
typedef struct {
    double delay;  /* seconds, typical */
    double spikes; /* share of deliveries that are much later */
    double choppy; /* share of connections whose bytes come in small pieces */
    size_t buffer; /* most bytes on their way; the rest counts as not sent */
    double noise;  /* share of deliveries in which a bit is flipped */
} sim_network_conditions;

typedef enum {
    CUT_RESET,  /* both sides learn of it soon; part of what was under way arrives */
    CUT_SILENT, /* a black hole: nothing arrives any more, and nobody is told */
    CUT_HALF,   /* the same in one direction */
    CUT_STALL,  /* nothing arrives for some seconds, then all of it */
    CUT_SLOW,   /* one side reads a few bytes at a time for some seconds */
    CUT_NOISE   /* a bit of what one side sends next is flipped */
} network_cut;

sim_network *sim_network_new(world *w);
void sim_network_free(sim_network *n);
void sim_network_set_conditions(sim_network *n, const sim_network_conditions *conditions);
void sim_network_stop_noise(sim_network *n);

/* The dialer_new and acceptor_new of a process's loop (net/loop.h). Addresses are names of processes. */
dialer *sim_network_dialer_new(net_loop *l, const char *address, const credentials *own, err *e);
acceptor *sim_network_acceptor_new(net_loop *l, const char *address, const credentials *own,
                                   const acceptor_events *events, err *e);

/* Cuts the newest connection that this process dialed. False if it has none. */
bool sim_network_cut_newest(sim_network *n, const sim_process *dialed, network_cut how);

/* Partitions a process from all others for so many seconds; its connections go silent for good. */
void sim_network_isolate(sim_network *n, const sim_process *p, double seconds);

/* Notes that a process has just died, before its streams are freed. silent: nobody is told, as if its host had lost
 * power. */
void sim_network_process_died(sim_network *n, const sim_process *p, bool silent);

#endif
