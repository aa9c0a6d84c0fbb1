/* scenario.c - see scenario.h */
#include "sim/scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "sim/allowed_errors.h"
#include "sim/scenario_setup.h"

enum { MOST_TASKS = 500000 };
static const double MOST_SECONDS = 400, /* after the last fault, until all have their answers */
    REST = 12,      /* after the last answer, until nothing may be left: a lost link is noticed by then */
    LATE_REST = 5,  /* the same when no link is lost */
    LATE_LEAVE = 1; /* late clients that leave do so within this time */

typedef struct scenario scenario;

/* A planned event: a client comes, a client leaves, an adapter is published, a fault. */
typedef struct {
    scenario *in;
    int number;
    sim_task task;
} scenario_event;

struct scenario {
    cluster c;
    double begin, seconds; /* in which faults happen and early clients come */
    fault_list faults;
    scenario_setup set;
    scenario_event *event; /* [n_events] */
    int n_events;
};

static uint64_t draw(scenario *s, rng_stream c, uint64_t below)
{
    return world_draw(&s->c.w, c, below);
}

static bool often(scenario *s, rng_stream c, double share)
{
    return world_chance(&s->c.w, c, share);
}

/* Events. */

static void on_arrival(void *ctx)
{
    scenario_event *h = ctx;
    cluster *c = &h->in->c;
    client *q = &c->client[h->number];
    front_member *f = &c->front[q->frontend];
    if (!f->m.is_up)
        q->state = CLIENT_LOST; /* connection refused */
    else
        AS_PROCESS(&f->m.p,
                   client_ask(q, &f->s, q->request.tenant < 0 ? NULL : sim_tenants_find(f->tenants, q->request.tenant),
                              q->request.adapter < 0 ? 0 : f->content[q->request.adapter]));
}

static void on_departure(void *ctx)
{
    scenario_event *h = ctx;
    cluster *c = &h->in->c;
    client *q = &c->client[h->number];
    if (q->state == CLIENT_LIVE)
        AS_PROCESS(&c->front[q->frontend].m.p, client_leave(q, CLIENT_LEFT));
}

static void on_fault(void *ctx)
{
    scenario_event *h = ctx;
    fault_inject(&h->in->faults.fault[h->number], &h->in->c);
}

/* Puts an adapter's files on all disks. */
static void on_published(void *ctx)
{
    scenario_event *h = ctx;
    world_say(&h->in->c.w, "%s is published", sim_adapter_name(h->number));
    for (int i = 0; i < h->in->c.n_machines; i++)
        cluster_set_file(&h->in->c, i, h->number, FILE_FINE);
}

static void plan(scenario *s, void (*run)(void *ctx), int number, double at)
{
    scenario_event *h = &s->event[s->n_events++];
    *h = (scenario_event){.in = s, .number = number, .task = {.run = run, .ctx = h}};
    world_plan(&s->c.w, &h->task, at);
}

/* Returns the seconds that a message may take, with this network and these faults. */
static double most_lateness(const scenario *s)
{
    double seconds = s->set.choppy ? 12 : 2;
    for (int i = 0; i < s->faults.n; i++)
        if (fault_delays(s->faults.fault[i].kind))
            seconds = 40;
    return seconds;
}

/* Has an adapter appear on the disks late, when clients may have asked for it. */
static void publish_late(scenario *s, int adapter)
{
    for (int i = 0; i < s->c.n_machines; i++)
        cluster_set_file(&s->c, i, adapter, FILE_MISSING);
    plan(s, on_published, adapter, world_uniform(&s->c.w, RNG_CLUSTER, 0, s->seconds));
}

static void make_scenario(scenario *s, const fault_mask *without)
{
    cluster *k = &s->c;
    const rng_stream c = RNG_REQUESTS;
    s->event = XNEW_ARRAY(scenario_event, (size_t)(2 * k->n_clients + s->faults.n + 1));
    if (often(s, RNG_CLUSTER, 0.4))
        publish_late(s, (int)draw(s, RNG_CLUSTER, N_ADAPTERS));
    double within = often(s, c, 0.2) ? 0.5 : s->seconds; /* all at once, or one after the other */
    for (int i = 0; i < s->set.n_early; i++) {
        double at = world_uniform(&k->w, c, 0, within);
        plan(s, on_arrival, i, at);
        if (often(s, c, 0.15))
            plan(s, on_departure, i, at + world_uniform(&k->w, c, 0, often(s, c, 0.5) ? 3 : 0.3));
    }
    for (int i = 0; i < s->faults.n; i++)
        if (!without || !without->out[i])
            plan(s, on_fault, i, s->faults.fault[i].at);
}

/* Repairs the cluster after the last fault: disks are whole and all the same, but for an adapter that stays missing.
 * Clocks stay wrong. */
