/* jobs.c - see jobs.h: the implementation with threads */
#include "base/jobs.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/queue.h"

typedef struct {
    jobs base; /* first */
    queue *todo, *done;
    int n_outstanding; /* used by the caller's thread only; waiting when it is 0 would never end */
    int n_threads;
    pthread_t thread[]; /* [n_threads] */
} job_threads;

static void *thread_main(void *arg)
{
    job_threads *t = arg;
    for (job *j; (j = queue_pop(t->todo));) {
        j->run(j);
        queue_push(t->done, j);
    }
    return NULL;
}

static void start(jobs *w, job *j)
{
    job_threads *t = (job_threads *)w;
    t->n_outstanding++;
    queue_push(t->todo, j);
}

static job *finished(jobs *w, bool wait)
{
    job_threads *t = (job_threads *)w;
    CHECK(!wait || t->n_outstanding > 0);
    job *j = wait ? queue_pop(t->done) : queue_try_pop(t->done);
    t->n_outstanding -= j != NULL;
    return j;
}

static job *take_back(jobs *w)
{
    job_threads *t = (job_threads *)w;
    job *j = queue_try_pop(t->todo);
    t->n_outstanding -= j != NULL;
    return j;
}

static void free_threads(jobs *w)
{
    job_threads *t = (job_threads *)w;
    CHECK(t->n_outstanding == 0);
    queue_close(t->todo);
    for (int i = 0; i < t->n_threads; i++)
        pthread_join(t->thread[i], NULL);
    queue_free(t->todo);
    queue_free(t->done);
    free(t);
}

jobs *jobs_threads_new(int n)
{
    static const jobs_ops ops = {.start = start, .finished = finished, .take_back = take_back, .free = free_threads};
    job_threads *t = xmalloc(sizeof *t + (size_t)n * sizeof *t->thread);
    *t = (job_threads){.base.ops = &ops, .todo = queue_new(), .done = queue_new(), .n_threads = n};
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&t->thread[i], NULL, thread_main, t) == 0);
    return &t->base;
}
