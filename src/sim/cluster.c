/* cluster.c - see cluster.h */
#include "sim/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/wire.pb-c.h"
#include "sim/command_words.h"

static const char SCHEDULER[] = "scheduler";

/* Returns whether a span has begun and not ended. */
static bool spans_last(const spans *s)
{
    return s->n && s->at[s->n - 1].to == HUGE_VAL;
}

static void spans_end(spans *s, double now)
{
    if (spans_last(s))
        s->at[s->n - 1].to = now;
}

static void spans_begin(spans *s, double now)
{
    CHECK(s->n < MOST_SPANS && !spans_last(s));
    s->at[s->n].from = now;
    s->at[s->n++].to = HUGE_VAL;
}

bool spans_touch(const spans *s, double from, double to)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i].from <= to && from <= s->at[i].to)
            return true;
    return false;
}

static double some_seconds(cluster *c, double low, double high)
{
    return world_uniform(&c->w, RNG_CLUSTER, low, high);
}

/* Begins a new process in the member's place; its wall clock is somewhat wrong. */
static void begin_member(sim_member *m, const char *kind)
{
    char name[32];
    snprintf(name, sizeof name, m->number < 0 ? "%s" : "%s %d", kind, m->number);
    sim_process_init(&m->p, &m->in->w, name, some_seconds(m->in, -0.5, 0.5));
    m->is_up = true;
    world_say(&m->in->w, "%s starts", name);
}

static void end_member(sim_member *m, bool silent)
{
    world_say(&m->in->w, "%s %s", m->p.name, silent ? "is gone without a word" : "ends");
    m->p.dead = true;
    m->is_up = false;
    sim_network_process_died(m->in->w.net, &m->p, silent);
}

/* The scheduler, and its observers. */

static void settle(sched_member *s)
{
    cluster *c = s->m.in;
    if (!checker_has_news(s->checker))
        return;
    checker_settle(s->checker);
    if (checker_violation(s->checker))
        world_violate(&c->w, "%s", checker_violation(s->checker));
    if (!s->naive)
        return;
    buf *plain = &s->naive->said;
    if (s->said.len != plain->len || (plain->len && memcmp(s->said.data, plain->data, plain->len) != 0)) {
        world_say(&c->w, "the scheduler said\n%sand the naive one\n%s", s->said.len ? s->said.data : "nothing\n",
                  plain->len ? plain->data : "nothing\n");
        world_violate(&c->w, "the scheduler and the naive one disagree");
    }
    buf_clear(&s->said);
    buf_clear(plain);
}

/* Goes on without the naive scheduler: there are more frontends or GPUs than it has room for. */
static void drop_naive(sched_member *s)
{
    if (!s->naive)
        return;
    buf_free(&s->naive->said);
    free(s->naive);
    s->naive = NULL;
}

static void saw_frontend_up(void *ctx, int frontend)
{
    settle(ctx);
    if (frontend >= NAIVE_FRONTENDS)
        drop_naive(ctx);
}

static void saw_frontend_gone(void *ctx, double now, int frontend)
{
    sched_member *s = ctx;
    settle(s);
    checker_frontend_gone(s->checker, now, frontend);
    if (s->naive)
        naive_frontend_gone(s->naive, now, frontend);
}

/* Returns the machine of a GPU if the scheduler knows that it drains; NULL: it may be used. Only in the machine's first
 * life: in later ones the scheduler may still know GPUs of an earlier one. */
static runner_member *draining_machine(sched_member *s, int gpu)
{
    runner_member *r = &s->m.in->runner[s->machine[gpu]];
    return r->drain_heard && r->n_starts == 1 ? r : NULL;
}

static void saw_gpu_up(void *ctx, double now, int gpu, const gpu_info *info)
{
    sched_member *s = ctx;
    settle(s);
    CHECK(gpu < MOST_GPUS && sscanf(info->uuid, "gpu-%d-", &s->machine[gpu]) == 1);
    if (draining_machine(s, gpu))
        world_violate(&s->m.in->w, "GPU %s is announced, though its machine drains", info->uuid);
    checker_gpu_up(s->checker, now, gpu, info);
    if (gpu >= NAIVE_GPUS)
        drop_naive(s);
    if (s->naive)
        naive_gpu_up(s->naive, now, gpu, info);
}

