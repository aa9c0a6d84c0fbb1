/* fault_sim.c - see fault_sim.h */
#include "bench/fault_sim.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "bench/fault_cluster.h"

static const char *const fault_names[N_FAULTS] = {"link breaks", "link is dropped", "worker crashes", "worker hangs", "worker is slow",
                                                  "runner crashes", "scheduler crashes", "frontend crashes", "runner drains", "client cancels"};

static const char *const state_names[] = {"to come", "live", "ended", "cancelled", "lost with its frontend"};

void sim_say(const sim *s, const char *fmt, ...)
{
    if (!s->trace)
        return;
    va_list args;
    va_start(args, fmt);
    printf("%10.4f  ", s->net.now - 1000);
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
}

void sim_violate(sim *s, const char *fmt, ...)
{
    char what[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!s->violation->len)
        buf_printf(s->violation, "at %.4f s: %s", s->net.now - 1000, what);
    sim_say(s, "VIOLATED: %s", what);
}

bool sim_is_runner(const sim *s, int p)
{
    return p >= s->n_frontends;
}

const char *sim_peer_name(const sim *s, int p)
{
    static const char *const names[2][MOST_PEERS] = {{"frontend 0", "frontend 1", "frontend 2"}, {"runner 0", "runner 1", "runner 2"}};
    return names[sim_is_runner(s, p)][sim_is_runner(s, p) ? p - s->n_frontends : p];
}

fault_worker_setup sim_worker_setup(const sim *s, int p)
{
    fault_worker_setup setup = s->worker_setup;
    setup.n_pages += s->more_pages[p];
    return setup;
}

int sim_capacity(const sim *s)
{
    int most = 0;
    for (int p = s->n_frontends; p < s->n_frontends + s->n_runners; p++)
        most = s->more_pages[p] > most ? s->more_pages[p] : most;
    return (s->worker_setup.n_pages + most) * s->worker_setup.page_len;
}

static int random_frontend(sim *s)
{
    return (int)sim_draw(&s->net, (uint64_t)s->n_frontends);
}

static int random_runner(sim *s)
{
    return s->n_frontends + (int)sim_draw(&s->net, (uint64_t)s->n_runners);
}

static void fault_in_worker(sim *s, fault_kind kind, int p)
{
    int k = (int)sim_draw(&s->net, (uint64_t)s->n_workers);
    worker_place *w = &s->peer[p].worker[k];
    if (!w->w)
        return;
    if (kind == FAULT_WORKER) {
        worker_kill(s, p, k);
    } else if (kind == FAULT_HANG) {
        w->hung = true;
        sim_plan(&s->net, 3, EVENT_HEARTBEAT, p, k, w->epoch, NULL);
    } else {
        w->slow = sim_uniform(&s->net, 3, 30);
        sim_plan(&s->net, sim_uniform(&s->net, 1, 5), EVENT_SPEED, p, k, w->epoch, NULL);
    }
}

static void fault_in_link(sim *s, fault_kind kind)
{
    int p = (int)sim_draw(&s->net, (uint64_t)(s->n_frontends + s->n_runners));
    if (s->peer[p].conn < 0)
        return;
    sim_say(s, "the link of %s", sim_peer_name(s, p));
    if (kind == FAULT_LINK) {
        double soon = sim_uniform(&s->net, 0, 0.1), late = sim_uniform(&s->net, 0, 4);
        bool peer_first = sim_chance(&s->net, 0.5);
        sim_break(&s->net, s->peer[p].conn, peer_first ? soon : late, peer_first ? late : soon);
    } else {
        sim_close(&s->net, s->peer[p].conn, SIDE_PEER);
        peer_lose(s, p);
    }
}

static void inject(sim *s, fault_kind kind)
{
    sim_say(s, "FAULT: %s", fault_names[kind]);
    s->stats->faults++;
    switch (kind) {
    case FAULT_LINK:
    case FAULT_DROP:
        fault_in_link(s, kind);
        break;
    case FAULT_WORKER:
    case FAULT_HANG:
    case FAULT_SLOW:
        fault_in_worker(s, kind, random_runner(s));
        break;
    case FAULT_RUNNER:
        peer_crash(s, random_runner(s));
        break;
    case FAULT_FRONTEND:
        peer_crash(s, random_frontend(s));
        break;
    case FAULT_SCHEDULER:
        if (s->s)
            sched_process_crash(s);
        break;
    case FAULT_DRAIN:
        peer_drain(s, random_runner(s));
        break;
    default:
        client_cancel(s, 1 + (int)sim_draw(&s->net, (uint64_t)s->n_requests));
    }
}

static void fault(sim *s)
{
    if (s->net.now >= s->quiet_at)
        return;
    fault_kind kind = (fault_kind)sim_draw(&s->net, N_FAULTS);
    if (s->enabled[kind])
        inject(s, kind);
    sim_plan(&s->net, sim_uniform(&s->net, 0, 2 * s->fault_every), EVENT_FAULT, 0, 0, 0, NULL);
}

