/* worker_process.h - a worker as a subprocess of a runner: its model, its device and two pipes
 *
 * Commands come in on one file descriptor, Steps go out on another (net/frames.h). It ends when the pipe is closed. */
#ifndef PUNICA_WORKER_WORKER_PROCESS_H
#define PUNICA_WORKER_WORKER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
    const char *model_dir, *device;
    int tp;                     /* ranks that the model is split over */
    const char *weights, *kv;   /* weights_form_find(), kv_form_find() */
    const char *adapters_dir;   /* NULL: none */
    const char *cache;          /* the disk cache's folder; NULL: none */
    const char *const *adapter; /* [n_adapters] "NAME=DIR" */
    int n_adapters;
    int max_batch, threads, kv_pages, adapter_slots; /* 0: the engine's default */
    size_t adapter_host_bytes;                       /* 0: the default */
    int itl_target;                                  /* milliseconds; 0: the default */
    bool no_prefix_cache;
    double memory_share; /* 0: the default */
    size_t host_bytes;   /* see engine_options */
    int max_len;         /* tokens of a request; 0: as many as the model allows and the KvCache holds */
    int gpu;             /* its number at its runner */
    int in, out;         /* file descriptors */
} worker_options;

/* Runs a worker. 0: the pipe was closed; -1 with e set: the model cannot be loaded, or the device failed. */
int worker_run(const worker_options *o, err *e);

#endif
