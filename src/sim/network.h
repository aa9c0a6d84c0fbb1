/* network.h - connections between simulated processes, and what goes wrong with them
 *
 * Streams as in net/stream.h, from one process's dialer to another's acceptor, which are found by name. Bytes arrive in
 * order, late, and in pieces of any size. A connection can be cut in the middle of a message, go silent in one
 * direction or both, stall, or be read slowly; a process that dies leaves behind what it had written, or part of it. */
#ifndef PUNICA_SIM_NETWORK_H
#define PUNICA_SIM_NETWORK_H

#include "sim/world.h"

typedef struct sim_network sim_network;

/* How it is when nothing is wrong. */
typedef struct {
    double delay;  /* seconds, typical */
    double spikes; /* share of deliveries that are much later */
    double choppy; /* share of connections whose bytes come in small pieces */
    size_t buffer; /* bytes on their way at most; what is beyond has not been sent */
    double noise;  /* share of deliveries in which a bit is wrong */
} sim_network_weather;

typedef enum {
    CUT_RESET,  /* both sides learn of it soon; of what was under way a part arrives */
    CUT_SILENT, /* nothing arrives any more, and nobody is told */
    CUT_HALF,   /* the same in one direction */
    CUT_STALL,  /* nothing arrives for some seconds, then all of it */
    CUT_SLOW,   /* one side reads a few bytes at a time for some seconds */
    CUT_NOISE,  /* of what one side sends next, a bit is changed on the way */
    N_CUTS
} network_cut;

sim_network *sim_network_new(world *w);
void sim_network_free(sim_network *n);
void sim_network_set_weather(sim_network *n, const sim_network_weather *weather);
void sim_network_stop_noise(sim_network *n);

/* What a process's loop makes (net/loop.h). Addresses are names of processes. */
dialer *sim_network_dialer_new(net_loop *l, const char *address, const credentials *own, err *e);
acceptor *sim_network_acceptor_new(net_loop *l, const char *address, const credentials *own,
                                   const acceptor_events *events, err *e);

/* Do this to the newest connection of the process that dialed. False when it has none. */
bool sim_network_cut_newest(sim_network *n, const sim_process *dialed, network_cut how);

/* Nobody reaches the process for so many seconds, nor it anybody. */
void sim_network_isolate(sim_network *n, const sim_process *p, double seconds);

/* The process has just died, and its streams are about to be freed. silent: as if its host had lost power. */
void sim_network_mourn(sim_network *n, const sim_process *p, bool silent);

#endif
