/* sched_frontends.h - what frontends say to the scheduler's server, and are told beside their requests' results */
#ifndef PUNICA_SCHEDULER_SCHED_FRONTENDS_H
#define PUNICA_SCHEDULER_SCHED_FRONTENDS_H

#include "scheduler/sched_server_state.h"

/* Handles a message of a frontend: a request is submitted or cancelled. Any other message drops its link. */
void sched_frontend_message(sched_peer *p, const Message *m);

/* Tells all frontends how many GPUs are open, and how large a request these can hold, if that has changed. */
void sched_frontends_tell_cluster(sched_server *v);

/* Tells all frontends which adapters a GPU has in memory. */
void sched_frontends_tell_residents(sched_server *v, int gpu, const Residents *r);

#endif
