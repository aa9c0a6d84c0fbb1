/* consolidate.h - empties lightly loaded GPUs into busier ones (internal to the scheduler) */
#ifndef PUNICA_SCHEDULER_CONSOLIDATE_H
#define PUNICA_SCHEDULER_CONSOLIDATE_H

#include "scheduler/state.h"

/* Moves requests off lightly loaded GPUs, the lightest first; off each only if all its requests have room on GPUs with
 * larger working sets, none of them was moved a short while ago, and moving costs less than it frees. As requests
 * only go to larger working sets, none goes back and forth. */
void consolidate(scheduler *s, double now);

#endif