static void net_event(sim *s, sim_event *e)
{
    int p = s->net.conn[e->a].peer;
    if (e->kind == EVENT_NOTICE) {
        if (e->b == SIDE_SCHEDULER)
            sched_process_lose(s, e->a);
        else if (s->peer[p].conn == e->a)
            peer_lose(s, p);
        return;
    }
    if (!sim_is_heard(&s->net, e->a, (side)e->b))
        return;
    if (e->b == SIDE_SCHEDULER) {
        sched_process_hear(s, e->a, e->m);
    } else {
        message *m = e->m;
        e->m = NULL;
        peer_hear(s, p, e->a, m);
    }
}

static void worker_event(sim *s, const sim_event *e)
{
    worker_place *w = &s->peer[e->a].worker[e->b];
    if (e->kind == EVENT_STEP) {
        if (w->w && w->step == e->epoch)
            worker_step(s, e->a, e->b);
        return;
    }
    if (w->epoch != e->epoch)
        return;
    if (e->kind == EVENT_DEATH)
        worker_learn_death(s, e->a, e->b);
    else if (e->kind == EVENT_WORKER_UP)
        worker_start(s, e->a, e->b);
    else if (e->kind == EVENT_HEARTBEAT)
        worker_kill(s, e->a, e->b);
    else
        w->slow = 1;
}

static void handle(sim *s, sim_event *e)
{
    switch (e->kind) {
    case EVENT_DELIVER:
    case EVENT_NOTICE:
        net_event(s, e);
        break;
    case EVENT_CONNECT:
        if (s->peer[e->a].epoch == e->epoch)
            peer_connect(s, e->a);
        break;
    case EVENT_ARRIVE:
        client_arrive(s, e->a);
        break;
    case EVENT_CANCEL:
        client_cancel(s, e->a);
        break;
    case EVENT_TICK:
        if (s->s && s->scheduler_epoch == e->epoch)
            sched_process_tick(s);
        break;
    case EVENT_RESTART:
        if (e->a < 0)
            sched_process_start(s);
        else
            peer_start(s, e->a);
        break;
    case EVENT_FAULT:
        fault(s);
        break;
    default:
        worker_event(s, e);
    }
}

static void make_requests(sim *s, double seconds)
{
    sim_net *n = &s->net;
    bool killers = sim_chance(n, 0.5), failures = sim_chance(n, 0.3), large = sim_chance(n, 0.3), long_prompts = sim_chance(n, 0.5);
    s->request = XNEW_ARRAY(client_request, (size_t)s->n_requests + 1);
    s->truth = XNEW_ARRAY(fault_truth, (size_t)s->n_requests + 1);
    for (int i = 1; i <= s->n_requests; i++) {
        fault_truth *t = &s->truth[i];
        int most = sim_capacity(s) + (large && sim_chance(n, 0.1) ? 4 : 0);
        t->n_prompt = 1 + (int)sim_draw(n, (uint64_t)(long_prompts && sim_chance(n, 0.3) ? most - 1 : most / 2));
        t->n_output = 1 + (int)sim_draw(n, (uint64_t)(most - t->n_prompt < 24 ? most - t->n_prompt : 24));
        t->max_tokens = t->n_output + (sim_chance(n, 0.5) ? 0 : 1 + (int)sim_draw(n, 10));
        t->kills_at = killers && sim_chance(n, 0.06) ? (int)sim_draw(n, (uint64_t)t->n_output) : -1;
        t->fails = failures && sim_chance(n, 0.1);
        s->request[i].frontend = random_frontend(s);
        double at = sim_uniform(n, 0, seconds);
        sim_plan(n, at, EVENT_ARRIVE, i, 0, 0, NULL);
        if (sim_chance(n, 0.1))
            sim_plan(n, at + sim_uniform(n, 0, 3), EVENT_CANCEL, i, 0, 0, NULL);
    }
}

