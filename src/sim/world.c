/* world.c - see world.h */
#include "sim/world.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sim/network.h"

static const double BEGIN = 1000, EPOCH = 1.7e9; /* seconds that the clocks show at the start */

typedef struct {
    loop_timer base; /* first */
    sim_task task;
    void (*fire)(void *ctx);
    void *ctx;
} sim_timer;

void world_init(world *w, uint64_t seed, bool trace)
{
    *w = (world){.seed = seed, .now = BEGIN, .trace = trace};
    w->net = sim_network_new(w);
}

void world_deinit(world *w)
{
    sim_network_free(w->net);
    CHECK(w->due.n == 0);
    wait_queue_deinit(&w->due);
    buf_free(&w->violation);
}

static uint64_t draw(world *w, rng_stream c)
{
    return rng_u64(rng_mix(w->seed) + (uint64_t)c, w->drawn[c]++);
}

uint64_t world_draw(world *w, rng_stream c, uint64_t below)
{
    return draw(w, c) % below;
}

double world_uniform(world *w, rng_stream c, double low, double high)
{
    return low + (high - low) * (double)(draw(w, c) >> 11) * 0x1p-53;
}

bool world_chance(world *w, rng_stream c, double share)
{
    return world_uniform(w, c, 0, 1) < share;
}

void world_plan(world *w, sim_task *t, double after)
{
    world_cancel(w, t);
    t->order = (wait_item){w->now + (after > 0 ? after : 0), w->n_planned++, 0};
    t->planned = true;
    wait_queue_put(&w->due, &t->order);
}

void world_cancel(world *w, sim_task *t)
{
    if (t->planned)
        wait_queue_remove(&w->due, &t->order);
    t->planned = false;
}

static void run_task(world *w, sim_task *t)
{
    sim_process *of = t->of; /* the task may be gone when it has run */
    w->n_run++;
    w->speaker = of ? of->name : NULL;
    t->run(t->ctx);
    w->speaker = NULL;
    if (of)
        sim_process_acted(of);
}

bool world_run_next(world *w)
{
    sim_task *t = (sim_task *)wait_queue_first(&w->due);
    if (!t)
        return false;
    wait_queue_remove(&w->due, &t->order);
    t->planned = false;
    w->now = t->order.arrival;
    if (t->of && t->of->dead)
        return true;
    if (t->of && t->of->stopped_until > w->now) {
        t->order.arrival = t->of->stopped_until; /* in the order in which they were due */
        t->planned = true;
        wait_queue_put(&w->due, &t->order);
        return true;
    }
    run_task(w, t);
    return true;
}

void world_say(world *w, const char *fmt, ...)
{
    if (!w->trace)
        return;
    va_list args;
    va_start(args, fmt);
    printf("%9.4f  %-14s ", w->now - BEGIN, w->speaker ? w->speaker : "");
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
}

void world_violate(world *w, const char *fmt, ...)
{
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!w->violation.len)
        buf_printf(&w->violation, "at %.4f s: %s", w->now - BEGIN, what);
    world_say(w, "VIOLATED: %s", what);
}

static world *world_of(net_loop *l)
{
    return ((sim_process *)l)->in;
}

static double now(net_loop *l)
{
    return world_of(l)->now;
}

static double wall(net_loop *l)
{
    return EPOCH + world_of(l)->now + ((sim_process *)l)->skew;
}

static void get_random(net_loop *l, void *to, size_t n)
{
    for (size_t done = 0; done < n; done += 8) {
        uint64_t x = draw(world_of(l), RNG_SECRETS);
        memcpy((char *)to + done, &x, n - done < 8 ? n - done : 8);
    }
}

static void fire(void *ctx)
{
    sim_timer *t = ctx;
    t->fire(t->ctx);
}

static loop_timer *timer_new(net_loop *l, void (*callback)(void *ctx), void *ctx)
{
    sim_timer *t = XNEW(sim_timer);
    *t = (sim_timer){
        .base.on = l, .task = {.of = (sim_process *)l, .run = fire, .ctx = t}, .fire = callback, .ctx = ctx};
    return &t->base;
}

static void timer_set(loop_timer *t, double seconds)
{
    world_plan(world_of(t->on), &((sim_timer *)t)->task, seconds);
}

static void timer_stop(loop_timer *t)
{
    world_cancel(world_of(t->on), &((sim_timer *)t)->task);
}

static void timer_free(loop_timer *t)
{
    timer_stop(t);
    free(t);
}

void sim_process_init(sim_process *p, world *w, const char *name, double skew)
{
    static const loop_ops ops = {.now = now,
                                 .wall = wall,
                                 .random = get_random,
                                 .timer_new = timer_new,
                                 .timer_set = timer_set,
                                 .timer_stop = timer_stop,
                                 .timer_free = timer_free,
                                 .dialer_new = sim_network_dialer_new,
                                 .acceptor_new = sim_network_acceptor_new};
    *p = (sim_process){.base.ops = &ops, .in = w, .skew = skew};
    snprintf(p->name, sizeof p->name, "%s", name);
}

void sim_process_acted(sim_process *p)
{
    if (p->n_acts_left > 0 && --p->n_acts_left == 0)
        p->in->crash_due = p;
}

void sim_process_stop(sim_process *p, double seconds)
{
    p->stopped_until = fmax(p->stopped_until, p->in->now + seconds);
    world_say(p->in, "%s is stopped for %.4f s", p->name, p->stopped_until - p->in->now);
}
