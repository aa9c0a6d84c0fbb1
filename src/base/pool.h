/* pool.h - a few threads that share the items of one loop
 *
 * pool_run calls fn once for each item 0..n_items-1, on any thread, in any order, and returns when
 * all are done; the caller works along as thread 0. Items are handed out one at a time, so uneven
 * ones balance themselves. Between loops the workers spin briefly, then sleep. Waking one that has slept for
 * milliseconds takes longer than many a loop, so who knows of a loop that is about to come may rouse them. */
#ifndef PUNICA_BASE_POOL_H
#define PUNICA_BASE_POOL_H

typedef struct pool pool;
typedef void pool_fn(void *arg, int item, int thread); /* thread: 0..pool_size-1 */

/* Cores this process may run on. */
int pool_cores(void);

/* n_threads 0: one for each core. Never NULL. */
pool *pool_new(int n_threads);
void pool_free(pool *p);
int pool_size(const pool *p);

/* One caller at a time, and not from inside fn. */
void pool_run(pool *p, int n_items, pool_fn *fn, void *arg);

/* Wake the workers, and keep them spinning for a moment: pool_run() is about to be called, by the same caller. */
void pool_rouse(pool *p);

#endif
