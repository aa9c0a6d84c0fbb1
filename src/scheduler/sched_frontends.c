/* sched_frontends.c - see sched_frontends.h */
#include "scheduler/sched_frontends.h"

#include <limits.h>

static const double OLDEST = 1e6; /* seconds; a larger age is wrong, and taken for 0 */

/* Returns when a request first came, by our own clock: never after now, whatever its frontend says. */
static double arrival_of(const sched_server *v, double age)
{
    return sched_server_now(v) - (age > 0 && age < OLDEST ? age : 0);
}

static void on_submit(sched_peer *p, const Request *r)
{
    sched_server *v = p->server;
    submission what;
    if (sched_wire_read_submit(r, arrival_of(v, r->age), &what))
        scheduler_submit(v->policy, sched_server_now(v), p->frontend, &what);
    else
        link_drop(p->link, "a request with more tokens than can be counted");
}

void sched_frontend_message(sched_peer *p, const Message *m)
{
    if (m->what_case == MESSAGE__WHAT_SUBMIT)
        on_submit(p, m->submit);
    else if (m->what_case == MESSAGE__WHAT_CANCEL)
        scheduler_cancel(p->server->policy, sched_server_now(p->server), p->frontend, m->cancel->id);
    else
        link_drop(p->link, "a frontend does not send this");
}

void sched_frontends_tell_cluster(sched_server *v)
{
    int n = scheduler_n_open(v->policy);
    int64_t capacity = scheduler_capacity(v->policy);
    Cluster cluster = CLUSTER__INIT;
    cluster.n_gpus = (uint32_t)n;
    cluster.max_tokens = capacity < INT_MAX ? (uint32_t)capacity : INT_MAX;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_CLUSTER;
    m.cluster = &cluster;
    for (sched_peer *p = v->peers; p; p = p->next) {
        if (p->frontend >= 0 && (p->n_gpus_told != n || p->capacity_told != capacity))
            link_send(p->link, &m);
        p->n_gpus_told = n;
        p->capacity_told = capacity;
    }
}

void sched_frontends_tell_residents(sched_server *v, int gpu, const Residents *r)
{
    gpu_state g = {.uuid = ""};
    Residents of_gpu = *r;
    Message m = MESSAGE__INIT;
    scheduler_get_gpu(v->policy, gpu, &g);
    of_gpu.gpu = (char *)g.uuid;
    m.what_case = MESSAGE__WHAT_RESIDENTS;
    m.residents = &of_gpu;
    for (const sched_peer *p = v->peers; p; p = p->next)
        if (p->frontend >= 0)
            link_send(p->link, &m);
}
