/* killers.h - remembers requests that were ended for killing workers (internal to the scheduler) */
#ifndef PUNICA_SCHEDULER_KILLERS_H
#define PUNICA_SCHEDULER_KILLERS_H

#include "scheduler/state.h"

/* Remembers a request that was ended for killing workers. */
void killers_add(scheduler *s, double now, const submission *what);

/* Returns whether a request of the same prompt, adapter and version of it was added in the last ten minutes. */
bool killers_know(const scheduler *s, double now, const submission *what);

#endif
