/* fault_sim.h - one cluster in virtual time under faults, with the real scheduler
 *
 * Frontends, runners with their workers, and a scheduler, over connections that delay, break and half-break; workers,
 * runners, frontends and the scheduler crash and come back; workers hang and crawl; pages are few, and some requests
 * fit into the largest GPUs only; queues are short; clients cancel; some requests kill their worker; runners drain.
 * Everything follows from the seed. After some time the faults stop, and then every request must come to its end.
 *
 * A client must see its tokens in order, once, all of them and the right ones, and the end it should have. The
 * scheduler is watched (fault_watch.h) and checks itself after every event. At the end nothing may be left anywhere. */
#ifndef PUNICA_BENCH_FAULT_SIM_H
#define PUNICA_BENCH_FAULT_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct {
    uint64_t events, faults, requests, finished, tokens, moved, evicted, recovered, stale, killers, cancelled;
} fault_stats;

/* Run one seed and add to the stats. What was violated first is put in `violation`; it stays empty when all held.
 * trace: say everything that happens on stdout. */
void fault_sim_run(uint64_t seed, bool trace, fault_stats *stats, buf *violation);

#endif
