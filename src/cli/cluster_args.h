/* cluster_args.h - what the commands of a cluster share: the secret, logging, a runner's workers, what signals do */
#ifndef PUNICA_CLI_CLUSTER_ARGS_H
#define PUNICA_CLI_CLUSTER_ARGS_H

#include <event2/event.h>

#include "backend/group.h"
#include "cli/options.h"
#include "net/link.h"
#include "runner/runner.h"

/* Whether links may come in, or lead, there: what other processes can reach. */
int cluster_check_address(const char *text, err *e);

/* Where the log goes to, and its level by name; NULL: as it is. */
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

/* All as the engine has it where nothing is said. */
worker_args worker_args_default(void);

/* What workers would refuse, each by itself and again and again. */
int worker_args_check(const worker_args *a, err *e);

/* Fill in device, n_workers, worker_args and n_worker_args of o. Workers that share the CPU share its cores. What it
 * allocates is given back by worker_args_release(). */
void worker_args_apply(const worker_args *a, runner_options *o);
void worker_args_release(runner_options *o);

/* Give up what a role with workers does not need (base/sandbox.h), having made CUDA's devices if they are not there:
 * workers, which would have that done by a program with root's rights, cannot do it afterwards. Before there are
 * threads. */
void worker_args_sandbox(const worker_args *a);

/* As many connections as the system lets this process have: the limit it starts with is often a low one. */
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

/* Run the loop until SIGTERM, SIGINT or SIGQUIT: the first calls drain, whose end, or a second signal, ends the loop.
 * SIGHUP reads secret and certificates again and opens the log file anew, or where that came of a terminal that is
 * gone, drains. */
void cluster_run(struct event_base *loop, const cluster_role *role);

#endif
