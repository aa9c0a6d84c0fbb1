/* background.h - work that would hold up the loop, done on threads beside it
 *
 * Tasks wait in a fair queue (fair_queue.h) by their size; one thread is for short ones alone. A task that nobody waits
 * for any more is dropped: out of the queue at once, or, while it runs, as soon as it looks at `abandoned`. */
#ifndef PUNICA_FRONTEND_BACKGROUND_H
#define PUNICA_FRONTEND_BACKGROUND_H

#include <event2/event.h>
#include <stdatomic.h>

#include "base/fair_queue.h"

/* Embedded in what is worked on. run: on a thread; it touches what the loop's thread leaves alone meanwhile. done: on
 * the loop, which owns the task again. drop: instead of done, on the loop, when it was abandoned. */
typedef struct task task;
struct task {
    fair_item turn; /* first; the owner sets its size */
    void (*run)(task *t);
    void (*done)(task *t);
    void (*drop)(task *t);
    atomic_bool abandoned;
};

typedef struct background background;

background *background_new(struct event_base *loop, int n_threads); /* two at least */
void background_free(background *b); /* waits for tasks in hand; all that are not done are dropped */

void background_start(background *b, task *t);

/* Nobody waits for it any more; it is not to be used by the caller from now on. */
void background_abandon(background *b, task *t);

#endif
