/* process.h - a worker subprocess: two pipes of messages, its standard error, and its end
 *
 * The program is this one (/proc/self/exe). What it writes to standard error is passed on line by line; its last line
 * tells why it ended. */
#ifndef PUNICA_RUNNER_PROCESS_H
#define PUNICA_RUNNER_PROCESS_H

#include <event2/event.h>
#include <stdbool.h>

#include "base/err.h"

typedef struct process process;

/* message: one has come, packed, valid during the call; false: it is none, and the process is killed. ended: no more
 * of it; why in words. The process may be freed from within ended, not from within message. */
typedef struct {
    bool (*message)(void *ctx, const void *bytes, size_t n);
    void (*ended)(void *ctx, const char *why);
    void *ctx;
} process_events;

/* argv ends with NULL; argv[0] is what it is called. NULL with e set. */
process *process_start(struct event_base *loop, char *const argv[], const process_events *events, err *e);

/* Queue a message, packed already. */
void process_send(process *p, const void *message, size_t n);

void process_kill(process *p);          /* SIGKILL; ended follows */
void process_free(process *p);          /* kills it without calling ended */
int process_pid(const process *p);

#endif