static void make_cluster(sim *s)
{
    sim_net *n = &s->net;
    s->n_frontends = 1 + (int)sim_draw(n, MOST_FRONTENDS);
    s->n_runners = 1 + (int)sim_draw(n, MOST_RUNNERS);
    s->n_workers = 1 + (int)sim_draw(n, MOST_WORKERS);
    n->delay = sim_chance(n, 0.5) ? 0.001 : 0.02;
    n->spikes = sim_chance(n, 0.5) ? 0.01 : 0;
    s->step_time = sim_uniform(n, 0.01, 0.1);
    s->opt = scheduler_options_default();
    s->opt.max_queue = sim_chance(n, 0.3) ? 3 + (int)sim_draw(n, 5) : 1000;
    s->opt.max_wait = sim_chance(n, 0.2) ? sim_uniform(n, 0.5, 4) : 0;
    s->opt.consolidate_every = sim_chance(n, 0.7) ? 0.3 : 0;
    s->opt.move_again_after = sim_chance(n, 0.5) ? 1 : 0;
    s->opt.light_share = sim_uniform(n, 0.2, 1);
    s->opt.prefill_rate = 10000;
    s->opt.step_time = s->step_time;
    int page_len = 1 + (int)sim_draw(n, 4);
    int n_pages = 8 + (int)sim_draw(n, sim_chance(n, 0.5) ? 10 : 60);
    s->worker_setup = (fault_worker_setup){.max_batch = 1 + (int)sim_draw(n, 6), .n_pages = n_pages, .page_len = page_len,
                                           .late_ends = sim_chance(n, 0.3)};
    bool alike = sim_chance(n, 0.5);
    for (int p = 0; p < MOST_PEERS; p++)
        s->more_pages[p] = alike ? 0 : (int)sim_draw(n, 20);
    s->n_requests = 10 + (int)sim_draw(n, 50);
}

static void make_story(sim *s)
{
    sim_net *n = &s->net;
    double seconds = sim_uniform(n, 3, 12);
    make_requests(s, seconds);
    s->worker_setup.truth = s->truth;
    s->quiet_at = n->now + seconds + sim_uniform(n, 0, 5);
    s->fault_every = sim_uniform(n, 0.03, 0.5);
    for (int i = 0; i < N_FAULTS; i++)
        s->enabled[i] = sim_chance(n, 0.5);
    sched_process_start(s);
    for (int p = 0; p < s->n_frontends + s->n_runners; p++)
        peer_start(s, p);
    sim_plan(n, 0, EVENT_FAULT, 0, 0, 0, NULL);
}

/* A request whose client waits, or that is to come; 0: none. */
static int first_unended(const sim *s)
{
    for (int i = 1; i <= s->n_requests; i++)
        if (s->request[i].state == REQUEST_TO_COME || s->request[i].state == REQUEST_LIVE)
            return i;
    return 0;
}

/* All requests have ended and all messages arrived: nothing may be left of them. */
static void check_nothing_left(sim *s)
{
    scheduler_stats t = s->s ? scheduler_get_stats(s->s) : (scheduler_stats){0};
    if (t.n_running + t.n_queued)
        sim_violate(s, "the scheduler still has %d running and %d waiting requests after all have ended", t.n_running, t.n_queued);
    for (int p = s->n_frontends; p < s->n_frontends + s->n_runners; p++)
        for (int k = 0; k < s->n_workers; k++)
            if (s->peer[p].worker[k].w && !fault_worker_is_empty(s->peer[p].worker[k].w))
                sim_violate(s, "worker %d of %s still has requests or pages after all have ended", k, sim_peer_name(s, p));
}

/* Until all have ended and what is under way has arrived, or something is wrong. */
static void play(sim *s)
{
    enum { MOST_SECONDS = 300, REST = 10 };
    double ended_at = HUGE_VAL;
    while (!s->violation->len && s->net.now < ended_at + REST) {
        sim_event *e = sim_next(&s->net);
        s->stats->events++;
        handle(s, e);
        sim_event_free(e);
        int id = first_unended(s);
        if (s->net.now > s->quiet_at && !id)
            ended_at = fmin(ended_at, s->net.now);
        if (s->net.now > s->quiet_at + MOST_SECONDS)
            sim_violate(s, "request %d is still %s %d s after the last fault, with %d of %d tokens", id, state_names[s->request[id].state],
                    MOST_SECONDS, s->request[id].n_output, s->truth[id].n_output);
    }
    if (!s->violation->len)
        check_nothing_left(s);
}

static void tear_down(sim *s)
{
    if (s->s)
        sched_process_stop(s);
    for (int p = 0; p < MOST_PEERS; p++)
        for (int k = 0; k < MOST_WORKERS; k++)
            fault_worker_free(s->peer[p].worker[k].w);
    sim_net_deinit(&s->net);
    free(s->served);
    free(s->request);
    free(s->truth);
}

void fault_sim_run(uint64_t seed, bool trace, fault_stats *stats, buf *violation)
{
    sim *s = XNEW(sim);
    s->trace = trace;
    s->stats = stats;
    s->violation = violation;
    sim_net_init(&s->net, seed);
    make_cluster(s);
    make_story(s);
    sim_say(s, "%d frontends, %d runners of %d workers, batch %d, %d pages of %d; %d requests", s->n_frontends, s->n_runners, s->n_workers,
        s->worker_setup.max_batch, s->worker_setup.n_pages, s->worker_setup.page_len, s->n_requests);
    play(s);
    stats->requests += (uint64_t)s->n_requests;
    tear_down(s);
    free(s);
}
