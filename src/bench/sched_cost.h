/* sched_cost.h - `punica simulate --cost`: what an event costs the scheduler, with few and many GPUs, all full, and a
 * long queue */
#ifndef PUNICA_BENCH_SCHED_COST_H
#define PUNICA_BENCH_SCHED_COST_H

void sched_cost_run(void);

#endif