static void saw_gpus_gone(void *ctx, double now, const int *gpu, int n, gpu_loss how)
{
    sched_member *s = ctx;
    settle(s);
    checker_gpus_gone(s->checker, now, gpu, n, how);
    if (s->naive)
        naive_gpus_gone(s->naive, now, gpu, n, how);
}

static void saw_gpus_drain(void *ctx, double now, const int *gpu, int n)
{
    sched_member *s = ctx;
    settle(s);
    for (int i = 0; i < n; i++)
        s->m.in->runner[s->machine[gpu[i]]].drain_heard = true;
    checker_gpus_drain(s->checker, now, gpu, n);
    if (s->naive)
        naive_gpus_drain(s->naive, now, gpu, n);
}

static void saw_gpu_pace(void *ctx, double now, int gpu, bool slow)
{
    sched_member *s = ctx;
    settle(s);
    world_say(&s->m.in->w, "GPU %d is %s", gpu, slow ? "slow" : "well");
    if (slow && s->m.in->in_order)
        world_violate(&s->m.in->w, "GPU %d is called slow, when everything is in order", gpu);
    checker_gpu_pace(s->checker, now, gpu, slow);
    if (s->naive)
        naive_gpu_pace(s->naive, now, gpu, slow);
}

/* Checks that a request which is submitted again has all tokens that its client has got. A text has one character for
 * each token. The client is found by its seed, which is that of its first choice. */
static void check_output(cluster *c, const submission *r)
{
    Sampling *sampling = r->again ? sampling__unpack(NULL, r->sampling_bytes, r->sampling) : NULL;
    for (int i = 0; i < c->n_clients && sampling; i++) {
        const client *q = &c->client[i];
        if (q->state == CLIENT_LIVE && q->request.seed == sampling->seed &&
            (size_t)(r->n_tokens - r->n_prompt) < q->text[0].len)
            world_violate(&c->w, "client %d has %zu tokens, and its frontend asks for what comes behind %d", i,
                          q->text[0].len, r->n_tokens - r->n_prompt);
    }
    if (sampling)
        sampling__free_unpacked(sampling, NULL);
}

static void saw_submit(void *ctx, double now, int frontend, const submission *r)
{
    sched_member *s = ctx;
    settle(s);
    check_output(s->m.in, r);
    const char *wrong = submissions_add(&s->m.in->submitted, r, s->m.in->w.now - (now - r->arrival));
    if (wrong)
        world_violate(&s->m.in->w, "%s (request %llu)", wrong, (unsigned long long)r->id);
    checker_submit(s->checker, now, frontend, r);
    if (s->naive)
        naive_submit(s->naive, now, frontend, r);
}

static void saw_cancel(void *ctx, double now, int frontend, uint64_t id)
{
    sched_member *s = ctx;
    settle(s);
    checker_cancel(s->checker, now, frontend, id);
    if (s->naive)
        naive_cancel(s->naive, now, frontend, id);
}

static void saw_report(void *ctx, double now, int gpu, const gpu_report *r)
{
    sched_member *s = ctx;
    settle(s);
    checker_report(s->checker, now, gpu, r);
    if (s->naive)
        naive_report(s->naive, now, gpu, r);
}

static void saw_tick(void *ctx, double now)
{
    sched_member *s = ctx;
    settle(s);
    checker_tick(s->checker, now);
    if (s->naive)
        naive_tick(s->naive, now);
}

