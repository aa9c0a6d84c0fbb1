/* setting.h - where a story takes place and who is in it: the cluster and the clients that a seed gives */
#ifndef PUNICA_SIM_SETTING_H
#define PUNICA_SIM_SETTING_H

#include "sim/cluster.h"

enum { LATE_CLIENTS = N_ADAPTERS + 3 }; /* one for the base and each adapter, and some that leave */

typedef struct {
    cluster *c;  /* borrowed */
    bool choppy; /* the network delivers in small pieces */
    bool noisy;  /* and changes bits now and then */
    bool uneven; /* one machine is large, and clients ask for much */
    int n_early; /* clients that come while things break; the others come afterwards */
} setting;

/* Everything of the cluster that is set before it is started. */
void setting_draw_cluster(setting *s);

/* Its clients and what they will ask for. */
void setting_draw_clients(setting *s);

#endif
