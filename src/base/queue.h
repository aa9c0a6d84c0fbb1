/* queue.h - the one way memory passes between threads
 *
 * An unbounded FIFO of pointers. Popping an item takes over its ownership. */
#ifndef PUNICA_BASE_QUEUE_H
#define PUNICA_BASE_QUEUE_H

#include <stdbool.h>

typedef struct queue queue;

queue *queue_new(void);
void queue_free(queue *q);             /* items still in it are not freed; nobody may be waiting */
void queue_push(queue *q, void *item); /* any thread */
void *queue_try_pop(queue *q);         /* the oldest item, or NULL when there is none */
void *queue_pop(queue *q);             /* waits; NULL once closed and empty */
void queue_close(queue *q);            /* wakes all who wait */

#endif
