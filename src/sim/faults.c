/* faults.c - see faults.h */
#include "sim/faults.h"

#include <stdio.h>

#include "base/rng.h"

static const char *const names[N_FAULTS] = {"link is cut",
                                            "link goes silent",
                                            "link goes silent in one direction",
                                            "link stalls",
                                            "link is read slowly",
                                            "link garbles a bit",
                                            "process is cut off",
                                            "worker crashes",
                                            "worker is killed",
                                            "worker hangs",
                                            "worker is slow",
                                            "worker is stopped",
                                            "runner crashes",
                                            "runner is stopped",
                                            "machine is lost",
                                            "runner drains",
                                            "scheduler crashes",
                                            "scheduler is stopped",
                                            "scheduler's machine is lost",
                                            "frontend crashes",
                                            "frontend is stopped",
                                            "frontend's machine is lost",
                                            "clock jumps",
                                            "adapter is replaced",
                                            "adapter is missing",
                                            "adapter is broken",
                                            "adapter is poisoned",
                                            "adapter is back",
                                            "disk is slow",
                                            "no processes can be started",
                                            "a stranger comes",
                                            "client leaves",
                                            "client does not read"};

/* Draws the kinds of faults of a scenario: the favourite alone, in quick succession; a few; or many. Returns how many
 * kinds. */
static int draw_kinds(world *w, fault_kind favourite, fault_kind *kind, double *every)
{
    int n = 0;
    bool storm = world_chance(w, RNG_FAULTS, 0.15);
    double share = world_chance(w, RNG_FAULTS, 0.5) ? 0.15 : 0.5;
    *every = storm ? world_uniform(w, RNG_FAULTS, 0.05, 0.3) : world_uniform(w, RNG_FAULTS, 0.1, 1.5);
    kind[n++] = favourite;
    for (int i = 0; i < N_FAULTS && !storm; i++)
        if (i != (int)favourite && world_chance(w, RNG_FAULTS, share))
            kind[n++] = (fault_kind)i;
    return n;
}

void faults_draw(fault_list *l, world *w, double seconds, fault_kind favourite)
{
    fault_kind kind[N_FAULTS];
    double every, at = 0;
    int n_kinds = draw_kinds(w, favourite, kind, &every);
    l->n = 0;
    while (l->n < MOST_FAULTS) {
        if (!world_chance(w, RNG_FAULTS, 0.15)) /* else at the same time as the last one */
            at += world_uniform(w, RNG_FAULTS, 0, 2 * every);
        if (at > seconds)
            return;
        fault *f = &l->fault[l->n++];
        f->at = at;
        f->kind = kind[world_draw(w, RNG_FAULTS, (uint64_t)n_kinds)];
        f->which = world_draw(w, RNG_FAULTS, 1000);
        f->magnitude = world_uniform(w, RNG_FAULTS, 0, 1);
        if (world_chance(w, RNG_FAULTS, 0.15))
            f->kind = favourite;
    }
}

bool fault_delays(fault_kind k)
{
    return k == FAULT_LINK_STALL || k == FAULT_LINK_SLOW || k == FAULT_SCHEDULER_STOP || k == FAULT_FRONTEND_STOP;
}

void fault_print(const fault *f, char *text, size_t n)
{
    snprintf(text, n, "at %.4f s: %s (%d)", f->at, names[f->kind], (int)f->which);
}

/* Returns the process of a frontend or a runner; NULL if it is not up. */
static sim_process *some_peer(cluster *c, uint64_t which)
{
    int i = (int)(which % (uint64_t)(c->n_fronts + c->n_machines));
    sim_member *m = i < c->n_fronts ? &c->front[i].m : &c->runner[i - c->n_fronts].m;
    return m->is_up ? &m->p : NULL;
}

static void fault_in_link(const fault *f, cluster *c)
{
    sim_process *p = some_peer(c, f->which);
    if (!p)
        return;
    world_say(&c->w, "of %s", p->name);
    if (f->kind == FAULT_ISOLATION)
        sim_network_isolate(c->w.net, p, 0.5 + 7 * f->magnitude);
    else
        sim_network_cut_newest(c->w.net, p, (network_cut)(f->kind - FAULT_LINK_RESET));
}

static void fault_in_worker(const fault *f, cluster *c)
{
    runner_member *r = &c->runner[f->which % (uint64_t)c->n_machines];
    sim_worker *w = r->m.is_up ? r->machine.worker[f->which / 7 % (uint64_t)r->n_workers] : NULL;
    if (!w)
        return;
    c->n_crashes += f->kind == FAULT_WORKER_CRASH || f->kind == FAULT_WORKER_HANG;
    if (f->kind == FAULT_WORKER_CRASH)
        sim_worker_crash(w);
    else if (f->kind == FAULT_WORKER_KILLED && f->magnitude < 0.5)
        sim_worker_kill(w);
    else if (f->kind == FAULT_WORKER_KILLED)
        r->machine.kills_until = c->w.now + 5 * f->magnitude;
    else if (f->kind == FAULT_WORKER_HANG)
        sim_worker_hang(w);
    else if (f->kind == FAULT_WORKER_SLOW)
        sim_worker_slow(w, f->magnitude < 0.3 ? 1 : 3 + 30 * f->magnitude);
    else
        sim_worker_stop(w, 0.2 + 5 * f->magnitude);
}

