/* queue.c - see queue.h: a mutex, a condition variable and a linked list. There are a few hand-overs per
 * step at most, so nothing cleverer is needed. */
#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

typedef struct node {
    struct node *next;
    void *item;
} node;

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    node *head, *tail;
    bool closed;
};

queue *queue_new(void)
{
    queue *q = XNEW(queue);
    CHECK(pthread_mutex_init(&q->lock, NULL) == 0);
    CHECK(pthread_cond_init(&q->changed, NULL) == 0);
    return q;
}

void queue_free(queue *q)
{
    if (!q)
        return;
    while (queue_try_pop(q))
        ;
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void queue_push(queue *q, void *item)
{
    node *n = XNEW(node);
    n->item = item;
    pthread_mutex_lock(&q->lock);
    if (q->tail)
        q->tail->next = n;
    else
        q->head = n;
    q->tail = n;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* With the lock held. */
static void *take_head(queue *q)
{
    node *n = q->head;
    if (!n)
        return NULL;
    q->head = n->next;
    if (!q->head)
        q->tail = NULL;
    void *item = n->item;
    free(n);
    return item;
}

void *queue_try_pop(queue *q)
{
    pthread_mutex_lock(&q->lock);
    void *item = take_head(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void *queue_pop(queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (!q->head && !q->closed)
        pthread_cond_wait(&q->changed, &q->lock);
    void *item = take_head(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void queue_close(queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}
