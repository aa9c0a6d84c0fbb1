/* background.h - work that would hold up the loop, done on threads beside it
 *
 * Tasks wait in a fair queue (fair_queue.h) by their size; one thread is for short ones alone. A task that is abandoned
 * is dropped: at once if it is queued, else when it returns, which it should do soon after `abandoned` has become
 * true. */
#ifndef PUNICA_FRONTEND_BACKGROUND_H
#define PUNICA_FRONTEND_BACKGROUND_H

#include <event2/event.h>
#include <stdatomic.h>

#include "base/fair_queue.h"

/* Embedded in what is worked on. run is called on a thread, and touches only what the loop's thread leaves alone
 * meanwhile. Then done is called on the loop, which owns the task again; or drop, on the loop, if the task was
 * abandoned or background_free() came first. */
typedef struct task task;
struct task {
    fair_item turn; /* first; the owner sets its size */
    void (*run)(task *t);
    void (*done)(task *t);
    void (*drop)(task *t);
    atomic_bool abandoned;
};

typedef struct background background;

background *background_new(struct event_base *loop, int n_threads); /* at least two are made */
void background_free(background *b); /* waits for tasks that run; drops all that are not done */

/* Queues a task, which is the threads' until done or drop is called. */
void background_start(background *b, task *t);

/* Drops a task that nobody waits for any more. The caller must not use it from now on. */
void background_abandon(background *b, task *t);

#endif