/* Makes half of the crashes come a few acts (world.h) later, so that they fall between any two things that a process
 * does at the same time. Returns whether this is one of them. */
static bool crashes_later(const fault *f, sim_member *m)
{
    if (f->magnitude < 0.5)
        return false;
    cluster_crash_after(m, 1 + (int)(f->which % 12));
    return true;
}

static void fault_in_machine(const fault *f, cluster *c)
{
    int i = (int)(f->which % (uint64_t)c->n_machines);
    if (f->kind == FAULT_RUNNER_CRASH && crashes_later(f, &c->runner[i].m))
        return;
    if (f->kind == FAULT_DRAIN)
        cluster_drain(c, i);
    else if (f->kind == FAULT_RUNNER_STOP)
        sim_process_stop(&c->runner[i].m.p, 0.2 + 7 * f->magnitude);
    else
        cluster_crash_machine(c, i, f->kind == FAULT_MACHINE_LOST);
}

static void fault_in_scheduler(const fault *f, cluster *c)
{
    if (f->kind == FAULT_SCHEDULER_CRASH && crashes_later(f, &c->sched.m))
        return;
    if (f->kind == FAULT_SCHEDULER_STOP)
        sim_process_stop(&c->sched.m.p, 0.2 + 7 * f->magnitude);
    else
        cluster_crash_scheduler(c, f->kind == FAULT_SCHEDULER_LOST);
}

static void fault_in_frontend(const fault *f, cluster *c)
{
    int i = (int)(f->which % (uint64_t)c->n_fronts);
    if (f->kind == FAULT_FRONTEND_CRASH && crashes_later(f, &c->front[i].m))
        return;
    if (f->kind == FAULT_FRONTEND_STOP)
        sim_process_stop(&c->front[i].m.p, 0.2 + 7 * f->magnitude);
    else
        cluster_crash_front(c, i, f->kind == FAULT_FRONTEND_LOST);
}

static void jump_clock(const fault *f, cluster *c)
{
    sim_process *p = f->which % 2 == 0 ? &c->sched.m.p : some_peer(c, f->which);
    if (p)
        p->skew += 7200 * (f->magnitude - 0.5);
}

/* Puts an adapter's newest content, sometimes a new one, on one disk, of a machine or a frontend. */
static void replace_adapter(const fault *f, cluster *c, int adapter)
{
    int host = (int)(f->which % (uint64_t)(c->n_machines + c->n_fronts));
    c->replaced[adapter] = true;
    if (f->magnitude < 0.5)
        c->newest[adapter] = rng_u64(c->newest[adapter], f->which) | 1;
    if (host >= c->n_machines) {
        cluster_set_content(c, host - c->n_machines, adapter, c->newest[adapter]);
        return;
    }
    c->runner[host].machine.disk[adapter].content = c->newest[adapter];
    cluster_set_file(c, host, adapter, FILE_FINE);
}

static void fault_in_adapter(const fault *f, cluster *c)
{
    static const file_state state_of[] = {FILE_MISSING, FILE_BROKEN, FILE_POISONED, FILE_FINE}; /* by fault_kind */
    int adapter = (int)(f->which / 5 % N_ADAPTERS), machine = (int)(f->which % (uint64_t)c->n_machines);
    world_say(&c->w, "%s", sim_adapter_name(adapter));
    if (f->kind == FAULT_ADAPTER_REPLACED)
        replace_adapter(f, c, adapter);
    else
        cluster_set_file(c, machine, adapter, state_of[f->kind - FAULT_ADAPTER_MISSING]);
}

static void fault_in_client(const fault *f, cluster *c)
{
    client *q = &c->client[f->which % (uint64_t)c->n_clients];
    if (q->state == CLIENT_LIVE)
        AS_PROCESS(&c->front[q->frontend].m.p,
                   client_leave(q, f->kind == FAULT_CLIENT_LEAVES ? CLIENT_LEFT : CLIENT_DOES_NOT_READ));
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
        c->runner[f->which % (uint64_t)c->n_machines].machine.disk_slow = f->magnitude < 0.4 ? 1 : 10 * f->magnitude;
    else if (f->kind == FAULT_NO_PROCESSES)
        c->runner[f->which % (uint64_t)c->n_machines].machine.starts_fail_until = c->w.now + 5 * f->magnitude;
    else if (f->kind == FAULT_STRANGER)
        cluster_have_stranger(c, (stranger_kind)(f->which % N_STRANGERS), 0.1 + 5 * f->magnitude);
    else
        fault_in_client(f, c);
}
