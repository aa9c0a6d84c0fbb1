/* told_loaders.c - see told_loaders.h */
#include "support/told_loaders.h"

#include <string.h>

#include "support/test.h"

/* Removes the oldest job of a list, which is not empty, and returns it. */
static job *shift(job **list, int *n)
{
    assert_true(*n > 0);
    job *first = list[0];
    memmove(list, list + 1, (size_t)--*n * sizeof *list);
    return first;
}

static void start(jobs *w, job *j)
{
    told_loaders *t = (told_loaders *)w;
    assert_true(t->n_todo < MAX_TOLD);
    t->todo[t->n_todo++] = j;
}

void told_loaders_run(told_loaders *t, int n)
{
    for (; n > 0; n--) {
        job *j = shift(t->todo, &t->n_todo);
        j->run(j);
        t->done[t->n_done++] = j;
    }
}

static job *finished(jobs *w, bool wait)
{
    told_loaders *t = (told_loaders *)w;
    if (wait && t->n_done == 0)
        told_loaders_run(t, 1);
    return t->n_done ? shift(t->done, &t->n_done) : NULL;
}

static job *take_back(jobs *w)
{
    told_loaders *t = (told_loaders *)w;
    return t->n_todo ? shift(t->todo, &t->n_todo) : NULL;
}

const jobs_ops told_loaders_ops = {.start = start, .finished = finished, .take_back = take_back};
