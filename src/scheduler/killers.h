/* killers.h - requests that were ended for killing workers, to be known when they come again (internal to the
 * scheduler) */
#ifndef PUNICA_SCHEDULER_KILLERS_H
#define PUNICA_SCHEDULER_KILLERS_H

#include "scheduler/state.h"

void killers_add(scheduler *s, double now, const submission *what);

/* Whether one of the same prompt and adapter was added not long ago. */
bool killers_know(const scheduler *s, double now, const submission *what);

#endif
