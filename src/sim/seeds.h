/* seeds.h - `punica simulate --faults`: many stories, and for each that fails the fewest faults it needs */
#ifndef PUNICA_SIM_SEEDS_H
#define PUNICA_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

/* Seeds first to last. How many failed; each has been printed, with what was violated and its faults. seconds: no
 * more seeds are begun after so many; 0: all. trace: tell the stories, whole. */
int seeds_run(uint64_t first, uint64_t last, double seconds, bool trace);

#endif
