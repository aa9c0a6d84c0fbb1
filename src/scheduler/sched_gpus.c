/* sched_gpus.c - see sched_gpus.h */
#include "scheduler/sched_gpus.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "scheduler/sched_frontends.h"
#include "scheduler/sched_peers.h"

static const double PROBE_EVERY = 1; /* seconds between probes of a slow GPU */

/* Returns a runner's GPU by the runner's number for it, or NULL if it is not ready. */
static runner_gpu *ready_gpu(const sched_peer *p, uint32_t local)
{
    return local < p->n_gpus && p->gpu[local].out ? &p->gpu[local] : NULL;
}

static void lose_gpu(sched_peer *p, uint32_t local, gpu_loss how)
{
    runner_gpu *g = ready_gpu(p, local);
    if (!g)
        return;
    sched_server *v = p->server;
    pace_gpu_gone(v->pace, g->out->number);
    scheduler_gpu_gone(v->policy, sched_server_now(v), g->out->number, how);
    outbox_release(g->out);
    g->out = NULL;
}

/* Returns the numbers of a runner's GPUs that are ready, [*n]; owned by the caller. */
static int *numbers_of_gpus(const sched_peer *p, int *n)
{
    int *number = XNEW_ARRAY(int, p->n_gpus + 1);
    *n = 0;
    for (size_t i = 0; i < p->n_gpus; i++)
        if (p->gpu[i].out)
            number[(*n)++] = p->gpu[i].out->number;
    return number;
}

void sched_gpus_lose_all(sched_peer *p)
{
    sched_server *v = p->server;
    int n, *gone = numbers_of_gpus(p, &n);
    scheduler_gpus_gone(v->policy, sched_server_now(v), gone, n);
    for (int i = 0; i < n; i++) {
        pace_gpu_gone(v->pace, gone[i]);
        outbox_release(v->out.gpus.at[gone[i]]);
    }
    free(gone);
}

/* Probes a GPU: its worker makes a few tokens that belong to no request. A probe is not counted among its commands. */
static void probe(sched_server *v, runner_gpu *g)
{
    Commands c = COMMANDS__INIT;
    c.gpu = g->out->local;
    c.start = g->out->start;
    c.probe = true;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_COMMANDS;
    m.commands = &c;
    g->probed = sched_server_now(v);
    link_send(g->out->to, &m);
}

/* Returns a runner's GPU by the runner's number, ready or not; adds it if it is new. */
static runner_gpu *add_gpu(sched_peer *p, uint32_t local)
{
    p->gpu = xgrow(p->gpu, &p->gpus_cap, (size_t)local + 1, sizeof *p->gpu);
    while (p->n_gpus <= local)
        p->gpu[p->n_gpus++] = (runner_gpu){0};
    return &p->gpu[local];
}

static void log_ready(const sched_peer *p, const gpu_info *info)
{
    /* Within one process the runner has said it already. */
    log_line(link_is_within(p->link) && !info->on_probation ? LOG_DEBUG : LOG_INFO, "GPU %s (%s) of %s is ready%s",
             info->uuid, info->device, link_peer(p->link),
             info->on_probation ? "; as its last worker crashed, it is tried out first" : "");
}

static void on_gpu_up(sched_peer *p, const GpuUp *up)
{
    sched_server *v = p->server;
    gpu_info info;
    if (!sched_wire_read_gpu(up, &info)) {
        link_drop(p->link, "a GPU that cannot be: its numbers make no sense");
        return;
    }
    lose_gpu(p, up->gpu, LOSS_LINK);
    runner_gpu *g = add_gpu(p, up->gpu);
    g->out = outboxes_add_gpu(&v->out, p->link, up->gpu, up->start);
    info.on_probation = g->crashed;
    log_ready(p, &info);
    int number = g->out->number;
    pace_gpu_up(v->pace, sched_server_now(v), number, up->device, info.on_probation);
    scheduler_gpu_up(v->policy, sched_server_now(v), number, &info);
    probe(v, g);
    if (p->draining)
        scheduler_gpus_drain(v->policy, sched_server_now(v), &number, 1);
}

