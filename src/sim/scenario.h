/* scenario.h - one simulated cluster from start to end: determined by its seed, and by which of its faults happen
 *
 * Clients ask and things break; then nothing breaks any more, and every client must get the answer that the model
 * gives, or an error that its limits and faults allow (allowed_errors.h), and nothing may be left behind. */
#ifndef PUNICA_SIM_SCENARIO_H
#define PUNICA_SIM_SCENARIO_H

#include "sim/cluster.h"
#include "sim/faults.h"

typedef struct {
    uint64_t tasks, faults, clients;
    cluster_counts counts;
} scenario_stats;

/* The faults that are left out, by number; NULL: none. */
typedef struct { bool out[MOST_FAULTS]; } fault_mask;

/* Runs a scenario. Appends the first violation, if any, and adds to stats. Returns how many faults the scenario has,
 * with those that are left out. */
int scenario_run(uint64_t seed, const fault_mask *without, bool trace, scenario_stats *stats, buf *violation);

/* Prints the faults of a seed that are not left out, a line each. */
void scenario_print_faults(uint64_t seed, const fault_mask *without);

#endif
