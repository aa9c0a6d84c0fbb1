/* told_loaders.h - loaders (base/jobs.h) that do nothing until the test tells them to, or somebody waits for them */
#ifndef PUNICA_TESTS_TOLD_LOADERS_H
#define PUNICA_TESTS_TOLD_LOADERS_H

#include <string.h>

#include "base/jobs.h"
#include "test.h"

enum { MAX_TOLD = 64 };
typedef struct {
    jobs base;
    job *todo[MAX_TOLD], *done[MAX_TOLD];
    int n_todo, n_done;
} told_loaders;

/* The oldest of a list, which has one. */
static job *told_shift(job **list, int *n)
{
    assert_true(*n > 0);
    job *first = list[0];
    memmove(list, list + 1, (size_t)--*n * sizeof *list);
    return first;
}

static void told_start(jobs *w, job *j)
{
    told_loaders *t = (told_loaders *)w;
    assert_true(t->n_todo < MAX_TOLD);
    t->todo[t->n_todo++] = j;
}

/* Finish the oldest n jobs. */
static void told_run(told_loaders *t, int n)
{
    for (; n > 0; n--) {
        job *j = told_shift(t->todo, &t->n_todo);
        j->run(j);
        t->done[t->n_done++] = j;
    }
}

static job *told_finished(jobs *w, bool wait)
{
    told_loaders *t = (told_loaders *)w;
    if (wait && t->n_done == 0)
        told_run(t, 1);
    return t->n_done ? told_shift(t->done, &t->n_done) : NULL;
}

static job *told_take_back(jobs *w)
{
    told_loaders *t = (told_loaders *)w;
    return t->n_todo ? told_shift(t->todo, &t->n_todo) : NULL;
}

static const jobs_ops told_ops = {.start = told_start, .finished = told_finished, .take_back = told_take_back};

#endif
