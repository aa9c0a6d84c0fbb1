/* event_loop.c - see event_loop.h */
#include "net/event_loop.h"

#include <openssl/rand.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/timer.h"

typedef struct {
    loop_timer base; /* first */
    void (*fire)(void *ctx);
    void *ctx;
    struct event *event;
} event_timer;

static double now(net_loop *l)
{
    (void)l;
    return clock_now();
}

static double wall(net_loop *l)
{
    (void)l;
    return clock_wall();
}

static void get_random(net_loop *l, void *to, size_t n)
{
    (void)l;
    CHECK(RAND_bytes(to, (int)n) == 1);
}

static void on_timeout(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    event_timer *t = ctx;
    t->fire(t->ctx);
}

static loop_timer *timer_new(net_loop *l, void (*fire)(void *ctx), void *ctx)
{
    event_timer *t = XNEW(event_timer);
    *t = (event_timer){.base.on = l, .fire = fire, .ctx = ctx};
    t->event = evtimer_new(((event_loop *)l)->events, on_timeout, t);
    CHECK(t->event);
    return &t->base;
}

static void set_timer(loop_timer *t, double seconds)
{
    timer_set(((event_timer *)t)->event, seconds);
}

static void stop_timer(loop_timer *t)
{
    event_del(((event_timer *)t)->event);
}

static void free_timer(loop_timer *t)
{
    event_free(((event_timer *)t)->event);
    free(t);
}

static dialer *dialer_new(net_loop *l, const char *address, const credentials *own, err *e)
{
    return strcmp(address, LOOP_SELF) == 0 ? inner_dialer_new((event_loop *)l) : socket_dialer_new(l, address, own, e);
}

static acceptor *acceptor_new(net_loop *l, const char *address, const credentials *own, const acceptor_events *events,
                              err *e)
{
    return strcmp(address, LOOP_SELF) == 0 ? inner_acceptor_new((event_loop *)l, events)
                                           : socket_acceptor_new(l, address, own, events, e);
}

/* libevent runs events that callbacks make active before it polls or checks timers: one connection that always has
 * something to do would starve all others. So it is made to poll again after 5 ms. */
static struct event_base *new_events(void)
{
    static const struct timeval AT_ONCE = {.tv_usec = 5000};
    struct event_config *c = event_config_new();
    CHECK(c && event_config_set_max_dispatch_interval(c, &AT_ONCE, -1, 0) == 0);
    struct event_base *events = event_base_new_with_config(c);
    event_config_free(c);
    return events;
}

event_loop *event_loop_new(void)
{
    static const loop_ops ops = {.now = now,
                                 .wall = wall,
                                 .random = get_random,
                                 .timer_new = timer_new,
                                 .timer_set = set_timer,
                                 .timer_stop = stop_timer,
                                 .timer_free = free_timer,
                                 .dialer_new = dialer_new,
                                 .acceptor_new = acceptor_new};
    signal(SIGPIPE, SIG_IGN); /* writing to a lost peer must fail, not kill the process */
    signal(SIGXFSZ, SIG_IGN); /* likewise growing a file beyond its limit */
    event_loop *l = XNEW(event_loop);
    *l = (event_loop){.base.ops = &ops, .events = new_events()};
    CHECK(l->events);
    return l;
}

void event_loop_free(event_loop *l)
{
    if (!l)
        return;
    event_base_free(l->events);
    free(l);
}
