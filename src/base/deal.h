/* deal.h - jobs dealt out to workers, so that all are done at about the same time */
#ifndef PUNICA_BASE_DEAL_H
#define PUNICA_BASE_DEAL_H

/* Jobs 0 to n - 1, best the largest first; job j costs cost[j / group]. In their order, each job goes to the worker
 * that has least to do so far, the first of those, and before what it has: worker w begins with first[w], and after job
 * j comes next[j], n: nothing. */
void deal(const int *cost, int group, int n, int n_workers, int *first, int *next);

#endif
