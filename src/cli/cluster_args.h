/* cluster_args.h - options that the commands of a cluster share: the secret, TLS, logging; and a runner's workers */
#ifndef PUNICA_CLI_CLUSTER_ARGS_H
#define PUNICA_CLI_CLUSTER_ARGS_H

#include "cli/options.h"
#include "frontend/frontend.h"
#include "net/link.h"
#include "runner/runner.h"

#define SECRET_HELP "the cluster's shared secret, one line (or environment PUNICA_SECRET)"
#define LOG_LEVEL_HELP "error, warn, info or debug (info)"

/* The secret from a file, or else from the environment, which then has it no more: nor have processes that are started
 * later. Owned by the caller. NULL with e set: there is none, or it is too short to be one. */
char *cluster_secret(const char *file, err *e);

/* Set the log's level by name; NULL: as it is. */
int cluster_log_level(const char *name, err *e);

/* What a runner's workers are told. */
typedef struct {
    const char *model_dir, *adapters_dir;
    option_list adapters;       /* NAME=DIR */
    option_list devices;        /* none: cpu */
    int n_workers;              /* per device; 0: 1 */
    int max_batch, threads, kv_pages, adapter_slots;        /* 0: as the engine likes */
} worker_args;

/* Their rows of a table of options; w: a worker_args *. */
#define WORKER_OPTIONS(w)                                                                                              \
    {"device", OPT_LIST, &(w)->devices, "NAME", "cpu or cuda:N; repeat for more, a worker each (cpu)"},                 \
    {"workers", OPT_INT, &(w)->n_workers, "N", "workers on each device (1)", 1, 256},                                   \
    {"max-batch", OPT_INT, &(w)->max_batch, "N", "requests running together on one (32)", 1, 4096},                     \
    {"threads", OPT_INT, &(w)->threads, "N", "CPU threads of each (the cores, shared out)", 1, 1024},                   \
    {"kv-pages", OPT_INT, &(w)->kv_pages, "N", "KvCache pages of 16 tokens (enough for the batch)", 1, 1e8},            \
    {"adapter-slots", OPT_INT, &(w)->adapter_slots, "N", "adapters in a device's memory at once (64)", 1, 65536}

/* Fill in device, n_workers, worker_args and n_worker_args of o. Workers that share the CPU share its cores. What it
 * allocates is given back by worker_args_release(). */
void worker_args_apply(const worker_args *a, runner_options *o);
void worker_args_release(runner_options *o);

/* As many connections as the system lets this process have: the limit it starts with is often a low one. */
void cluster_raise_file_limit(void);

/* Run the loop until SIGTERM or SIGINT: on_signal is called for each, with how many there have been. */
void cluster_run(struct event_base *loop, void (*on_signal)(void *ctx, int n), void *ctx);

/* Run it for a frontend: the first signal lets its streams end, for so many seconds at most; the second ends all. */
void cluster_run_frontend(struct event_base *loop, frontend *f, double drain_seconds);

#endif
