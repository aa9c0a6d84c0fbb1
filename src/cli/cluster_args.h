/* cluster_args.h - options that the commands of a cluster share: the secret, TLS, logging; and a runner's workers */
#ifndef PUNICA_CLI_CLUSTER_ARGS_H
#define PUNICA_CLI_CLUSTER_ARGS_H

#include "cli/options.h"
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

/* Fill in device, n_workers, worker_args and n_worker_args of o. Workers that share the CPU share its cores. What it
 * allocates is given back by worker_args_release(). */
void worker_args_apply(const worker_args *a, runner_options *o);
void worker_args_release(runner_options *o);

/* As many connections as the system lets this process have: the limit it starts with is often a low one. */
void cluster_raise_file_limit(void);

/* Run the loop until SIGTERM or SIGINT: on_signal is called for each, with how many there have been. */
void cluster_run(struct event_base *loop, void (*on_signal)(void *ctx, int n), void *ctx);

#endif
