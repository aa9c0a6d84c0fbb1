/* faults.c - see faults.h */
#include "sim/faults.h"

#include <stdio.h>

#include "base/rng.h"

static const char *const names[N_FAULTS] = {
    "link is cut", "link goes silent", "link goes silent in one direction", "link stalls", "link is read slowly", "process is cut off",
    "worker crashes", "worker hangs", "worker is slow", "worker is stopped", "runner crashes", "runner is stopped", "machine is lost",
    "runner drains", "scheduler crashes", "scheduler is stopped", "scheduler's machine is lost", "frontend crashes", "frontend is stopped",
    "frontend's machine is lost", "clock jumps", "adapter is replaced", "adapter is missing", "adapter is broken",
    "adapter is poisoned", "adapter is back",
    "disk is slow", "no processes can be started", "a stranger comes", "client leaves", "client does not read"};

void faults_draw(fault_list *l, world *w, double seconds, fault_kind favourite)
{
    bool enabled[N_FAULTS];
    double every = world_uniform(w, CHANCE_FAULTS, 0.04, 0.8), at = 0;
    double share = world_chance(w, CHANCE_FAULTS, 0.5) ? 0.15 : 0.5;     /* a few kinds, or many */
    for (int i = 0; i < N_FAULTS; i++)
        enabled[i] = world_chance(w, CHANCE_FAULTS, share);
    enabled[favourite] = true;
    l->n = 0;
    while (l->n < MOST_FAULTS) {
        if (!world_chance(w, CHANCE_FAULTS, 0.15))      /* else: at the same time as the one before */
            at += world_uniform(w, CHANCE_FAULTS, 0, 2 * every);
        if (at > seconds)
            return;
        fault f = {.at = at};
        f.kind = (fault_kind)world_draw(w, CHANCE_FAULTS, N_FAULTS);
        f.which = world_draw(w, CHANCE_FAULTS, 1000);
        f.much = world_uniform(w, CHANCE_FAULTS, 0, 1);
        if (world_chance(w, CHANCE_FAULTS, 0.15))
            f.kind = favourite;
        if (enabled[f.kind])
            l->fault[l->n++] = f;
    }
}

void fault_print(const fault *f, char *text, size_t n)
{
    snprintf(text, n, "at %.4f s: %s (%d)", f->at, names[f->kind], (int)f->which);
}

/* A frontend's process, or a runner's; NULL if it is not up. */
static sim_process *some_peer(cluster *c, uint64_t which)
{
    int i = (int)(which % (uint64_t)(c->n_fronts + c->n_machines));
    member *m = i < c->n_fronts ? &c->front[i].m : &c->run[i - c->n_fronts].m;
    return m->is_up ? &m->p : NULL;
}

static void fault_in_link(const fault *f, cluster *c)
{
    sim_process *p = some_peer(c, f->which);
    if (!p)
        return;
    world_say(&c->w, "of %s", p->name);
    if (f->kind == FAULT_ISOLATION)
        network_isolate(c->w.net, p, 0.5 + 7 * f->much);
    else
        network_cut_newest(c->w.net, p, (network_cut)(f->kind - FAULT_LINK_RESET));
}

static void fault_in_worker(const fault *f, cluster *c)
{
    run_member *r = &c->run[f->which % (uint64_t)c->n_machines];
    sim_worker *w = r->m.is_up ? r->machine.worker[f->which / 7 % (uint64_t)r->n_workers] : NULL;
    if (!w)
        return;
    if (f->kind == FAULT_WORKER_CRASH)
        sim_worker_crash(w);
    else if (f->kind == FAULT_WORKER_HANG)
        sim_worker_hang(w);
    else if (f->kind == FAULT_WORKER_SLOW)
        sim_worker_slow(w, f->much < 0.3 ? 1 : 3 + 30 * f->much);
    else
        sim_worker_stop(w, 0.2 + 5 * f->much);
}

static void fault_in_machine(const fault *f, cluster *c)
{
    int i = (int)(f->which % (uint64_t)c->n_machines);
    if (f->kind == FAULT_DRAIN)
        cluster_drain(c, i);
    else if (f->kind == FAULT_RUNNER_STOP)
        sim_process_stop(&c->run[i].m.p, 0.2 + 7 * f->much);
    else
        cluster_crash_machine(c, i, f->kind == FAULT_MACHINE_LOST);
}

