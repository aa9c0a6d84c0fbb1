/* story.h - one simulated cluster from start to end: determined by its seed, and by which of its faults happen
 *
 * Clients ask, things break, and then nothing breaks any more: every client must have the answer that the model gives,
 * or an error it can be blamed for or that was agreed on, and nothing may be left behind. */
#ifndef PUNICA_SIM_STORY_H
#define PUNICA_SIM_STORY_H

#include "sim/cluster.h"
#include "sim/faults.h"

typedef struct {
    uint64_t tasks, faults, clients;
    cluster_counts counts;
} story_stats;

/* The faults that are left out, by number; NULL: none. */
typedef struct { bool out[MOST_FAULTS]; } fault_mask;

/* Appends what was wrong first to violation; stats are added to. Returns how many faults the whole story has. */
int story_run(uint64_t seed, const fault_mask *without, bool trace, story_stats *stats, buf *violation);

/* Print the faults of a seed that are not left out, a line each. */
void story_print_faults(uint64_t seed, const fault_mask *without);

#endif
