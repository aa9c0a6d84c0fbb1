/* wait_queue.c - see wait_queue.h */
#include "scheduler/wait_queue.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

static bool before(const wait_slot *a, const wait_slot *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival < b->arrival || (a->arrival == b->arrival && a->id < b->id);
}

static void set(wait_queue *q, size_t at, wait_slot s)
{
    q->slot[at] = s;
    s.item->at = at;
}

/* Puts s at `at` or further up, moving later ones down. */
static void sift_up(wait_queue *q, size_t at, wait_slot s)
{
    for (; at > 0 && before(&s, &q->slot[(at - 1) / 2]); at = (at - 1) / 2)
        set(q, at, q->slot[(at - 1) / 2]);
    set(q, at, s);
}

/* Puts s at `at` or further down, moving earlier ones up. */
static void sift_down(wait_queue *q, size_t at, wait_slot s)
{
    for (size_t child; (child = 2 * at + 1) < q->n; at = child) {
        if (child + 1 < q->n && before(&q->slot[child + 1], &q->slot[child]))
            child++;
        if (!before(&q->slot[child], &s))
            break;
        set(q, at, q->slot[child]);
    }
    set(q, at, s);
}

void wait_queue_deinit(wait_queue *q)
{
    free(q->slot);
    *q = (wait_queue){0};
}

void wait_queue_put(wait_queue *q, wait_item *i)
{
    q->slot = xgrow(q->slot, &q->cap, q->n + 1, sizeof *q->slot);
    sift_up(q, q->n++, (wait_slot){i->arrival, i->id, i->priority, i});
}

void wait_queue_remove(wait_queue *q, wait_item *i)
{
    CHECK(wait_queue_has(q, i));
    size_t at = i->at;
    wait_slot last = q->slot[--q->n];
    if (last.item == i)
        return;
    if (at > 0 && before(&last, &q->slot[(at - 1) / 2]))
        sift_up(q, at, last);
    else
        sift_down(q, at, last);
}

wait_item *wait_queue_first(const wait_queue *q)
{
    return q->n ? q->slot[0].item : NULL;
}

bool wait_queue_has(const wait_queue *q, const wait_item *i)
{
    return i->at < q->n && q->slot[i->at].item == i;
}

void wait_queue_check(const wait_queue *q)
{
    for (size_t i = 0; i < q->n; i++) {
        CHECK(q->slot[i].item->at == i && q->slot[i].item->id == q->slot[i].id &&
              q->slot[i].item->arrival == q->slot[i].arrival && q->slot[i].item->priority == q->slot[i].priority);
        CHECK(i == 0 || !before(&q->slot[i], &q->slot[(i - 1) / 2]));
    }
}
