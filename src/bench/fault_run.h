/* fault_run.h - `punica simulate --faults`: many seeds of fault_sim.h, with those that fail named */
#ifndef PUNICA_BENCH_FAULT_RUN_H
#define PUNICA_BENCH_FAULT_RUN_H

#include <stdbool.h>
#include <stdint.h>

/* Seeds first to last. How many failed; each has been printed, with what was violated. */
int fault_run(uint64_t first, uint64_t last, bool trace);

#endif
