/* told_loaders.h - loaders (base/jobs.h) that do nothing until the test tells them to, or somebody waits for them */
#ifndef PUNICA_TESTS_SUPPORT_TOLD_LOADERS_H
#define PUNICA_TESTS_SUPPORT_TOLD_LOADERS_H

#include "base/jobs.h"

enum { MAX_TOLD = 64 };
typedef struct {
    jobs base;
    job *todo[MAX_TOLD], *done[MAX_TOLD];
    int n_todo, n_done;
} told_loaders;

extern const jobs_ops told_loaders_ops; /* for base.ops; initialise all else with zero */

/* Runs the oldest n jobs. */
void told_loaders_run(told_loaders *t, int n);

#endif