/* Loses a GPU. One whose worker crashed is on probation when it is back: if it is broken, it must not take one request
 * after the other with it. */
static void on_gpu_gone(sched_peer *p, const GpuGone *gone)
{
    if (gone->gpu < p->n_gpus && gone->died && !gone->from_outside)
        p->gpu[gone->gpu].crashed = true;
    log_warn("GPU %u of %s is gone: %s", gone->gpu, link_peer(p->link), gone->message);
    lose_gpu(p, gone->gpu, !gone->died ? LOSS_LINK : gone->from_outside ? LOSS_KILLED : LOSS_CRASH);
}

static void on_drain(sched_peer *p)
{
    log_info("%s drains", link_peer(p->link));
    p->draining = true;
    int n, *number = numbers_of_gpus(p, &n);
    scheduler_gpus_drain(p->server->policy, sched_server_now(p->server), number, n);
    free(number);
}

static void log_pace(const sched_server *v, int gpu, bool slow)
{
    gpu_state g = {.uuid = ""};
    pace_times last = pace_last(v->pace, gpu);
    scheduler_get_gpu(v->policy, gpu, &g);
    if (slow)
        log_warn(
            "GPU %s is slow: a step takes %.3g s, where %.2g s are usual; it gets nothing new while others are open",
            g.uuid, last.took, last.usual);
    else
        log_info("GPU %s is as fast as it should be again: a step takes %.3g s", g.uuid, last.took);
}

/* Tells the scheduler when a GPU has become slow, or is well again. */
static void on_pace(sched_server *v, runner_gpu *g, pace_news news)
{
    if (news == PACE_SAME)
        return;
    int number = g->out->number;
    log_pace(v, number, news == PACE_SLOW);
    if (news == PACE_WELL)
        g->crashed = false;
    scheduler_gpu_pace(v->policy, sched_server_now(v), number, news == PACE_SLOW);
}

static void on_step(sched_peer *p, const Step *step)
{
    sched_server *v = p->server;
    runner_gpu *g = ready_gpu(p, step->gpu);
    if (!g)
        return;
    gpu_report r;
    int number = g->out->number;
    if (step->residents)
        sched_frontends_tell_residents(v, number, step->residents);
    if (!sched_wire_read_step(step, &v->scratch, &r) || !scheduler_report(v->policy, sched_server_now(v), number, &r)) {
        sched_peer_drop(p, "it reported tokens, ends or commands that cannot be");
        return;
    }
    double seconds = step->micros ? (double)step->micros * 1e-6 : -1;
    on_pace(v, g,
            pace_step(v->pace, sched_server_now(v), number, step->rows, (int64_t)step->context, seconds,
                      step->n_requests > 0));
}

void sched_runner_message(sched_peer *p, const Message *m)
{
    switch (m->what_case) {
    case MESSAGE__WHAT_STEP: on_step(p, m->step); return;
    case MESSAGE__WHAT_GPU_UP: on_gpu_up(p, m->gpu_up); return;
    case MESSAGE__WHAT_GPU_GONE: on_gpu_gone(p, m->gpu_gone); return;
    case MESSAGE__WHAT_DRAIN: on_drain(p); return;
    default: link_drop(p->link, "a runner does not send this");
    }
}

void sched_gpus_watch(sched_server *v)
{
    gpu_state state;
    for (size_t i = 0; i < v->out.gpus.n; i++) {
        const outbox *o = v->out.gpus.at[i];
        if (!o->to)
            continue;
        sched_peer *p = link_data(o->to);
        runner_gpu *g = &p->gpu[o->local];
        on_pace(v, g, pace_look(v->pace, sched_server_now(v), o->number));
        if (pace_is_slow(v->pace, o->number) && sched_server_now(v) - g->probed >= PROBE_EVERY &&
            scheduler_get_gpu(v->policy, o->number, &state) && state.n_running == 0)
            probe(v, g);
    }
}
