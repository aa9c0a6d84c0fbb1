/* fault_scheduler.c - see fault_cluster.h: the scheduler's process, sched_server.c in small */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "bench/fault_cluster.h"

static served *served_at(sim *s, int conn)
{
    size_t had = s->served_cap;
    s->served = xgrow(s->served, &s->served_cap, (size_t)conn + 1, sizeof *s->served);
    if (s->served_cap > had)
        memset(s->served + had, 0, (s->served_cap - had) * sizeof *s->served);
    return &s->served[conn];
}

static void obey(void *ctx, const command *c)
{
    sim *s = ctx;
    fault_watch_command(s->watch, s->net.now, c);
    if (c->kind == COMMAND_ADD || c->kind == COMMAND_CANCEL) {
        int conn = s->conn_of_gpu[c->gpu];
        message *m = message_new(c->kind == COMMAND_ADD ? MESSAGE_ADD : MESSAGE_CANCEL);
        m->id = c->id;
        m->attempt = c->attempt;
        while (m->gpu < MOST_WORKERS - 1 && s->served[conn].gpu[m->gpu] != c->gpu)
            m->gpu++;
        m->start = s->served[conn].start[m->gpu];
        if (c->what) {
            message_set_tokens(m, c->what->token, c->what->n_tokens);
            m->n_prompt = c->what->n_prompt;
            m->max_tokens = c->what->max_tokens;
            m->arrival = c->what->arrival;
        }
        sim_say(s, "scheduler: %s request %d, attempt %u, GPU %d", message_name(m->kind), (int)c->id, c->attempt, c->gpu);
        sim_send(&s->net, conn, SIDE_PEER, m);
        return;
    }
    served *f = &s->served[s->conn_of_frontend[c->frontend]];
    if (!f->results)
        f->results = message_new(MESSAGE_RESULTS);
    if (c->kind == COMMAND_END)
        message_add_part(f->results, (message_part){.id = c->id, .is_end = true, .why = (int)c->why});
    for (int i = 0; c->kind == COMMAND_TOKENS && i < c->tokens->n; i++)
        message_add_part(f->results, (message_part){.id = c->id, .index = c->tokens->index + i, .token = c->tokens->token[i]});
}

/* After every event: what is for frontends goes out, and everything must be in order. */
static void settle(sim *s)
{
    for (int i = 0; i < MOST_GPUS; i++) {
        served *f = s->conn_of_frontend[i] >= 0 ? &s->served[s->conn_of_frontend[i]] : NULL;
        if (f && f->results)
            sim_send(&s->net, s->conn_of_frontend[i], SIDE_PEER, f->results);
        if (f)
            f->results = NULL;
    }
    scheduler_check(s->s);
    fault_watch_settled(s->watch, s->net.now);
    if (fault_watch_violation(s->watch))
        sim_violate(s, "%s", fault_watch_violation(s->watch));
}

static int free_number(const int *conns)
{
    int n = 0;
    while (n < MOST_GPUS && conns[n] >= 0)
        n++;
    CHECK(n < MOST_GPUS);
    return n;
}

static void gpu_lost(sim *s, served *v, int local, bool died)
{
    int gpu = v->gpu[local];
    if (gpu < 0)
        return;
    v->gpu[local] = -1;
    s->conn_of_gpu[gpu] = -1;
    fault_watch_gpu_gone(s->watch, gpu, died);
    scheduler_gpu_gone(s->s, s->net.now, gpu, died);
    settle(s);
}

static void all_gpus_lost(sim *s, served *v)
{
    int gone[MOST_WORKERS], n = 0;
    for (int i = 0; i < MOST_WORKERS; i++) {
        if (v->gpu[i] < 0)
            continue;
        gone[n++] = v->gpu[i];
        s->conn_of_gpu[v->gpu[i]] = -1;
        fault_watch_gpu_gone(s->watch, v->gpu[i], false);
        v->gpu[i] = -1;
    }
    scheduler_gpus_gone(s->s, s->net.now, gone, n);
    settle(s);
}

