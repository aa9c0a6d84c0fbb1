/* scenario_setup.h - draws a scenario's cluster and clients from its seed */
#ifndef PUNICA_SIM_SCENARIO_SETUP_H
#define PUNICA_SIM_SCENARIO_SETUP_H

#include "sim/cluster.h"

enum { LATE_CLIENTS = N_ADAPTERS + 3 }; /* one for the base and each adapter, and some that leave */

typedef struct {
    cluster *c;  /* borrowed */
    bool choppy; /* the network delivers in small pieces */
    bool noisy;  /* the network flips bits now and then */
    bool uneven; /* one machine is large, the others small, and prompts are long */
    int n_early; /* clients that come while things break; the others come afterwards */
} scenario_setup;

/* Draws everything of the cluster that must be set before it is started. */
void scenario_setup_draw_cluster(scenario_setup *s);

/* Draws the clients, and what they will ask for. The caller frees s->c->client. */
void scenario_setup_draw_clients(scenario_setup *s);

#endif
