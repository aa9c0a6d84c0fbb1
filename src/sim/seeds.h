/* seeds.h - `punica simulate --faults`: runs many scenarios, and shrinks the faults of each that fails */
#ifndef PUNICA_SIM_SEEDS_H
#define PUNICA_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t first, last;
    double seconds;  /* after so many no further seed is begun; 0: no limit */
    bool trace;      /* print the scenarios as they happen */
    bool only_first; /* end with the first that fails, and do not shrink it */
} seeds_options;

/* Runs the seeds, and prints each that fails, with its violation and the faults it needs. Returns how many failed. */
int seeds_run(const seeds_options *o);

#endif
