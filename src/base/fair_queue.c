/* fair_queue.c - see fair_queue.h: two heaps ordered by turn, for short and for long jobs, behind one lock */
#include "base/fair_queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

#define NOWHERE SIZE_MAX /* `at` of an item that is in no heap */

typedef struct {
    fair_item **item;
    size_t n, cap;
} heap;

struct fair_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    heap jobs[2];   /* [0]: short ones */
    uint64_t begun; /* virtual time: total size of all items popped */
    uint64_t n_pushed;
    bool closed;
};

static bool is_before(const fair_item *a, const fair_item *b)
{
    return a->turn != b->turn ? a->turn < b->turn : a->number < b->number;
}

static void put(heap *h, size_t at, fair_item *i)
{
    h->item[at] = i;
    i->at = at;
}

/* Puts i in its place, sifting up and then down from `at`. */
static void sift(heap *h, size_t at, fair_item *i)
{
    for (; at > 0 && is_before(i, h->item[(at - 1) / 2]); at = (at - 1) / 2)
        put(h, at, h->item[(at - 1) / 2]);
    for (size_t child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && is_before(h->item[child + 1], h->item[child]))
            child++;
        if (!is_before(h->item[child], i))
            break;
        put(h, at, h->item[child]);
    }
    put(h, at, i);
}

static void take_out(heap *h, fair_item *i)
{
    fair_item *last = h->item[--h->n];
    if (last != i)
        sift(h, i->at, last);
    i->at = NOWHERE;
}

fair_queue *fair_queue_new(void)
{
    fair_queue *q = XNEW(fair_queue);
    CHECK(pthread_mutex_init(&q->lock, NULL) == 0);
    CHECK(pthread_cond_init(&q->changed, NULL) == 0);
    return q;
}

void fair_queue_free(fair_queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q->jobs[0].item);
    free(q->jobs[1].item);
    free(q);
}

void fair_queue_push(fair_queue *q, fair_item *i)
{
    heap *h = &q->jobs[i->size > FAIR_SHORT];
    pthread_mutex_lock(&q->lock);
    i->turn = q->begun + i->size;
    i->number = q->n_pushed++;
    h->item = xgrow(h->item, &h->cap, h->n + 1, sizeof *h->item);
    sift(h, h->n++, i);
    pthread_cond_broadcast(&q->changed); /* a signal might wake only a thread that wants short ones */
    pthread_mutex_unlock(&q->lock);
}

/* With the lock held. */
static fair_item *take_next(fair_queue *q, bool only_short)
{
    heap *s = &q->jobs[0], *l = &q->jobs[1], *h = s;
    if (!only_short && l->n && (!s->n || is_before(l->item[0], s->item[0])))
        h = l;
    if (!h->n)
        return NULL;
    fair_item *next = h->item[0];
    q->begun += next->size;
    take_out(h, next);
    return next;
}

fair_item *fair_queue_pop(fair_queue *q, bool only_short)
{
    pthread_mutex_lock(&q->lock);
    fair_item *i;
    while (!(i = take_next(q, only_short)) && !q->closed)
        pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return i;
}

fair_item *fair_queue_try_pop(fair_queue *q)
{
    pthread_mutex_lock(&q->lock);
    fair_item *i = take_next(q, false);
    pthread_mutex_unlock(&q->lock);
    return i;
}

bool fair_queue_remove(fair_queue *q, fair_item *i)
{
    pthread_mutex_lock(&q->lock);
    bool is_here = i->at != NOWHERE;
    if (is_here)
        take_out(&q->jobs[i->size > FAIR_SHORT], i);
    pthread_mutex_unlock(&q->lock);
    return is_here;
}

void fair_queue_close(fair_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}