/* The scheduler's side of a connection is lost: forget all that went over it. */
void sched_process_lose(sim *s, int conn)
{
    served *v = served_at(s, conn);
    if (!v->known)
        return;
    v->known = false;
    s->net.conn[conn].open[SIDE_SCHEDULER] = false;
    sim_say(s, "scheduler: lost %s", sim_peer_name(s, s->net.conn[conn].peer));
    if (v->frontend < 0) {
        all_gpus_lost(s, v);
        return;
    }
    fault_watch_frontend_gone(s->watch, v->frontend);
    s->conn_of_frontend[v->frontend] = -1;
    scheduler_frontend_gone(s->s, s->net.now, v->frontend);
    settle(s);
}

static void scheduler_meets(sim *s, int conn, const message *m)
{
    for (int i = 0; i < conn; i++)
        if (served_at(s, i)->known && s->served[i].instance == m->instance) {       /* a new link of an old peer */
            sim_close(&s->net, i, SIDE_SCHEDULER);
            sched_process_lose(s, i);
        }
    served *v = served_at(s, conn);
    *v = (served){.known = true, .frontend = -1, .gpu = {-1, -1}, .instance = m->instance};
    if (!sim_is_runner(s, s->net.conn[conn].peer)) {
        v->frontend = free_number(s->conn_of_frontend);
        s->conn_of_frontend[v->frontend] = conn;
        scheduler_frontend_up(s->s, v->frontend);
    }
    sim_send(&s->net, conn, SIDE_PEER, message_new(MESSAGE_HELLO));
}

static void take_submit(sim *s, const served *v, const message *m)
{
    submission w = {.id = m->id, .arrival = m->arrival, .token = m->token, .n_tokens = m->n_tokens, .n_prompt = m->n_prompt,
                    .max_tokens = m->max_tokens, .again = m->again};
    fault_watch_submit(s->watch, s->net.now, v->frontend, &w);
    scheduler_submit(s->s, s->net.now, v->frontend, &w);
    settle(s);
}

static void take_step(sim *s, const served *v, const message *m)
{
    report_tokens *tokens = XNEW_ARRAY(report_tokens, m->n_parts + 1);
    report_end *ends = XNEW_ARRAY(report_end, m->n_parts + 1);
    gpu_report r = {.n_seen = m->n_seen, .pages_free = m->pages_free, .tokens = tokens, .ends = ends};
    for (size_t i = 0; i < m->n_parts; i++) {
        const message_part *p = &m->part[i];
        if (p->is_end)
            ends[r.n_ends++] = (report_end){.id = p->id, .attempt = p->attempt, .why = (outcome)p->why};
        else
            tokens[r.n_tokens++] = (report_tokens){.id = p->id, .attempt = p->attempt, .index = p->index, .n = 1, .token = &p->token};
    }
    fault_watch_report(s->watch, v->gpu[m->gpu], &r);
    scheduler_report(s->s, s->net.now, v->gpu[m->gpu], &r);
    settle(s);
    free(tokens);
    free(ends);
}

static void take_gpu_up(sim *s, int conn, served *v, const message *m)
{
    gpu_lost(s, v, m->gpu, false);
    char uuid[32];
    snprintf(uuid, sizeof uuid, "gpu-%d-%d", s->net.conn[conn].peer, m->gpu);
    fault_worker_setup w = sim_worker_setup(s, s->net.conn[conn].peer);
    gpu_info info = {uuid, w.max_batch, w.n_pages, w.page_len, w.n_pages * w.page_len};
    int gpu = v->gpu[m->gpu] = free_number(s->conn_of_gpu);
    v->start[m->gpu] = m->start;
    s->conn_of_gpu[gpu] = conn;
    sim_say(s, "scheduler: %s is GPU %d", uuid, gpu);
    fault_watch_gpu_up(s->watch, gpu, &info);
    scheduler_gpu_up(s->s, s->net.now, gpu, &info);
    settle(s);
}

