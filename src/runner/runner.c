/* runner.c - see runner.h
 *
 * Each worker has a slot, in which it is restarted when it dies. Its Steps reach the scheduler only while it is
 * announced there: from GpuUp, which follows a reset of the worker, until it dies or the link is lost. Steps from
 * before the last reset have an older reset number and are dropped. */
#include "runner/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/identity.h"
#include "net/pack.h"
#include "runner/fetcher.h"

static const double FIRST_PAUSE = 0.1, STABLE_AFTER = 10, LOOK_EVERY = 0.5;
static const double BUSY_POLL = 200e-6;
static const double LONGEST_PAUSE = 30, /* before restarting a worker that does not become ready */
    LONGEST_READY = 2;                  /* before restarting one that was ready: requests may wait for it */

typedef struct {
    runner *r;
    int number;
    char *name;         /* used as uuid if the device has none */
    bool shares_device; /* with another worker: the uuid alone would not be unique */
    process *p;         /* NULL: waits to be restarted */
    Message *up;        /* its GpuUp; NULL: not ready yet */
    bool announced;
    double ready_at, last_heard, pause;
    bool hung, has_ended;
    bool overdue;            /* it was silent for too long when last looked at */
    uint32_t reset;          /* number of its last reset */
    uint64_t n_sent, n_seen; /* commands since then: sent to the worker, and reported as seen by it */
    uint32_t n_requests;     /* as it last reported */
    loop_timer *start;
} worker_slot;

struct runner {
    net_loop *on;       /* borrowed */
    runner_options opt; /* device and the args are owned; scheduler and link are not used again */
    net_link *link;
    fetcher *fetcher;
    bool link_up;
    worker_slot *slots; /* [opt.n_workers] */
    loop_timer *look;   /* checks that the workers are alive */
    double looked_at;
    loop_timer *poll; /* keeps the loop awake */
    double poll_until;
    bool was_ready;                  /* some worker was ready at some time */
    char last_end[sizeof(err) + 64]; /* why the last worker that ended did so */
    bool draining;
    loop_timer *drained; /* ends draining: at its time limit, or at once */
    void (*done)(void *ctx);
    void *done_ctx;
    buf out; /* scratch */
};

runner_options runner_options_default(void)
{
    return (runner_options){.link = link_options_default(), .start_seconds = 600, .drain_seconds = 60};
}

static bool is_empty(const worker_slot *w)
{
    return !w->announced || (w->n_requests == 0 && w->n_seen == w->n_sent);
}

/* Ends draining, on the next turn of the loop, if no worker has anything left. */
static void check_drained(runner *r)
{
    if (!r->draining)
        return;
    for (int i = 0; i < r->opt.n_workers; i++)
        if (!is_empty(&r->slots[i]))
            return;
    loop_timer_set(r->drained, 0);
}

static void send_down(worker_slot *w, const Message *m)
{
    buf_clear(&w->r->out);
    pack_message(&w->r->out, m);
    process_send(w->p, w->r->out.data, w->r->out.len);
}

/* Makes the worker forget everything; Steps that it sent before are stale from then on. */
static void reset(worker_slot *w)
{
    Commands c = COMMANDS__INIT;
    c.reset = ++w->reset;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &c;
    send_down(w, &m);
    w->n_sent = w->n_seen = w->n_requests = 0;
}

/* Returns the uuid by which the scheduler knows the worker's GPU; owned by the caller. */
static char *uuid_of(const worker_slot *w)
{
    const char *own = w->up->gpu_up->uuid;
    return !*own ? xstrdup(w->name) : w->shares_device ? xasprintf("%s-%d", own, w->number) : xstrdup(own);
}

/* Tells the scheduler of a worker that is ready. */
static void announce(worker_slot *w)
{
    if (!w->r->link_up || !w->up || w->r->draining)
        return;
    reset(w);
    GpuUp up = *w->up->gpu_up;
    up.gpu = (uint32_t)w->number;
    up.start = w->reset;
    up.uuid = uuid_of(w);
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_UP;
    m.gpu_up = &up;
    w->announced = true;
    link_send(w->r->link, &m);
    free(up.uuid);
}