static void heal(scenario *s)
{
    sim_network_stop_noise(s->c.w.net);
    cluster_crash_after(&s->c.sched.m, 0);
    for (int i = 0; i < s->c.n_machines; i++) {
        sim_machine *m = &s->c.runner[i].machine;
        cluster_crash_after(&s->c.runner[i].m, 0);
        m->disk_slow = 1;
        m->starts_fail_until = m->kills_until = 0;
        for (int a = 0; a < N_ADAPTERS; a++) {
            m->disk[a].content = s->c.newest[a];
            cluster_set_file(&s->c, i, a, a == s->c.gone_adapter ? FILE_MISSING : FILE_FINE);
        }
        for (int k = 0; k < MOST_WORKERS; k++)
            if (m->worker[k])
                sim_worker_slow(m->worker[k], 1);
    }
    for (int i = 0; i < s->c.n_fronts; i++) {
        cluster_crash_after(&s->c.front[i].m, 0);
        for (int a = 0; a < N_ADAPTERS; a++)
            cluster_set_content(&s->c, i, a, s->c.newest[a]);
    }
}

/* What clients were told. */

static void check_error(scenario *s, client *q)
{
    if (!error_is_allowed(&s->c, q))
        world_violate(&s->c.w, "client %d got error %d \"%s\" after %zu tokens%s", q->number, q->status, q->error,
                      q->text[0].len, q->comes_late ? ", when everything was in order" : "");
    s->c.counts.refused++;
    s->c.counts.innocents += strcmp(q->error, "worker_died") == 0 && !q->request.is_killer;
}

static void check_client(scenario *s, client *q)
{
    if (q->state == CLIENT_ANSWERED && !*q->error) {
        client_check_answer(q, short_output_is_allowed(&s->c, q));
        s->c.counts.finished++;
    } else {
        client_check_part(q);
        if (q->state == CLIENT_ANSWERED)
            check_error(s, q);
        s->c.counts.cancelled += q->state == CLIENT_CANCELLED;
    }
    s->c.counts.tokens += q->text[0].len + q->text[1].len;
}

/* Returns a client of these numbers that waits or is to come, or NULL. */
static client *find_unanswered(scenario *s, int from, int to)
{
    for (int i = from; i < to; i++)
        if (s->c.client[i].state <= CLIENT_LIVE)
            return &s->c.client[i];
    return NULL;
}

/* Runs one more task and checks the cluster. Returns whether nothing is wrong so far. */
static bool go_on(scenario *s)
{
    world *w = &s->c.w;
    if (w->violation.len)
        return false;
    CHECK(world_run_next(w));
    if (w->n_run > MOST_TASKS)
        world_violate(w, "%d tasks, and no end of it", MOST_TASKS);
    cluster_crash_due(&s->c);
    cluster_settle(&s->c);
    return !w->violation.len;
}

static void rest(scenario *s, double seconds)
{
    for (double until = s->c.w.now + seconds; s->c.w.now < until && go_on(s);) {
    }
}

/* Runs until the clients of these numbers have their answers, and checks these. */
static void wait_for_answers(scenario *s, int from, int to)
{
    double latest = s->c.w.now + MOST_SECONDS;
    for (const client *q; (q = find_unanswered(s, from, to)) && go_on(s);)
        if (s->c.w.now > latest)
            world_violate(&s->c.w, "client %d is not answered within %.0f s; it has \"%s\"", q->number, MOST_SECONDS,
                          q->text[0].len ? q->text[0].data : "");
    for (int i = from; i < to && !s->c.w.violation.len; i++)
        check_client(s, &s->c.client[i]);
}

static void wait_until_whole(scenario *s)
{
    double latest = s->c.w.now + MOST_SECONDS;
    while (!cluster_is_whole(&s->c) && go_on(s))
        if (s->c.w.now > latest)
            world_violate(&s->c.w, "not everybody is back within %.0f s", MOST_SECONDS);
}

/* Has new clients come when everything is in order again: what happened before must not affect them. */
static void have_late_clients(scenario *s)
{
    for (int i = s->set.n_early; i < s->c.n_clients; i++) {
        plan(s, on_arrival, i, 0);
        if (i > s->set.n_early + N_ADAPTERS)
            plan(s, on_departure, i, world_uniform(&s->c.w, RNG_REQUESTS, 0, LATE_LEAVE));
    }
    wait_for_answers(s, s->set.n_early, s->c.n_clients);
    rest(s, LATE_REST);
    if (!s->c.w.violation.len)
        cluster_check_nothing_left(&s->c);
}

/* Drains all machines at last; with nothing to do they end at once. */
static void drain_all(scenario *s)
{
    bool over = false;
    for (int i = 0; i < s->c.n_machines; i++)
        cluster_drain(&s->c, i);
    while (!over && go_on(s)) {
        over = true;
        for (int i = 0; i < s->c.n_machines; i++)
            over &= !s->c.runner[i].draining || !s->c.runner[i].m.is_up;
    }
}

