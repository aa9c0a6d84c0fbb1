/* process.h - a process started by a runner: messages both ways, and its end
 *
 * Two implementations: subprocess.h, and sim/, whose processes are simulated. */
#ifndef PUNICA_RUNNER_PROCESS_H
#define PUNICA_RUNNER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct process process;

/* message: one has come, packed, valid during the call; returns false when it is invalid, and the process is killed.
 * ended: the process has ended, why in words; from_outside: somebody else killed it, or had stopped it (SIGSTOP) before
 * process_kill(). The process may be freed from within ended, not from within message. */
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

/* Starts processes. argv ends with NULL; argv[0] is the process's name. NULL with e set on failure. */
typedef struct {
    process *(*start)(void *ctx, char *const argv[], const process_events *events, err *e);
    void *ctx;
} process_starter;

/* Queues a message, packed already. */
static inline void process_send(process *p, const void *message, size_t n)
{
    p->ops->send(p, message, n);
}

/* Kills the process; `ended` is called later. */
static inline void process_kill(process *p)
{
    p->ops->kill(p);
}

/* Kills the process and frees p, without calling `ended`. p may be NULL. */
static inline void process_free(process *p)
{
    if (p)
        p->ops->free(p);
}

#endif
