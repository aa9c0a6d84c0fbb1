/* loop.h - what a role runs on: an event loop with its clock, timers, randomness and connections
 *
 * Roles (frontend's dispatch, scheduler's server, runner) and links reach the outside world only through this, so that
 * the same code runs in production and in virtual time. Two implementations: event_loop.h, on libevent and sockets, and
 * sim/, where time, network and chance are simulated. The program's main part chooses. One thread. */
#ifndef PUNICA_NET_LOOP_H
#define PUNICA_NET_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include "net/credentials.h"
#include "net/stream.h"

typedef struct net_loop net_loop;
typedef struct loop_timer { net_loop *on; } loop_timer; /* first member of an implementation's timer */

typedef struct {
    double (*now)(net_loop *); /* see the functions below */
    double (*wall)(net_loop *);
    void (*random)(net_loop *, void *to, size_t n);
    loop_timer *(*timer_new)(net_loop *, void (*fire)(void *ctx), void *ctx);
    void (*timer_set)(loop_timer *, double seconds);
    void (*timer_stop)(loop_timer *);
    void (*timer_free)(loop_timer *);
    dialer *(*dialer_new)(net_loop *, const char *address, const credentials *, err *); /* borrow the credentials */
    acceptor *(*acceptor_new)(net_loop *, const char *address, const credentials *, const acceptor_events *, err *);
} loop_ops;

struct net_loop { const loop_ops *ops; };

/* Returns seconds of a monotonic clock, with an arbitrary zero. */
static inline double loop_now(net_loop *l)
{
    return l->ops->now(l);
}

/* Returns seconds since the epoch by this host's clock, which may be wrong and may jump. */
static inline double loop_wall(net_loop *l)
{
    return l->ops->wall(l);
}

/* Fills n bytes with random numbers that nobody can guess. */
static inline void loop_random(net_loop *l, void *to, size_t n)
{
    l->ops->random(l, to, n);
}

/* Returns 64 random bits that nobody can guess, never 0. */
static inline uint64_t loop_random_id(net_loop *l)
{
    uint64_t x = 0;
    while (x == 0)
        loop_random(l, &x, sizeof x);
    return x;
}

/* Makes a timer, not set yet. fire is called from the loop, never from within loop_timer_set(). */
static inline loop_timer *loop_timer_new(net_loop *l, void (*fire)(void *ctx), void *ctx)
{
    return l->ops->timer_new(l, fire, ctx);
}

/* Makes the timer fire once, so many seconds from now, in place of any earlier setting. */
static inline void loop_timer_set(loop_timer *t, double seconds)
{
    t->on->ops->timer_set(t, seconds);
}

static inline void loop_timer_stop(loop_timer *t)
{
    t->on->ops->timer_stop(t);
}

static inline void loop_timer_free(loop_timer *t)
{
    if (t)
        t->on->ops->timer_free(t);
}

#endif
