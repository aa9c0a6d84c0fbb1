/* consolidate.h - empty lightly loaded GPUs into busier ones (internal to the scheduler) */
#ifndef PUNICA_SCHEDULER_CONSOLIDATE_H
#define PUNICA_SCHEDULER_CONSOLIDATE_H

#include "scheduler/state.h"

/* The lightest first, each only if all its requests have a place on GPUs that stand above it, none of them was moved
 * a short while ago, and moving costs less than it frees. Requests go up only, so nothing goes back and forth. */
void consolidate(scheduler *s, double now);

#endif
