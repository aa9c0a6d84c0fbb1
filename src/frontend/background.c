/* background.c - see background.h */
#include "frontend/background.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/queue.h"

typedef struct {
    background *of;
    bool only_short;
    pthread_t thread;
} helper;

struct background {
    fair_queue *todo;
    queue *ready;
    int wake; /* eventfd: something is ready */
    struct event *awake;
    helper *helpers; /* [n_helpers] */
    int n_helpers;
};

static void *work(void *ctx)
{
    const helper *h = ctx;
    background *b = h->of;
    for (task *t; (t = (task *)fair_queue_pop(b->todo, h->only_short));) {
        t->run(t);
        queue_push(b->ready, t);
        CHECK(eventfd_write(b->wake, 1) == 0);
    }
    return NULL;
}

static void on_ready(evutil_socket_t fd, short what, void *ctx)
{
    (void)what;
    background *b = ctx;
    eventfd_t n;
    eventfd_read(fd, &n);
    for (task *t; (t = queue_try_pop(b->ready));) {
        if (t->abandoned)
            t->drop(t);
        else
            t->done(t);
    }
}

background *background_new(struct event_base *loop, int n_threads)
{
    background *b = XNEW(background);
    *b = (background){.todo = fair_queue_new(),
                      .ready = queue_new(),
                      .wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
                      .n_helpers = n_threads < 2 ? 2 : n_threads};
    CHECK(b->wake >= 0);
    b->awake = event_new(loop, b->wake, EV_READ | EV_PERSIST, on_ready, b);
    event_add(b->awake, NULL);
    b->helpers = XNEW_ARRAY(helper, (size_t)b->n_helpers);
    for (int i = 0; i < b->n_helpers; i++) {
        b->helpers[i] = (helper){.of = b, .only_short = i == 0};
        CHECK(pthread_create(&b->helpers[i].thread, NULL, work, &b->helpers[i]) == 0);
    }
    return b;
}

void background_free(background *b)
{
    if (!b)
        return;
    for (task *t; (t = (task *)fair_queue_try_pop(b->todo));)
        t->drop(t);
    fair_queue_close(b->todo);
    for (int i = 0; i < b->n_helpers; i++)
        pthread_join(b->helpers[i].thread, NULL);
    for (task *t; (t = queue_try_pop(b->ready));)
        t->drop(t);
    event_free(b->awake);
    close(b->wake);
    fair_queue_free(b->todo);
    queue_free(b->ready);
    free(b->helpers);
    free(b);
}

void background_start(background *b, task *t)
{
    atomic_init(&t->abandoned, false);
    fair_queue_push(b->todo, &t->turn);
}

void background_abandon(background *b, task *t)
{
    if (fair_queue_remove(b->todo, &t->turn))
        t->drop(t);
    else
        t->abandoned = true;
}
