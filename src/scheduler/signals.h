/* signals.h - a scheduler's state, for operators and their tools */
#ifndef PUNICA_SCHEDULER_SIGNALS_H
#define PUNICA_SCHEDULER_SIGNALS_H

#include "base/buf.h"
#include "scheduler/scheduler.h"

/* Appends how the cluster's size should change: "up", "down UUID..." (idle GPUs that can go; one that could take the
 * next request stays), or nothing. All GPU numbers are below n_numbers. */
void signals_write_advice(buf *out, const scheduler *s, int n_numbers);

/* Appends a JSON object: that advice, the queue, every GPU. */
void signals_write_json(buf *out, const scheduler *s, int n_numbers, int n_frontends);

/* Appends the same as metrics of Prometheus. */
void signals_write_metrics(buf *out, const scheduler *s, int n_numbers, int n_frontends);

#endif
