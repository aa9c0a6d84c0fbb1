/* seeds.h - `punica simulate --faults`: many stories, and for each that fails the fewest faults it needs */
#ifndef PUNICA_SIM_SEEDS_H
#define PUNICA_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t first, last;
    double seconds;  /* no more seeds are begun after so many; 0: all */
    bool trace;      /* tell the stories, whole */
    bool only_first; /* end with the first that fails, and do not look for the fewest faults it needs */
} seeds_options;

/* How many failed; each has been printed, with what was violated and its faults. */
int seeds_run(const seeds_options *o);

#endif