static void play(scenario *s)
{
    double quiet_at = s->begin + s->seconds;
    while (s->c.w.now < quiet_at && go_on(s)) {
    }
    heal(s);
    wait_for_answers(s, 0, s->set.n_early);
    rest(s, REST);
    if (!s->c.w.violation.len)
        cluster_check_nothing_left(&s->c);
    wait_until_whole(s);
    if (s->c.w.violation.len)
        return;
    cluster_count(&s->c);
    s->c.in_order = true;
    have_late_clients(s);
    if (!s->c.w.violation.len)
        drain_all(s);
}

static void tear_down(scenario *s)
{
    cluster_stop(&s->c);
    for (int i = 0; i < s->n_events; i++)
        world_cancel(&s->c.w, &s->event[i].task);
    for (int i = 0; i < s->c.n_clients; i++)
        client_deinit(&s->c.client[i]);
    free(s->c.client);
    free(s->event);
    world_deinit(&s->c.w);
    free(s);
}

static bool has_noise(const scenario *s)
{
    if (s->set.noisy)
        return true;
    for (int i = 0; i < s->faults.n; i++)
        if (s->faults.fault[i].kind == FAULT_LINK_NOISE)
            return true;
    return false;
}

/* Writes log lines into the trace, and checks that no link is refused but a stranger's or one replaced by a newer link:
 * all others speak the same protocol and know the secret, unless noise flips a bit. */
static void on_log_line(void *ctx, const char *text)
{
    scenario *s = ctx;
    world *w = &s->c.w;
    bool of_stranger = strstr(text, STRANGER) || (w->speaker && strcmp(w->speaker, STRANGER) == 0);
    world_say(w, "%s", text);
    if (strncmp(text, "refused ", 8) == 0 && !of_stranger && !has_noise(s) && !strstr(text, "replaced by a newer link"))
        world_violate(w, "%s", text);
}

static void add_counts(scenario_stats *t, const scenario *s)
{
    const cluster_counts *c = &s->c.counts;
    t->tasks += s->c.w.n_run;
    t->faults += (uint64_t)s->faults.n;
    t->clients += (uint64_t)s->c.n_clients;
    t->counts.finished += c->finished;
    t->counts.cancelled += c->cancelled;
    t->counts.refused += c->refused;
    t->counts.killers += c->killers;
    t->counts.innocents += c->innocents;
    t->counts.tokens += c->tokens;
    t->counts.evicted += c->evicted;
    t->counts.moved += c->moved;
    t->counts.recovered += c->recovered;
    t->counts.stale += c->stale;
}

/* Draws the cluster, its faults and its clients from the seed. */
static scenario *scenario_new(uint64_t seed, bool trace)
{
    scenario *s = XNEW(scenario);
    world *w = &s->c.w;
    world_init(w, seed, trace);
    s->set.c = &s->c;
    scenario_setup_draw_cluster(&s->set);
    s->begin = w->now;
    s->seconds = world_uniform(w, RNG_CLUSTER, 2, 10);
    faults_draw(&s->faults, w, s->seconds, s->set.uneven ? FAULT_DRAIN : (fault_kind)draw(s, RNG_FAULTS, N_FAULTS));
    s->c.submitted.lateness = most_lateness(s);
    scenario_setup_draw_clients(&s->set);
    return s;
}

void scenario_print_faults(uint64_t seed, const fault_mask *without)
{
    scenario *s = scenario_new(seed, false);
    char text[100];
    for (int i = 0; i < s->faults.n; i++)
        if (!without->out[i]) {
            fault_print(&s->faults.fault[i], text, sizeof text);
            printf("      %s\n", text);
        }
    tear_down(s);
}

int scenario_run(uint64_t seed, const fault_mask *without, bool trace, scenario_stats *stats, buf *violation)
{
    scenario *s = scenario_new(seed, trace);
    world *w = &s->c.w;
    log_set_sink(on_log_line, s);
    log_set_level(trace ? LOG_INFO : LOG_WARN);
    make_scenario(s, without);
    world_say(w, "%d frontends, %d machines of %d workers, batch %d, %d pages of %d, %d slots; %d clients, %d faults",
              s->c.n_fronts, s->c.n_machines, s->c.runner[0].n_workers, s->c.runner[0].machine.max_batch,
              s->c.runner[0].machine.n_pages, s->c.runner[0].machine.page_len, s->c.runner[0].machine.n_slots,
              s->c.n_clients, s->faults.n);
    cluster_start(&s->c);
    play(s);
    if (w->violation.len)
        buf_add(violation, w->violation.data, w->violation.len);
    int n_faults = s->faults.n;
    add_counts(stats, s);
    tear_down(s);
    log_set_sink(NULL, NULL);
    return n_faults;
}
