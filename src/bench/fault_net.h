/* fault_net.h - virtual time, and connections that delay, break and half-break
 *
 * A connection carries messages both ways, each way in order, after delays of their own; between connections nothing
 * is in order. One that breaks loses everything under way, and either side learns of it when it does. One that a side
 * closes still delivers what that side had sent. Randomness is a function of the seed and how much was drawn. */
#ifndef PUNICA_BENCH_FAULT_NET_H
#define PUNICA_BENCH_FAULT_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/fault_message.h"
#include "scheduler/wait_queue.h"

typedef enum { SIDE_PEER, SIDE_SCHEDULER } side;

/* What is due at a time. What a and b are is a matter between whoever plans it and whoever handles it. */
typedef struct {
    wait_item order;            /* first: time, then number */
    int kind;
    int a, b;
    uint64_t epoch;             /* to tell whether it is still wanted */
    message *m;                 /* owned; NULL: none */
} sim_event;

enum { EVENT_DELIVER, EVENT_NOTICE, N_NET_EVENTS };      /* a: connection; b: the side that gets it, or learns of the loss */

typedef struct {
    int peer;
    bool broken;
    bool open[2];               /* by side: it still listens */
    double last[2];             /* when the last message to each side arrives */
} connection;

typedef struct {
    uint64_t seed, drawn;
    double now;
    wait_queue events;
    uint64_t n_events;
    connection *conn;           /* [n_conns] all there ever were */
    size_t n_conns, conns_cap;
    double delay;               /* seconds, typical of a message */
    double spikes;              /* share of messages that are much later */
} sim_net;

void sim_net_init(sim_net *n, uint64_t seed);
void sim_net_deinit(sim_net *n);

uint64_t sim_draw(sim_net *n, uint64_t below);
double sim_uniform(sim_net *n, double low, double high);
bool sim_chance(sim_net *n, double share);

/* Takes the message. */
void sim_plan(sim_net *n, double after, int kind, int a, int b, uint64_t epoch, message *m);

/* The next event, with now moved on to it; the caller ends it with sim_event_free(). */
sim_event *sim_next(sim_net *n);
void sim_event_free(sim_event *e);

int sim_connect(sim_net *n, int peer);
void sim_send(sim_net *n, int conn, side to, message *m);       /* takes the message */
void sim_close(sim_net *n, int conn, side by);
void sim_break(sim_net *n, int conn, double peer_learns, double scheduler_learns);  /* seconds from now */

/* Whether a message that arrives is heard. */
bool sim_is_heard(const sim_net *n, int conn, side by);

#endif