static void fault_in_scheduler(const fault *f, cluster *c)
{
    if (f->kind == FAULT_SCHEDULER_STOP)
        sim_process_stop(&c->sched.m.p, 0.2 + 7 * f->much);
    else
        cluster_crash_scheduler(c, f->kind == FAULT_SCHEDULER_LOST);
}

static void fault_in_frontend(const fault *f, cluster *c)
{
    int i = (int)(f->which % (uint64_t)c->n_fronts);
    if (f->kind == FAULT_FRONTEND_STOP)
        sim_process_stop(&c->front[i].m.p, 0.2 + 7 * f->much);
    else
        cluster_crash_front(c, i, f->kind == FAULT_FRONTEND_LOST);
}

static void jump_clock(const fault *f, cluster *c)
{
    sim_process *p = f->which % 2 == 0 ? &c->sched.m.p : some_peer(c, f->which);
    if (p)
        p->skew += 7200 * (f->much - 0.5);
}

/* The new content is on this disk now, on others when they are told so too. */
static void replace_adapter(const fault *f, cluster *c, int machine, int adapter)
{
    adapter_history *h = &c->history;
    if (f->much < 0.5 && h->n_versions[adapter] < MOST_VERSIONS) {
        h->content[adapter][h->n_versions[adapter]] = rng_u64(c->w.seed, 1000 + f->which * 10 + (uint64_t)h->n_versions[adapter]);
        h->n_versions[adapter]++;
    }
    c->run[machine].machine.disk[adapter].content = h->content[adapter][h->n_versions[adapter] - 1];
    cluster_set_file(c, machine, adapter, FILE_FINE);
}

static void fault_in_adapter(const fault *f, cluster *c)
{
    static const file_state state_of[] = {FILE_MISSING, FILE_BROKEN, FILE_POISONED, FILE_FINE};         /* as the faults */
    int adapter = (int)(f->which / 5 % N_ADAPTERS), machine = (int)(f->which % (uint64_t)c->n_machines);
    world_say(&c->w, "%s on machine %d", sim_adapter_name(adapter), machine);
    if (f->kind == FAULT_ADAPTER_REPLACED)
        replace_adapter(f, c, machine, adapter);
    else
        cluster_set_file(c, machine, adapter, state_of[f->kind - FAULT_ADAPTER_MISSING]);
}

static void fault_in_client(const fault *f, cluster *c)
{
    client *q = &c->client[f->which % (uint64_t)c->n_clients];
    if (q->state == CLIENT_LIVE)
        AS_PROCESS(&c->front[q->frontend].m.p, client_leave(q, f->kind == FAULT_CLIENT_LEAVES ? CLIENT_LEFT : CLIENT_DOES_NOT_READ));
}

void fault_inject(const fault *f, cluster *c)
{
    world_say(&c->w, "FAULT: %s", names[f->kind]);
    if (f->kind <= FAULT_ISOLATION)
        fault_in_link(f, c);
    else if (f->kind <= FAULT_WORKER_STOP)
        fault_in_worker(f, c);
    else if (f->kind <= FAULT_DRAIN)
        fault_in_machine(f, c);
    else if (f->kind <= FAULT_SCHEDULER_LOST)
        fault_in_scheduler(f, c);
    else if (f->kind <= FAULT_FRONTEND_LOST)
        fault_in_frontend(f, c);
    else if (f->kind == FAULT_CLOCK)
        jump_clock(f, c);
    else if (f->kind <= FAULT_ADAPTER_BACK)
        fault_in_adapter(f, c);
    else if (f->kind == FAULT_DISK_SLOW)
        c->run[f->which % (uint64_t)c->n_machines].machine.disk_slow = f->much < 0.4 ? 1 : 10 * f->much;
    else if (f->kind == FAULT_NO_PROCESSES)
        c->run[f->which % (uint64_t)c->n_machines].machine.starts_fail_until = c->w.now + 5 * f->much;
    else if (f->kind == FAULT_STRANGER)
        cluster_have_stranger(c, (stranger_kind)(f->which % N_STRANGERS), 0.1 + 5 * f->much);
    else
        fault_in_client(f, c);
}