static void saw_command(void *ctx, const command *c)
{
    sched_member *s = ctx;
    world *w = &s->m.in->w;
    checker_command(s->checker, c);
    if (c->kind == COMMAND_ADD && draining_machine(s, c->gpu))
        world_violate(w, "placed on a machine that drains (request %llu)", (unsigned long long)c->id);
    if (s->naive || w->trace) {
        size_t from = s->said.len;
        command_words_write(&s->said, c);
        if (c->kind != COMMAND_TOKENS)
            world_say(w, "-> %.*s", (int)(s->said.len - from - 1), s->said.data + from);
    }
    s->m.in->counts.killers += c->kind == COMMAND_END && c->why == END_KILLS_WORKERS;
}

static void start_scheduler(void *ctx)
{
    sched_member *s = ctx;
    cluster *c = s->m.in;
    begin_member(&s->m, SCHEDULER);
    s->checker = checker_new(&c->policy);
    s->naive = XNEW(naive);
    s->naive->opt = c->policy;
    s->naive->none_since = -1;
    s->tap =
        (scheduler_tap){saw_frontend_up, saw_frontend_gone, saw_gpu_up, saw_gpus_gone, saw_gpus_drain, saw_gpu_pace,
                        saw_submit,      saw_cancel,        saw_report, saw_tick,      saw_command,    s};
    sched_server_options o = sched_server_options_default();
    err e;
    o.listen = SCHEDULER;
    o.link = c->link;
    o.link.name = SCHEDULER;
    o.policy = c->policy;
    o.tap = &s->tap;
    s->server = sched_server_new(&s->m.p.base, &o, &e);
    CHECK(s->server);
}

static void end_scheduler(cluster *c, bool silent)
{
    sched_member *s = &c->sched;
    settle(s);
    end_member(&s->m, silent);
    sched_server_free(s->server);
    checker_free(s->checker);
    drop_naive(s);
    buf_free(&s->said);
    s->server = NULL;
}

/* Frontends. */

/* Checks that no request waits at a frontend that has been without a scheduler for longer than its patience. (A
 * frontend that was stopped needs a moment more.) */
static void check_patience(const cluster *c, const front_member *f)
{
    double over = fmax(f->outages.at[f->outages.n - 1].from + c->patience, f->m.p.stopped_until) + 0.1;
    if (spans_last(&f->outages) && c->w.now > over &&
        (dispatch_is_patient(f->at_scheduler) || dispatch_n_live(f->at_scheduler)))
        world_violate(f->m.p.in, "%s still waits for the scheduler", f->m.p.name);
}

/* Checks that no tenant has more in flight at a frontend than its limit. (Only clients with one choice are counted: of
 * two choices one may have ended.) */
static void check_in_flight(cluster *c, const front_member *f)
{
    int n[MOST_TENANTS] = {0};
    for (int i = 0; i < c->n_clients; i++) {
        const client *q = &c->client[i];
        bool counts = q->state == CLIENT_LIVE && &c->front[q->frontend] == f && q->request.n_choices == 1 &&
                      q->request.tenant >= 0;
        if (counts && ++n[q->request.tenant] > c->tenant[q->request.tenant].in_flight &&
            c->tenant[q->request.tenant].in_flight)
            world_violate(&c->w, "%s has more requests of client %d's tenant in flight than it may", f->m.p.name, i);
    }
}

static void look_at_front(cluster *c, front_member *f)
{
    bool is_up = dispatch_is_up(f->at_scheduler);
    if (is_up)
        spans_end(&f->outages, c->w.now);
    else if (!spans_last(&f->outages))
        spans_begin(&f->outages, c->w.now);
    check_patience(c, f);
    if (c->n_tenants)
        check_in_flight(c, f);
    if (dispatch_n_live(f->at_scheduler) > c->max_live)
        world_violate(&c->w, "%s has %d requests, more than the %d it may", f->m.p.name,
                      dispatch_n_live(f->at_scheduler), c->max_live);
}

