/* worker.h - one device's engine behind messages: commands in, Steps out
 *
 *   commands ──▶ worker_receive ──▶ worker_report_news ──▶ worker_step: one engine step, one Step out ──▶ ...
 *
 * A Step goes out at the end of each engine step, and as a heartbeat once a second when there is nothing to do. It says
 * how large the step was and how long it took, so that the scheduler can tell slow GPUs; when probed while idle, the
 * worker draws a few tokens that nobody gets. No files, no pipes, no clock of its own: worker_process.c provides them,
 * or the simulation. */
#ifndef PUNICA_WORKER_WORKER_H
#define PUNICA_WORKER_WORKER_H

#include "base/err.h"
#include "engine/engine.h"
#include "worker/grammars.h"

typedef struct {
    int gpu;                   /* its number at its runner */
    const char *uuid, *device; /* the device's uuid, and the device in words; copied */
    int max_batch, max_tokens; /* requests at once; tokens of one request */
    grammars *grammars;        /* borrowed */
    bool tells_residents;      /* Steps list the adapters in memory now and then */
    bool (*has_adapter)(void *ctx,
                        const char *id); /* is it on this host's disk? counts as a use there; NULL: always yes */
    int (*send)(void *ctx, const void *message, size_t n); /* a packed message; -1: nobody listens any more */
    double (*now)(void *ctx);                              /* seconds of any clock */
    void *ctx;
} worker_setup;

typedef struct worker worker;

/* DISCONNECTED: nobody reads its messages any more; FAILED: the device failed. */
typedef enum { WORKER_GOES_ON, WORKER_DISCONNECTED, WORKER_FAILED } worker_status;

/* The engine is borrowed; it must have been made with never_waits. */
worker *worker_new(engine *g, const worker_setup *s);
void worker_free(worker *w); /* w may be NULL */

/* Reports that the device is ready; to be called first. */
worker_status worker_announce(worker *w);

/* Handles a message from the runner. -1 with e set: it is not Commands. */
int worker_receive(worker *w, const void *message, size_t n, err *e);

/* Returns whether the worker has no requests. */
bool worker_is_empty(const worker *w);

/* Returns how many seconds may pass before the next step if no command comes. */
double worker_may_wait(const worker *w);

/* Reports new requests as seen, if there are any; to be called before each step. So if the step kills the worker, the
 * scheduler knows which requests were there. */
worker_status worker_report_news(worker *w);

/* Runs one step of the engine, if it has anything to do, and reports it. */
worker_status worker_step(worker *w, err *e);

#endif
