/* cmd_simulate.c - `punica simulate`: the cluster in virtual time */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sched_cost.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/tree.h"
#include "engine/kv_pool.h"
#include "sim/seeds.h"
#include "sim/simulate.h"

#define STEPS "docs/results/step-h200.json"

/* seeds: "1:2000" */
static int run_faults(const char *seeds, seeds_options *o, err *e)
{
    unsigned long long first, last;
    int n = 0;
    if (strchr(seeds, '-') || sscanf(seeds, "%19llu:%19llu%n", &first, &last, &n) != 2 || seeds[n] || first > last)
        return err_set(e, "--seeds takes the first and the last, such as 1:2000, not \"%s\"", seeds);
    o->first = first;
    o->last = last;
    return seeds_run(o) ? 1 : 0;
}

/* Runs the experiment with the step times that were given, or else those of the tree. */
static int run_experiment(simulate_options *o, err *e)
{
    char *measured = o->steps ? NULL : tree_find(STEPS);
    if (!o->steps)
        o->steps = measured ? measured : STEPS;
    int status = simulate_run(o, e);
    free(measured);
    return status;
}

int cmd_simulate(int argc, char **argv)
{
    simulate_options o = simulate_options_default();
    seeds_options of_faults = {0};
    bool cost = false, faults = false;
    const char *seeds = "1:2000";
    const option options[] = {
        {"gpus", OPT_INT, &o.gpus, "N", "(%)", 1, 4096},
        {"hours", OPT_FLOAT, &o.hours, "H", "of arrivals (%)", 0.001, 1000},
        {"rate", OPT_FLOAT, &o.rate, "R", "requests a second at the peak (nine tenths of what the GPUs can serve)", 0,
         1e6},
        {"turns", OPT_INT, &o.turns, "N",
         "requests are turns of conversations, N in each, over a prefix cache (0: by themselves)", 0, 100},
        {"batch", OPT_INT, &o.batch, "N", "batch limit of each GPU (%)", 1, 4096},
        {"pages", OPT_INT, &o.pages, "N",
         "KvCache pages of " AS_TEXT(KV_PAGE_LEN) " tokens of each GPU (2816: what a 7B model leaves of 40 GB)", 1,
         1e8},
        {"steps", OPT_STRING, &o.steps, "FILE", "measured step times (" STEPS ")"},
        {"seed", OPT_U64, &o.seed, "N", "of the arrivals (%)"},
        {"packed-only", OPT_FLAG, &o.only_packed, NULL, "without the policies to compare with"},
        {"csv", OPT_STRING, &o.csv, "FILE", "write request rate, tokens per second and batch sizes over time there"},
        {"Instead of the experiment", OPT_FLAG, NULL},
        {"faults", OPT_FLAG, &faults, NULL,
         "the real roles over a simulated network: crashes, cut links, shortage; no client may notice"},
        {"seeds", OPT_STRING, &seeds, "A:B", "of --faults, each a cluster and a history of its own (%)"},
        {"seconds", OPT_DOUBLE, &of_faults.seconds, "S", "of --faults: begin no more seeds after so long (0: all)", 0,
         1e9},
        {"first", OPT_FLAG, &of_faults.only_first, NULL, "of --faults: end with the first seed that fails"},
        {"trace", OPT_FLAG, &of_faults.trace, NULL, "of --faults: say everything that happens"},
        {"cost", OPT_FLAG, &cost, NULL, "events a second of the scheduler at 16, 256 and 4096 GPUs"},
        {NULL}};
    const command_line c = {
        .usage = "punica simulate [options]",
        .about =
            "The paper's cluster experiment in virtual time, with the real scheduler: arrivals rise and fall over an\n"
            "hour, adapters are popular by Skewed. Compared with spreading requests out and with one adapter per GPU.",
        .options = options};
    err e;
    int parsed = options_parse(&c, argc, argv, &e);
    if (parsed > 0)
        return 0;
    if (parsed == 0 && cost) {
        sched_cost_run();
        return 0;
    }
    int status = parsed ? parsed : faults ? run_faults(seeds, &of_faults, &e) : run_experiment(&o, &e);
    return status < 0 ? command_fail(e.msg) : status;
}
