/* worker.h - one device's engine, as its runner knows it: commands in, Steps out
 *
 *   commands ──▶ worker_take ──▶ worker_report_news ──▶ worker_step: one engine step, one Step out ──▶ ...
 *
 * A Step goes out at the end of each engine step, and one a second when there is nothing to do, so that the runner sees
 * that it lives. It says how large each step was and how long it took, so that the scheduler sees who is slow; when
 * asked to show it with nothing to do, it makes a few tokens for nobody. No files, no pipes, no clock of its own:
 * worker_process.c has those, and the simulation others. */
#ifndef PUNICA_WORKER_WORKER_H
#define PUNICA_WORKER_WORKER_H

#include "base/err.h"
#include "engine/engine.h"
#include "worker/grammars.h"

typedef struct {
    int gpu;                   /* its number at its runner */
    const char *uuid, *device; /* of the device, and the device in words; copied */
    int max_batch, max_tokens; /* requests at once; tokens of one, as the model allows */
    grammars *grammars;        /* borrowed */
    bool tells_residents;      /* now and then it says which adapters are in memory */
    bool (*has_adapter)(void *ctx,
                        const char *id); /* on this host's disk, where asking is a use of it; NULL: all there are */
    int (*send)(void *ctx, const void *message, size_t n); /* packed; -1: nobody listens any more */
    double (*now)(void *ctx);                              /* seconds of any clock */
    void *ctx;
} worker_setup;

typedef struct worker worker;

typedef enum { WORKER_GOES_ON, WORKER_UNHEARD, WORKER_FAILED } worker_status; /* nobody listens; the device failed */

/* The engine is borrowed; its never_waits is set. */
worker *worker_new(engine *g, const worker_setup *s);
void worker_free(worker *w); /* w may be NULL */

/* Say that the device is ready, first of all. */
worker_status worker_greet(worker *w);

/* Take in a message of the runner's. -1: it is no command. */
int worker_take(worker *w, const void *message, size_t n, err *e);

/* It has no requests. */
bool worker_is_empty(const worker *w);

/* Seconds that may pass before the next step if no command comes. */
double worker_may_wait(const worker *w);

/* Before a step: if there are new requests, report them as taken in. If the step is the worker's end, the scheduler
 * knows who was there. */
worker_status worker_report_news(worker *w);

/* One step of the engine, if it has anything to do, and the report of it. */
worker_status worker_step(worker *w, err *e);

#endif
