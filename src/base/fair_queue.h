/* fair_queue.h - jobs of very different sizes for several threads: short ones pass long ones, and nobody starves
 *
 * Start-time fair queueing: a job's turn is what had been begun in all when it came, and its own size. So a job is
 * overtaken by no more work than it is itself. Long jobs may leave one thread free for short ones. Any thread. */
#ifndef PUNICA_BASE_FAIR_QUEUE_H
#define PUNICA_BASE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded in what waits. The owner sets size, about how many bytes are to be worked on. */
typedef struct {
    size_t size;
    uint64_t turn, number; /* the queue's */
    size_t at;
} fair_item;

typedef struct fair_queue fair_queue;

#define FAIR_SHORT (128u << 10) /* up to this size a job is short */

fair_queue *fair_queue_new(void);
void fair_queue_free(fair_queue *q); /* must be empty; nobody may be waiting */
void fair_queue_push(fair_queue *q, fair_item *i);

/* The one whose turn is next; waits for it. only_short: no other. NULL: it is closed, and empty. */
fair_item *fair_queue_pop(fair_queue *q, bool only_short);
fair_item *fair_queue_try_pop(fair_queue *q); /* any, or NULL when there is none */

/* Take it out. False: somebody has popped it. */
bool fair_queue_remove(fair_queue *q, fair_item *i);
void fair_queue_close(fair_queue *q); /* wakes all who wait */

#endif
