/* jobs.h - work done asynchronously: started here, collected when it is finished
 *
 * A job is embedded in whatever it works on. Between jobs_start() and the call that returns it, it belongs to the
 * implementation. One thread calls all functions. Implementations: threads (below), and virtual time in the
 * simulations. */
#ifndef PUNICA_BASE_JOBS_H
#define PUNICA_BASE_JOBS_H

#include <stdbool.h>

typedef struct job job;
struct job { void (*run)(job *j); }; /* may run on any thread, several jobs at a time */

typedef struct jobs jobs;

typedef struct {
    void (*start)(jobs *, job *);
    job *(*finished)(jobs *, bool wait); /* one that has run, or NULL; wait: block until an outstanding one has */
    job *(*take_back)(jobs *);           /* one that has not begun, which will not be run then; NULL: none */
    void (*free)(jobs *);                /* no job may be outstanding */
} jobs_ops;

struct jobs { const jobs_ops *ops; };

/* Runs jobs on n threads of its own. Free with jobs_free(). */
jobs *jobs_threads_new(int n);

static inline void jobs_start(jobs *w, job *j)
{
    w->ops->start(w, j);
}
static inline job *jobs_finished(jobs *w, bool wait)
{
    return w->ops->finished(w, wait);
}
static inline job *jobs_take_back(jobs *w)
{
    return w->ops->take_back(w);
}
static inline void jobs_free(jobs *w)
{
    if (w)
        w->ops->free(w);
}

#endif
