/* stranger.h - a process that connects to the scheduler and does not belong there
 *
 * It has another secret, is a scheduler itself, or a runner of another model. It must be refused, and nobody else may
 * notice. */
#ifndef PUNICA_SIM_STRANGER_H
#define PUNICA_SIM_STRANGER_H

#include "net/link.h"
#include "sim/world.h"

#define STRANGER "stranger"

typedef enum { STRANGER_OTHER_SECRET, STRANGER_SCHEDULER, STRANGER_OTHER_MODEL, N_STRANGERS } stranger_kind;

typedef struct {
    sim_process p;
    net_link *link; /* NULL: it is not there */
    stranger_kind kind;
    sim_task leaving;
} stranger;

/* Tries to connect for so many seconds; does nothing if it tries already. address: the scheduler's address; like: link
 * options of those who belong. */
void stranger_connect(stranger *s, world *w, const char *address, const link_options *like, stranger_kind kind,
                      double seconds);
void stranger_leave(stranger *s); /* if it is there */

#endif