/* Tells all workers of a fetched adapter; those that do not want it ignore this. */
static void tell_fetched(void *ctx, const Fetched *what)
{
    runner *r = ctx;
    Fetched f = *what, *all[] = {&f};
    Commands c = COMMANDS__INIT;
    c.n_fetched = 1;
    c.fetched = all;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &c;
    for (int i = 0; i < r->opt.n_workers; i++)
        if (r->slots[i].p && r->slots[i].up)
            send_down(&r->slots[i], &m);
}

static bool receive_up(worker_slot *w, const void *bytes, size_t n)
{
    Message *m = message__unpack(NULL, n, bytes);
    if (m && m->what_case == MESSAGE__WHAT_WANT && w->up) {
        fetcher_want(w->r->fetcher, m->want);
        message__free_unpacked(m, NULL);
        return true;
    }
    if (!m || m->what_case != MESSAGE__WHAT_GPU_UP || w->up) {
        message__free_unpacked(m, NULL);
        return false;
    }
    w->up = m;
    w->ready_at = loop_now(w->r->on);
    w->r->was_ready = true;
    log_info("worker %d is ready on %s", w->number, m->gpu_up->device);
    announce(w);
    return true;
}

static void receive_step(worker_slot *w, const step_numbers *s, const void *bytes, size_t n)
{
    if (!w->announced || s->reset != w->reset)
        return;
    w->n_seen = s->n_seen;
    w->n_requests = s->n_requests;
    w->r->poll_until = 0;
    link_send_packed(w->r->link, bytes, n);
    check_drained(w->r);
}

/* Keeps the loop from sleeping while a step's tokens are about to come, until they do or poll_until has passed. */
static void busy_poll(void *ctx)
{
    runner *r = ctx;
    if (loop_now(r->on) < r->poll_until)
        loop_timer_set(r->poll, 0);
}

static void receive_notice(runner *r)
{
    if (r->opt.on_notice)
        r->opt.on_notice(r->opt.notice_ctx);
    r->poll_until = loop_now(r->on) + BUSY_POLL;
    loop_timer_set(r->poll, 0);
}

static bool worker_message(void *ctx, const void *bytes, size_t n)
{
    worker_slot *w = ctx;
    step_numbers s;
    w->last_heard = loop_now(w->r->on);
    if (n == 0) {
        receive_notice(w->r);
        return true;
    }
    if (!pack_peek_step(bytes, n, &s))
        return receive_up(w, bytes, n);
    receive_step(w, &s, bytes, n);
    return true;
}

static void tell_gone(worker_slot *w, const char *why, bool from_outside)
{
    GpuGone gone = GPU_GONE__INIT;
    gone.gpu = (uint32_t)w->number;
    gone.died = true;
    gone.message = (char *)why;
    gone.from_outside = from_outside;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_GPU_GONE;
    m.gpu_gone = &gone;
    link_send(w->r->link, &m);
}

/* Restarts a worker later: soon if it had worked for a while, else with exponential backoff. */
static void start_later(worker_slot *w)
{
    bool was_stable = w->up && loop_now(w->r->on) - w->ready_at > STABLE_AFTER;
    double longest = w->up ? LONGEST_READY : LONGEST_PAUSE;
    w->pause = was_stable || w->pause == 0 ? FIRST_PAUSE : w->pause * 2 < longest ? w->pause * 2 : longest;
    loop_timer_set(w->start, w->pause);
}

static void worker_ended(void *ctx, const char *why, bool from_outside)
{
    worker_slot *w = ctx;
    char *text = w->r->last_end;
    snprintf(text, sizeof w->r->last_end, "%s%s", w->hung ? "hung; " : "", why);
    w->has_ended = true;
    process_free(w->p);
    w->p = NULL;
    if (w->announced)
        tell_gone(w, text, from_outside);
    w->announced = false;
    if (!w->r->draining)
        start_later(w);
    log_warn("worker %d on %s ended: %s%s", w->number, w->r->opt.device[w->number], text,
             w->r->draining ? "" : "; starting it again");
    message__free_unpacked(w->up, NULL);
    w->up = NULL;
    check_drained(w->r);
}

