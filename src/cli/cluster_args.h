/* cluster_args.h - what the commands of a cluster share: the secret, logging, a runner's workers, what signals do */
#ifndef PUNICA_CLI_CLUSTER_ARGS_H
#define PUNICA_CLI_CLUSTER_ARGS_H

#include <event2/event.h>

#include "backend/group.h"
#include "cli/options.h"
#include "net/link.h"
#include "runner/runner.h"

#define SECRET_HELP "the cluster's shared secret, one line, or two while it is changed (or environment PUNICA_SECRET)"
#define SIGHUP_HELP "SIGHUP reads secret and certificates again and opens the log file anew."
#define LOG_LEVEL_HELP "error, warn, info or debug (info)"

#define LOG_FILE_HELP "where to log instead of standard error; SIGHUP opens it anew"

/* Of a role that connects; f: a credential_files *. */
#define TLS_OPTIONS(f)                                                                                      \
    {"tls-ca", OPT_STRING, &(f)->tls_ca, "FILE", "whom to trust, PEM: the link to the scheduler uses TLS"}, \
        {"tls-cert", OPT_STRING, &(f)->tls_cert, "FILE",                                                    \
         "our own certificate for this role, PEM: no secret is needed"},                                    \
        {"tls-key", OPT_STRING, &(f)->tls_key, "FILE", "its private key, PEM"}

/* Whether links may come in, or lead, there: what other processes can reach. */
int cluster_check_address(const char *text, err *e);

/* Where the log goes to, and its level by name; NULL: as it is. */
int cluster_log(const char *file, const char *level, err *e);

/* What a runner's workers are told. */
typedef struct {
    const char *model_dir, *adapters_dir, *cache;
    const char *weights, *kv; /* NULL: as they are stored, and as the device likes */
    option_list adapters;     /* NAME=DIR */
    option_list devices;      /* none: cpu */
    int tp;                   /* ranks that each worker's model is split over; 0: 1 */
    int n_workers;            /* per device; 0: 1 */
    int max_batch, threads, kv_pages, adapter_slots, max_len, itl_target; /* 0: as the engine likes */
    size_t adapter_host_bytes;                                            /* the same */
    bool no_prefix_cache;
    size_t host_bytes;   /* of each worker; as in engine_options */
    double memory_share; /* of a device, for all its workers together; the same */
} worker_args;

worker_args worker_args_default(void);

/* Their rows of a table of options; w: a worker_args *. */
#define WORKER_OPTIONS(w)                                                                                            \
    {"device", OPT_LIST, &(w)->devices, "NAME",                                                                      \
     "cpu, cuda, cuda:N or cuda:N-M; repeat for more, a worker each (cpu)"},                                         \
        {"tp", OPT_INT, &(w)->tp, "N", "split the model over N GPUs, which are then one worker (1)", 1, MAX_RANKS},  \
        {"workers", OPT_INT, &(w)->n_workers, "N", "workers on each device (1)", 1, 256},                            \
        {"weights", OPT_STRING, &(w)->weights, "FORM", WEIGHTS_HELP}, {"kv", OPT_STRING, &(w)->kv, "FORM", KV_HELP}, \
        {"max-batch", OPT_INT, &(w)->max_batch, "N", MAX_BATCH_HELP, 1, 4096},                                       \
        {"itl-target", OPT_INT, &(w)->itl_target, "MS", ITL_TARGET_HELP, 1, 60000},                                  \
        {"threads", OPT_INT, &(w)->threads, "N", "CPU threads of each (the cores, shared out)", 1, 1024},            \
        {"max-model-len", OPT_INT, &(w)->max_len, "N", MAX_LEN_HELP, 1, 1e9},                                        \
        {"memory-share", OPT_DOUBLE, &(w)->memory_share, "SHARE", MEMORY_SHARE_HELP, 0.01, 0.99},                    \
        {"kv-pages", OPT_INT, &(w)->kv_pages, "N", KV_PAGES_HELP, 1, 1e8},                                           \
        {"no-prefix-cache", OPT_FLAG, &(w)->no_prefix_cache, NULL, NO_PREFIX_CACHE_HELP},                            \
        {"kv-host-bytes", OPT_SIZE, &(w)->host_bytes, "N", KV_HOST_HELP, 0, 1e15},                                   \
        {"adapter-slots", OPT_INT, &(w)->adapter_slots, "N", ADAPTER_SLOTS_HELP, 1, 65536},                          \
        {"adapter-host-bytes", OPT_SIZE, &(w)->adapter_host_bytes, "N", ADAPTER_HOST_BYTES_HELP, 4096, 1e12}

/* What workers would refuse, each by itself and again and again. */
int worker_args_check(const worker_args *a, err *e);

/* Fill in device, n_workers, worker_args and n_worker_args of o. Workers that share the CPU share its cores. What it
 * allocates is given back by worker_args_release(). */
void worker_args_apply(const worker_args *a, runner_options *o);
void worker_args_release(runner_options *o);

/* Give up what a role with workers does not need (base/sandbox.h), having made CUDA's devices if they are not there:
 * workers, which would have that done by a program with root's rights, cannot do it afterwards. Before there are
 * threads. */
void worker_args_settle(const worker_args *a);

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
