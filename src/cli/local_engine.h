/* local_engine.h - a model, its tokenizer and its adapters in an engine of this process: what commands without a server
 * run
 *
 * Files first: local_engine_open() reads and checks all of them; local_engine_start() takes the memory. */
#ifndef PUNICA_CLI_LOCAL_ENGINE_H
#define PUNICA_CLI_LOCAL_ENGINE_H

#include "cli/adapter_set.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

/* The options of a command line. Numbers are 0 where the engine is to choose. Strings are borrowed from argv. */
typedef struct {
    const char *model_dir, *device, *weights, *kv;
    option_list adapters; /* items owned: free() */
    int tp, max_batch, threads, kv_pages, itl_target;
    bool no_prefix_cache;
    double memory_share;
} local_engine_args;

/* Returns the engine's own defaults, on the CPU. */
local_engine_args local_engine_args_default(void);
int default_itl_target(void); /* of --itl-target, in milliseconds */

typedef struct {
    backend *be;
    model *m;
    tokenizer *t;
    adapter_set adapters;
    kv_form kv;
    engine *g; /* NULL until it is started */
} local_engine;

/* Open *l, which is zeroed, then start it. 0, or -1 with e set; call local_engine_close() in any case. */
int local_engine_open(local_engine *l, const local_engine_args *a, err *e);
int local_engine_start(local_engine *l, const local_engine_args *a, err *e);
void local_engine_close(local_engine *l);

#endif