static void take_drain(sim *s, const served *v)
{
    for (int i = 0; i < MOST_WORKERS; i++) {
        if (v->gpu[i] < 0)
            continue;
        fault_watch_gpu_drain(s->watch, v->gpu[i]);
        scheduler_gpu_drain(s->s, s->net.now, v->gpu[i]);
        settle(s);
    }
}

void sched_process_hear(sim *s, int conn, const message *m)
{
    served *v = served_at(s, conn);
    bool from_gpu = m->kind == MESSAGE_STEP || m->kind == MESSAGE_GPU_GONE;
    if ((m->kind != MESSAGE_HELLO && !v->known) || (from_gpu && v->gpu[m->gpu] < 0))
        return;
    switch (m->kind) {
    case MESSAGE_HELLO:
        scheduler_meets(s, conn, m);
        break;
    case MESSAGE_SUBMIT:
        take_submit(s, v, m);
        break;
    case MESSAGE_CANCEL:
        fault_watch_cancel(s->watch, v->frontend, m->id);
        scheduler_cancel(s->s, s->net.now, v->frontend, m->id);
        settle(s);
        break;
    case MESSAGE_STEP:
        take_step(s, v, m);
        break;
    case MESSAGE_GPU_UP:
        take_gpu_up(s, conn, v, m);
        break;
    case MESSAGE_GPU_GONE:
        gpu_lost(s, v, m->gpu, m->died);
        break;
    case MESSAGE_DRAIN:
        take_drain(s, v);
        break;
    case MESSAGE_CLOSE:
        sched_process_lose(s, conn);
        break;
    default:
        sim_violate(s, "the scheduler got a message that is not for it: %s", message_name(m->kind));
    }
}

void sched_process_start(sim *s)
{
    s->s = scheduler_new(&s->opt, obey, s);
    s->watch = fault_watch_new(&s->opt, (size_t)s->n_requests + 1);
    s->scheduler_epoch++;
    for (int i = 0; i < MOST_GPUS; i++)
        s->conn_of_frontend[i] = s->conn_of_gpu[i] = -1;
    sim_plan(&s->net, 0, EVENT_TICK, 0, 0, s->scheduler_epoch, NULL);
}

static void count(sim *s)
{
    scheduler_stats t = scheduler_get_stats(s->s);
    s->stats->moved += t.moved;
    s->stats->evicted += t.evicted;
    s->stats->recovered += t.recovered;
    s->stats->stale += t.stale;
}

void sched_process_stop(sim *s)
{
    count(s);
    for (int i = 0; i < MOST_GPUS; i++)
        if (s->conn_of_frontend[i] >= 0)
            message_free(s->served[s->conn_of_frontend[i]].results);
    scheduler_free(s->s);
    fault_watch_free(s->watch);
    s->s = NULL;
    s->watch = NULL;
    s->scheduler_epoch++;
}

void sched_process_crash(sim *s)
{
    sched_process_stop(s);
    for (size_t i = 0; i < s->net.n_conns; i++) {
        served_at(s, (int)i)->known = false;
        s->net.conn[i].open[SIDE_SCHEDULER] = false;
        if (!s->net.conn[i].broken)
            sim_break(&s->net, (int)i, sim_uniform(&s->net, 0, 0.5), 0);
    }
    sim_plan(&s->net, sim_uniform(&s->net, 0.1, 3), EVENT_RESTART, -1, 0, 0, NULL);
}

void sched_process_tick(sim *s)
{
    double wait = scheduler_tick(s->s, s->net.now);
    settle(s);
    sim_plan(&s->net, fmin(fmax(wait, 0.01), 0.25), EVENT_TICK, 0, 0, s->scheduler_epoch, NULL);
}
