/* lpt.h - LPT (longest processing time first) scheduling: jobs assigned to workers that should end at the same time */
#ifndef PUNICA_BASE_LPT_H
#define PUNICA_BASE_LPT_H

/* Assigns jobs 0 to n - 1, sorted by the caller with the largest first, to workers; job j costs cost[j / group]. Each
 * job goes to the worker with the least load so far (of several, the one of the lowest number), at the head of that
 * worker's list: worker w begins with first[w], and next[j] follows job j; n ends a list. */
void lpt_schedule(const int *cost, int group, int n, int n_workers, int *first, int *next);

#endif
