/* fair_queue.h - jobs of very different sizes for several threads: short ones overtake long ones, and none starves
 *
 * Fair queueing by virtual finish time: a job's turn is the total size of the jobs begun when it came, plus its own
 * size. So the jobs that overtake it sum to no more than its own size. A thread may pop short jobs only, so that they
 * need not wait for long ones. Any thread. */
#ifndef PUNICA_BASE_FAIR_QUEUE_H
#define PUNICA_BASE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded in what waits. The owner sets size: about how many bytes are to be worked on. */
typedef struct {
    size_t size;
    uint64_t turn, number; /* these and `at` are the queue's */
    size_t at;
} fair_item;

typedef struct fair_queue fair_queue;

#define FAIR_SHORT (128u << 10) /* up to this size a job is short */

fair_queue *fair_queue_new(void);
void fair_queue_free(fair_queue *q); /* must be empty; nobody may be waiting */
void fair_queue_push(fair_queue *q, fair_item *i);

/* Pops the item whose turn is next, waiting for one; only_short: among the short ones only. NULL: the queue is closed
 * and has none. */
fair_item *fair_queue_pop(fair_queue *q, bool only_short);
fair_item *fair_queue_try_pop(fair_queue *q); /* short or long, or NULL when there is none */

/* Takes an item out of the queue. False: it has been popped already. */
bool fair_queue_remove(fair_queue *q, fair_item *i);
void fair_queue_close(fair_queue *q); /* wakes all who wait */

#endif
