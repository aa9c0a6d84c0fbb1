/* cluster_args.h - what the commands of a cluster share: the secret, logging, a runner's workers, what signals do */
#ifndef PUNICA_CLI_CLUSTER_ARGS_H
#define PUNICA_CLI_CLUSTER_ARGS_H

#include <event2/event.h>

#include "backend/group.h"
#include "cli/options.h"
#include "net/link.h"
#include "runner/runner.h"

/* Checks that text is an address for links between processes. 0, or -1 with e set. */
int cluster_check_address(const char *text, err *e);

/* Sets the log's file, and its level by name; NULL leaves it as it is. 0, or -1 with e set. */
int cluster_log(const char *file, const char *level, err *e);

/* What a runner's workers are told. */
typedef struct {
    const char *model_dir, *adapters_dir, *cache;
    const char *weights, *kv;
    option_list adapters;                                     /* NAME=DIR */
    option_list devices;                                      /* none: cpu */
    int tp;                                                   /* ranks that each worker's model is split over */
    int n_workers;                                            /* per device */
    int max_batch, threads, kv_pages, adapter_slots, max_len; /* 0: as the engine likes */
    int itl_target;                                           /* milliseconds */
    size_t adapter_host_bytes;
    bool no_prefix_cache;
    size_t host_bytes;   /* of each worker; as in engine_options */
    double memory_share; /* of a device, for all its workers together */
} worker_args;

/* Returns the engine's own defaults. */
worker_args worker_args_default(void);

/* Checks what every worker would otherwise refuse by itself, at each of its starts. 0, or -1 with e set. */
int worker_args_check(const worker_args *a, err *e);

/* Fills in device, n_workers, worker_args and n_worker_args of o; free them with worker_args_release(). Workers that
 * share the CPU share its cores. */
void worker_args_apply(const worker_args *a, runner_options *o);
void worker_args_release(runner_options *o);

/* Gives up what a role with workers does not need (base/sandbox.h). Makes CUDA's device nodes first, if they are
 * missing: a program with root's rights does that, which workers can no longer start afterwards. Call it before there
 * are threads. */
void worker_args_sandbox(const worker_args *a);

/* Raises the limit of open files to what the system allows: the one that a process starts with is often low. */
void cluster_raise_file_limit(void);

/* Calls done(done_ctx) when nothing is left to be done. */
typedef void cluster_drain(void *ctx, void (*done)(void *), void *done_ctx);

/* What signals do to a role. drain may be NULL: SIGTERM exits at once. */
typedef struct {
    cluster_drain *drain;
    void *ctx;        /* of drain */
    credentials *own; /* read again from `files`; NULL: there are none */
    credential_files files;
    int (*reload)(void *ctx, err *e); /* reads more of its files again; NULL: there are none */
    const char *log_file;             /* opened anew; NULL: none */
} cluster_role;

/* Runs the loop until SIGTERM, SIGINT or SIGQUIT. The first calls drain; when that is done, or at a second signal, the
 * loop ends. SIGHUP reads secret and certificates again and reopens the log file; but if it came because the terminal
 * is gone, it acts as SIGTERM does. */
void cluster_run(struct event_base *loop, const cluster_role *role);

#endif