/* Makes "punica worker --device D --gpu N" and the options of all workers; free the array with free(). */
static char **worker_argv(const worker_slot *w, char number[12])
{
    const runner_options *o = &w->r->opt;
    char **argv = XNEW_ARRAY(char *, (size_t)o->n_worker_args + 7);
    int n = 0;
    snprintf(number, 12, "%d", w->number);
    const char *first[] = {"punica", "worker", "--device", o->device[w->number], "--gpu", number};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        argv[n++] = (char *)first[i];
    for (int i = 0; i < o->n_worker_args; i++)
        argv[n++] = (char *)o->worker_args[i];
    return argv;
}

static void start_worker(void *ctx)
{
    worker_slot *w = ctx;
    char number[12], **argv = worker_argv(w, number);
    process_events events = {worker_message, worker_ended, w};
    err e;
    w->hung = false;
    w->last_heard = loop_now(w->r->on);
    w->p = w->r->opt.processes.start(w->r->opt.processes.ctx, argv, &events, &e);
    free(argv);
    if (!w->p) {
        log_error("worker %d: %s", w->number, e.msg);
        start_later(w);
    }
}

static double hang_limit(const worker_slot *w)
{
    const runner_options *o = &w->r->opt;
    if (o->hang_seconds > 0)
        return o->hang_seconds;
    return strcmp(o->device[w->number], "cpu") == 0 ? HANG_SECONDS_CPU : HANG_SECONDS;
}

static void check_alive(worker_slot *w, double now)
{
    double limit = w->up ? hang_limit(w) : w->r->opt.start_seconds;
    bool was_overdue = w->overdue;
    w->overdue = w->p && !w->hung && now - w->last_heard > limit;
    if (!w->overdue || !was_overdue)
        return; /* its messages may still wait to be read; at the second look they have been */
    log_warn("worker %d (process %d) has said nothing for %.1f s; it is killed", w->number, w->p->pid,
             now - w->last_heard);
    w->hung = true;
    process_kill(w->p);
}

/* Checks the workers; but if the runner itself was stopped meanwhile, their silence means nothing, and it waits. */
static void look(void *ctx)
{
    runner *r = ctx;
    double now = loop_now(r->on);
    bool in_time = now - r->looked_at < 1.2 * LOOK_EVERY;
    for (int i = 0; in_time && i < r->opt.n_workers; i++)
        check_alive(&r->slots[i], now);
    r->looked_at = now;
    loop_timer_set(r->look, LOOK_EVERY);
}

static void link_is_up(void *ctx, net_link *l, const Hello *hello)
{
    (void)l;
    (void)hello;
    runner *r = ctx;
    r->link_up = true;
    for (int i = 0; i < r->opt.n_workers; i++)
        announce(&r->slots[i]);
}

static void link_is_down(void *ctx, net_link *l, const char *why)
{
    (void)l;
    (void)why;
    runner *r = ctx;
    r->link_up = false;
    for (int i = 0; i < r->opt.n_workers; i++) {
        worker_slot *w = &r->slots[i];
        w->announced = false;
        if (w->up)
            reset(w);
    }
    check_drained(r);
}

static void link_message(void *ctx, net_link *l, const Message *m)
{
    runner *r = ctx;
    if (m->what_case != MESSAGE__WHAT_COMMANDS || m->commands->gpu >= (uint32_t)r->opt.n_workers ||
        m->commands->reset) {
        link_drop(l, "it sent what a runner does not understand");
        return;
    }
    worker_slot *w = &r->slots[m->commands->gpu];
    if (!w->announced || m->commands->start != w->reset)
        return; /* these are for a worker that has died, which the scheduler will soon know */
    w->n_sent += m->commands->n_commands;
    send_down(w, m);
}

