/* pool.h - a few threads that share the items of one loop
 *
 * pool_run calls fn once for each item 0..n_items-1, on any thread, in any order, and returns when
 * all are done; the caller works along as thread 0. Items are handed out one at a time, so uneven
 * ones balance themselves. Between loops the workers spin briefly, then sleep. Waking one that has slept for
 * milliseconds may take longer than the loop itself, so pool_wake() can wake them ahead of a loop. */
#ifndef PUNICA_BASE_POOL_H
#define PUNICA_BASE_POOL_H

typedef struct pool pool;
typedef void pool_fn(void *arg, int item, int thread); /* thread: 0..pool_size-1 */

/* Returns the number of cores this process may run on. */
int pool_cores(void);

/* Starts n_threads - 1 workers (n_threads 0: one thread for each core), or as many as can be had. Never NULL. */
pool *pool_new(int n_threads);
void pool_free(pool *p);
int pool_size(const pool *p);

/* Runs a loop. One caller at a time, and not from inside fn. */
void pool_run(pool *p, int n_items, pool_fn *fn, void *arg);

/* Wakes the workers and keeps them spinning for a moment, since the caller is about to call pool_run(). */
void pool_wake(pool *p);

#endif