static void start_front(void *ctx)
{
    front_member *f = ctx;
    cluster *c = f->m.in;
    static const int eos[] = {TOY_EOS};
    const char *names[N_ADAPTERS];
    err e;
    begin_member(&f->m, "frontend");
    for (int i = 0; i < N_ADAPTERS; i++)
        names[i] = sim_adapter_name(i);
    dispatch_options o = {
        .scheduler = SCHEDULER, .link = c->link, .max_live = c->max_live, .threads = 1, .patience = c->patience};
    o.link.name = f->m.p.name;
    o.link.model = "toy";
    f->at_scheduler = dispatch_new(&f->m.p.base, &o, &e);
    CHECK(f->at_scheduler);
    f->models = catalog_of_names("toy", names, N_ADAPTERS);
    f->versions = versions_new(f->models);
    for (int i = 0; i < N_ADAPTERS; i++) {
        digest d = sim_digest(f->content[i]);
        versions_set(f->versions, sim_adapter_name(i), &d);
    }
    f->tenants = c->n_tenants ? sim_tenants_new(c->tenant, c->n_tenants, "toy") : NULL;
    f->counts = (metrics){0};
    atomic_init(&f->context, TOY_CONTEXT);
    f->s =
        (service){.on = &f->m.p.base,
                  .at_scheduler = f->at_scheduler,
                  .models = f->models,
                  .counts = &f->counts,
                  .tools = {.t = toy_tokenizer(), .adapters = f->versions, .context = &f->context, .vocab = TOY_VOCAB},
                  .eos = eos,
                  .n_eos = 1,
                  .plain_id = 'a',
                  .keep_alive = c->keep_alive};
    spans_end(&f->outages, c->w.now);
    spans_begin(&f->outages, c->w.now);
}

void cluster_set_content(cluster *c, int front, int adapter, uint64_t content)
{
    front_member *f = &c->front[front];
    digest d = sim_digest(content);
    f->content[adapter] = content;
    if (f->m.is_up)
        versions_set(f->versions, sim_adapter_name(adapter), &d);
}

/* Ends a frontend; its clients lose their connections. */
static void end_front(cluster *c, int i, bool silent)
{
    front_member *f = &c->front[i];
    end_member(&f->m, silent);
    for (int k = 0; k < c->n_clients; k++) {
        client *q = &c->client[k];
        if (q->frontend != i || q->state != CLIENT_LIVE)
            continue;
        q->base.gone(q->base.ctx, CLIENT_LEFT);
        q->state = CLIENT_LOST;
        client_check_part(q);
    }
    dispatch_free(f->at_scheduler);
    tenants_free(f->tenants);
    versions_free(f->versions);
    catalog_free(f->models);
    metrics_deinit(&f->counts);
    f->at_scheduler = NULL;
}

/* Machines. */

static void start_machine(void *ctx)
{
    runner_member *r = ctx;
    cluster *c = r->m.in;
    static const char *const devices[MOST_WORKERS] = {"toy:0", "toy:1"};
    runner_options o = runner_options_default();
    err e;
    begin_member(&r->m, "runner");
    r->n_starts++;
    r->draining = r->drain_heard = false;
    r->machine.runner = &r->m.p;
    snprintf(r->machine.name, sizeof r->machine.name, "%d", r->m.number);
    memset(r->machine.worker, 0, sizeof r->machine.worker);
    o.scheduler = SCHEDULER;
    o.link = c->link;
    o.link.name = r->m.p.name;
    o.link.model = "toy";
    o.processes = sim_worker_starter(&r->machine);
    o.device = devices;
    o.n_workers = r->n_workers;
    o.hang_seconds = c->hang_seconds;
    o.start_seconds = 20;
    o.drain_seconds = 15;
    r->r = runner_new(&r->m.p.base, &o, &e);
    CHECK(r->r);
}

static void end_machine(cluster *c, int i, bool silent)
{
    runner_member *r = &c->runner[i];
    end_member(&r->m, silent);
    world_cancel(&c->w, &r->leaving);
    world_cancel(&c->w, &r->look);
    runner_free(r->r);
    r->r = NULL;
}

/* Called by a runner that has drained: it ends in a task of its own, outside of this callback. */
static void has_drained(void *ctx)
{
    runner_member *r = ctx;
    world_plan(&r->m.in->w, &r->leaving, 0);
}