static const char **copy_strings(const char *const *from, int n)
{
    const char **to = XNEW_ARRAY(const char *, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        to[i] = xstrdup(from[i]);
    return to;
}

static void free_strings(const char *const *strings, int n)
{
    for (int i = 0; strings && i < n; i++)
        free((char *)strings[i]);
    free((void *)strings);
}

static void init_slot(runner *r, int i, uint64_t instance)
{
    worker_slot *w = &r->slots[i];
    char *host = identity_host();
    *w = (worker_slot){.r = r, .number = i, .start = loop_timer_new(r->on, start_worker, w)};
    w->name = xasprintf("%s-%s-%d-%08x", host, r->opt.device[i], i, (unsigned)instance);
    free(host);
    for (int k = 0; k < r->opt.n_workers; k++)
        w->shares_device |= k != i && strcmp(r->opt.device[k], r->opt.device[i]) == 0;
    loop_timer_set(w->start, 0);
}

static void drain_is_over(void *ctx)
{
    runner *r = ctx;
    if (r->done)
        r->done(r->done_ctx);
}

static net_link *connect_link(runner *r, const char *scheduler, uint64_t instance, err *e)
{
    link_options o = r->opt.link;
    o.role = HELLO__ROLE__RUNNER;
    o.instance = instance;
    link_events events = {link_is_up, link_message, link_is_down, r};
    return link_connect(r->on, scheduler, &o, &events, e);
}

runner *runner_new(net_loop *on, const runner_options *o, err *e)
{
    runner *r = XNEW(runner);
    *r = (runner){.on = on, .opt = *o, .looked_at = loop_now(on)};
    uint64_t instance = loop_random_id(on);
    r->link = connect_link(r, o->scheduler, instance, e);
    if (!r->link) {
        free(r);
        return NULL;
    }
    r->opt.device = copy_strings(o->device, o->n_workers);
    r->opt.worker_args = copy_strings(o->worker_args, o->n_worker_args);
    r->opt.fetcher_args = copy_strings(o->fetcher_args, o->n_fetcher_args);
    r->fetcher = fetcher_new(&(fetcher_options){.processes = o->processes,
                                                .args = r->opt.fetcher_args,
                                                .n_args = o->n_fetcher_args,
                                                .done = tell_fetched,
                                                .ctx = r});
    r->look = loop_timer_new(on, look, r);
    r->poll = loop_timer_new(on, busy_poll, r);
    r->drained = loop_timer_new(on, drain_is_over, r);
    loop_timer_set(r->look, LOOK_EVERY);
    r->slots = XNEW_ARRAY(worker_slot, (size_t)o->n_workers);
    for (int i = 0; i < o->n_workers; i++)
        init_slot(r, i, instance);
    return r;
}

void runner_free(runner *r)
{
    if (!r)
        return;
    link_free(r->link); /* first: so the scheduler need not wait until the workers have ended */
    for (int i = 0; i < r->opt.n_workers; i++) {
        worker_slot *w = &r->slots[i];
        process_free(w->p);
        message__free_unpacked(w->up, NULL);
        loop_timer_free(w->start);
        free(w->name);
    }
    loop_timer_free(r->look);
    loop_timer_free(r->poll);
    loop_timer_free(r->drained);
    free_strings(r->opt.device, r->opt.n_workers);
    free_strings(r->opt.worker_args, r->opt.n_worker_args);
    fetcher_free(r->fetcher);
    free_strings(r->opt.fetcher_args, r->opt.n_fetcher_args);
    free(r->slots);
    buf_free(&r->out);
    free(r);
}

void runner_drain(runner *r, void (*done)(void *ctx), void *ctx)
{
    r->draining = true;
    r->done = done;
    r->done_ctx = ctx;
    Drain drain = DRAIN__INIT;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_DRAIN;
    m.drain = &drain;
    link_send(r->link, &m);
    loop_timer_set(r->drained, r->opt.drain_seconds);
    check_drained(r);
}

int runner_n_ready(const runner *r)
{
    int n = 0;
    for (int i = 0; i < r->opt.n_workers; i++)
        n += r->slots[i].up != NULL;
    return n;
}

const char *runner_failure(const runner *r)
{
    for (int i = 0; i < r->opt.n_workers; i++)
        if (!r->slots[i].has_ended)
            return NULL;
    return r->was_ready ? NULL : r->last_end;
}
