/* process.h - a worker's process, as its runner sees it: messages both ways, and its end
 *
 * Two implementations: subprocess.h, and sim/, whose processes are simulated. */
#ifndef PUNICA_RUNNER_PROCESS_H
#define PUNICA_RUNNER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct process process;

/* message: one has come, packed, valid during the call; false: it is none, and the process is killed. ended: no more
 * of it; why in words; from_outside: neither its own doing nor that of process_kill(), unless somebody had stopped it
 * before that. The process may be freed from within ended, not from within message. */
typedef struct {
    bool (*message)(void *ctx, const void *bytes, size_t n);
    void (*ended)(void *ctx, const char *why, bool from_outside);
    void *ctx;
} process_events;

typedef struct {
    void (*send)(process *, const void *message, size_t n);
    void (*kill)(process *);
    void (*free)(process *);
} process_ops;

struct process {
    const process_ops *ops;
    int pid; /* for logs */
};

/* Who starts processes. argv ends with NULL; argv[0] is what it is called. NULL with e set. */
typedef struct {
    process *(*start)(void *ctx, char *const argv[], const process_events *events, err *e);
    void *ctx;
} process_starter;

/* Queue a message, packed already. */
static inline void process_send(process *p, const void *message, size_t n)
{
    p->ops->send(p, message, n);
}

/* End it without asking; ended follows. */
static inline void process_kill(process *p)
{
    p->ops->kill(p);
}

/* The same without calling ended. */
static inline void process_free(process *p)
{
    if (p)
        p->ops->free(p);
}

#endif