static void leave(void *ctx)
{
    runner_member *r = ctx;
    cluster *c = r->m.in;
    end_machine(c, r->m.number, false);
    world_plan(&c->w, &r->m.restart, some_seconds(c, 0.5, 4));
}

static bool is_idle(const runner_member *r)
{
    bool idle = r->m.p.stopped_until <= r->m.in->w.now;
    for (int i = 0; i < r->n_workers; i++)
        idle &= !r->machine.worker[i] ||
                (sim_worker_is_empty(r->machine.worker[i]) && !sim_worker_is_held(r->machine.worker[i]));
    return idle;
}

/* Checks every second that a runner which drains ends soon after nothing is left, without waiting for drain_seconds. */
static void look_at_drain(void *ctx)
{
    runner_member *r = ctx;
    r->n_idle_looks = is_idle(r) ? r->n_idle_looks + 1 : 0;
    if (r->n_idle_looks == 4)
        world_violate(&r->m.in->w, "%s has drained and does not end", r->m.p.name);
    world_plan(&r->m.in->w, &r->look, 1);
}

void cluster_drain(cluster *c, int i)
{
    runner_member *r = &c->runner[i];
    if (!r->m.is_up || r->draining)
        return;
    r->draining = true;
    r->n_idle_looks = 0;
    world_plan(&c->w, &r->look, 1);
    AS_PROCESS(&r->m.p, runner_drain(r->r, has_drained, r));
}

static bool can_be_read(const cluster *c, int adapter)
{
    for (int i = 0; i < c->n_machines; i++)
        if (c->runner[i].machine.disk[adapter].state != FILE_FINE)
            return false;
    return true;
}

void cluster_set_file(cluster *c, int machine, int adapter, file_state s)
{
    c->runner[machine].machine.disk[adapter].state = s;
    c->poisoned[adapter] |= s == FILE_POISONED;
    if (can_be_read(c, adapter))
        spans_end(&c->bad_files[adapter], c->w.now);
    else if (!spans_last(&c->bad_files[adapter]))
        spans_begin(&c->bad_files[adapter], c->w.now);
}

/* All members. */

static void restart_later(sim_member *m)
{
    world_plan(&m->in->w, &m->restart, some_seconds(m->in, 0.2, 4));
}

void cluster_crash_scheduler(cluster *c, bool silent)
{
    if (!c->sched.m.is_up)
        return;
    end_scheduler(c, silent);
    restart_later(&c->sched.m);
}

void cluster_crash_front(cluster *c, int i, bool silent)
{
    if (!c->front[i].m.is_up)
        return;
    end_front(c, i, silent);
    restart_later(&c->front[i].m);
}

void cluster_crash_machine(cluster *c, int i, bool silent)
{
    if (!c->runner[i].m.is_up)
        return;
    end_machine(c, i, silent);
    restart_later(&c->runner[i].m);
}

void cluster_crash_after(sim_member *m, int n_acts)
{
    if (m->is_up)
        m->p.n_acts_left = n_acts;
}

void cluster_crash_due(cluster *c)
{
    const sim_process *p = c->w.crash_due;
    c->w.crash_due = NULL;
    if (p == &c->sched.m.p)
        cluster_crash_scheduler(c, false);
    for (int i = 0; p && i < c->n_fronts; i++)
        if (p == &c->front[i].m.p)
            cluster_crash_front(c, i, false);
    for (int i = 0; p && i < c->n_machines; i++)
        if (p == &c->runner[i].m.p)
            cluster_crash_machine(c, i, false);
}

void cluster_have_stranger(cluster *c, stranger_kind kind, double seconds)
{
    stranger_connect(&c->stranger, &c->w, SCHEDULER, &c->link, kind, seconds);
}

static void init_member(cluster *c, sim_member *m, int number, void (*start)(void *ctx))
{
    *m = (sim_member){.in = c, .number = number, .restart = {.run = start, .ctx = m}};
    start(m);
}

