/* wait_queue.h - requests in order of priority, then arrival, then id
 *
 * A binary heap of items embedded in what waits: adding one and removing one from anywhere take O(log n), looking at
 * the first O(1). Items are borrowed while they are in the queue. */
#ifndef PUNICA_SCHEDULER_WAIT_QUEUE_H
#define PUNICA_SCHEDULER_WAIT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    double arrival;
    uint64_t id;
    size_t at;    /* its place in the heap, while it is there */
    int priority; /* lower is earlier */
} wait_item;

/* An item beside a copy of its keys, so that comparing does not touch what waits. */
typedef struct {
    double arrival;
    uint64_t id;
    int priority;
    wait_item *item;
} wait_slot;

typedef struct {
    wait_slot *slot;
    size_t n, cap;
} wait_queue; /* zero-initialise */

/* Returns whether a came before b, whatever their priorities. */
static inline bool wait_earlier(const wait_item *a, const wait_item *b)
{
    return a->arrival < b->arrival || (a->arrival == b->arrival && a->id < b->id);
}

/* Returns whether a stands before b: the order of a queue. */
static inline bool wait_before(const wait_item *a, const wait_item *b)
{
    return a->priority != b->priority ? a->priority < b->priority : wait_earlier(a, b);
}

void wait_queue_deinit(wait_queue *q);
void wait_queue_put(wait_queue *q, wait_item *i);
void wait_queue_remove(wait_queue *q, wait_item *i); /* must be there */
wait_item *wait_queue_first(const wait_queue *q);    /* NULL: empty */
bool wait_queue_has(const wait_queue *q, const wait_item *i);
void wait_queue_check(const wait_queue *q); /* abort unless it is a heap */

#endif
