/* random_adapters.h - adapters of random weights for an engine, named by number: "0", "1", ... */
#ifndef PUNICA_BENCH_RANDOM_ADAPTERS_H
#define PUNICA_BENCH_RANDOM_ADAPTERS_H

#include "engine/engine.h"

/* Adapters of one rank on all projections of a model, which is borrowed. */
typedef struct {
    const model *m;
    int rank;
    dtype type;
} random_adapters;

adapter_source random_adapters_source(random_adapters *of);

/* Loads the first n. -1 with e set. */
int random_adapters_preload(engine *g, int n, err *e);

#endif