void cluster_start(cluster *c)
{
    init_member(c, &c->sched.m, -1, start_scheduler);
    for (int i = 0; i < c->n_fronts; i++)
        init_member(c, &c->front[i].m, i, start_front);
    for (int i = 0; i < c->n_machines; i++) {
        c->runner[i].leaving = (sim_task){.run = leave, .ctx = &c->runner[i]};
        c->runner[i].look = (sim_task){.run = look_at_drain, .ctx = &c->runner[i]};
        init_member(c, &c->runner[i].m, i, start_machine);
    }
}

void cluster_stop(cluster *c)
{
    stranger_leave(&c->stranger);
    for (int i = 0; i < c->n_fronts; i++) {
        world_cancel(&c->w, &c->front[i].m.restart);
        if (c->front[i].m.is_up)
            end_front(c, i, false);
    }
    for (int i = 0; i < c->n_machines; i++) {
        world_cancel(&c->w, &c->runner[i].m.restart);
        if (c->runner[i].m.is_up)
            end_machine(c, i, false);
    }
    world_cancel(&c->w, &c->sched.m.restart);
    if (c->sched.m.is_up)
        end_scheduler(c, false);
    submissions_deinit(&c->submitted);
}

int cluster_capacity(const cluster *c)
{
    int most = 0;
    for (int i = 0; i < c->n_machines; i++) {
        int n = sim_machine_capacity(&c->runner[i].machine);
        most = n > most ? n : most;
    }
    return most;
}

bool cluster_is_whole(const cluster *c)
{
    bool whole = c->sched.m.is_up;
    int n_workers = 0;
    for (int i = 0; i < c->n_fronts; i++)
        whole = whole && c->front[i].m.is_up && dispatch_is_up(c->front[i].at_scheduler);
    for (int i = 0; i < c->n_machines; i++) {
        whole = whole && c->runner[i].m.is_up && !c->runner[i].draining;
        n_workers += c->runner[i].n_workers;
    }
    if (!whole)
        return false;
    scheduler_stats t = sched_server_stats(c->sched.server);
    return t.n_gpus == n_workers && t.n_slow == 0;
}

void cluster_settle(cluster *c)
{
    for (int i = 0; i < c->n_fronts; i++)
        if (c->front[i].m.is_up)
            look_at_front(c, &c->front[i]);
    if (!c->sched.m.is_up || !checker_has_news(c->sched.checker))
        return;
    settle(&c->sched);
    sched_server_check(c->sched.server);
}

static void check_front(cluster *c, front_member *f)
{
    int n_calls = f->counts.live_calls, n_live = dispatch_n_live(f->at_scheduler);
    if (n_calls || n_live)
        world_violate(&c->w, "%s still has %d calls and %d requests after all are answered", f->m.p.name, n_calls,
                      n_live);
}

static void check_machine(cluster *c, runner_member *r)
{
    for (int k = 0; k < r->n_workers; k++)
        if (r->machine.worker[k] && !sim_worker_is_empty(r->machine.worker[k]))
            world_violate(&c->w, "worker %d of %s still has requests, pages or messages after all are answered", k,
                          r->m.p.name);
}

void cluster_check_nothing_left(cluster *c)
{
    scheduler_stats t = c->sched.m.is_up ? sched_server_stats(c->sched.server) : (scheduler_stats){0};
    if (t.n_running + t.n_queued)
        world_violate(&c->w, "the scheduler still has %d running and %d waiting requests after all are answered",
                      t.n_running, t.n_queued);
    for (int i = 0; i < c->n_fronts; i++)
        if (c->front[i].m.is_up)
            check_front(c, &c->front[i]);
    for (int i = 0; i < c->n_machines; i++)
        if (c->runner[i].m.is_up)
            check_machine(c, &c->runner[i]);
}

void cluster_count(cluster *c)
{
    scheduler_stats t = sched_server_stats(c->sched.server);
    c->counts.evicted += t.evicted;
    c->counts.moved += t.moved;
    c->counts.recovered += t.recovered;
    c->counts.stale += t.stale;
}
