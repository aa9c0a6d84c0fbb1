/* sched_peers.h - who is connected to the scheduler, and who may be
 *
 * A process has one link: a newer one replaces the older. All frontends have the same model, and runners have that of
 * the frontends. */
#ifndef PUNICA_SCHEDULER_SCHED_PEERS_H
#define PUNICA_SCHEDULER_SCHED_PEERS_H

#include "scheduler/sched_server_state.h"

/* Admits a peer whose link has come up, or drops the link and says why. */
void sched_peers_admit(sched_server *v, net_link *l, const Hello *hello);

/* Forgets a peer and everything that went over its link. */
void sched_peer_free(sched_peer *p);

/* The same, and drops its link; the peer is told why. */
void sched_peer_drop(sched_peer *p, const char *why);

int sched_peers_count_frontends(const sched_server *v);

#endif
