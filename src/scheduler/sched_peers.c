/* sched_peers.c - see sched_peers.h */
#include "scheduler/sched_peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/sched_gpus.h"

void sched_peer_free(sched_peer *p)
{
    sched_server *v = p->server;
    sched_gpus_lose_all(p);
    if (p->frontend >= 0) {
        scheduler_frontend_gone(v->policy, sched_server_now(v), p->frontend);
        outbox_release(v->out.frontends.at[p->frontend]);
    }
    if (p->prev)
        p->prev->next = p->next;
    else
        v->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
    link_set_data(p->link, NULL);
    free(p->model);
    free(p->gpu);
    free(p);
    outboxes_flush(&v->out);
}

void sched_peer_drop(sched_peer *p, const char *why)
{
    net_link *l = p->link;
    sched_peer_free(p);
    link_drop(l, why);
}

static void replace_older(sched_server *v, uint64_t instance)
{
    for (sched_peer *p = v->peers, *next; p; p = next) {
        next = p->next;
        if (p->instance == instance)
            sched_peer_drop(p, "replaced by a newer link of the same process");
    }
}

int sched_peers_count_frontends(const sched_server *v)
{
    int n = 0;
    for (const sched_peer *p = v->peers; p; p = p->next)
        n += p->frontend >= 0;
    return n;
}

static bool fits(const sched_server *v, const char *model)
{
    return !*model || !*v->model || strcmp(model, v->model) == 0;
}

/* Returns why a model does not fit, in words; owned by the caller. */
static char *misfit(const sched_server *v, const char *model)
{
    return xasprintf("its model is %.50s, but this cluster serves %.50s", model, v->model);
}

/* Sets the cluster's model to that of its first frontend, and drops runners that came before it with another one. */
static void decide_model(sched_server *v, const char *model)
{
    free(v->model);
    v->model = xstrdup(model);
    for (sched_peer *p = v->peers, *next; p; p = next) {
        next = p->next;
        if (fits(v, p->model))
            continue;
        char *why = misfit(v, p->model);
        sched_peer_drop(p, why);
        free(why);
    }
}

/* Returns whether the peer's model fits the cluster's; if not, drops its link. */
static bool check_model(sched_server *v, net_link *l, const Hello *hello)
{
    if (hello->role == HELLO__ROLE__FRONTEND && *hello->model && sched_peers_count_frontends(v) == 0)
        decide_model(v, hello->model);
    if (fits(v, hello->model))
        return true;
    char *why = misfit(v, hello->model);
    link_drop(l, why);
    free(why);
    return false;
}

void sched_peers_admit(sched_server *v, net_link *l, const Hello *hello)
{
    replace_older(v, hello->instance);
    if (hello->role == HELLO__ROLE__SCHEDULER) {
        link_drop(l, "two schedulers have nothing to say to each other");
        return;
    }
    if (!check_model(v, l, hello))
        return;
    sched_peer *p = XNEW(sched_peer);
    *p = (sched_peer){.server = v,
                      .link = l,
                      .instance = hello->instance,
                      .model = xstrdup(hello->model),
                      .frontend = -1,
                      .n_gpus_told = -1,
                      .next = v->peers};
    if (p->next)
        p->next->prev = p;
    v->peers = p;
    link_set_data(l, p);
    if (hello->role == HELLO__ROLE__FRONTEND) {
        p->frontend = outboxes_add_frontend(&v->out, l)->number;
        scheduler_frontend_up(v->policy, p->frontend);
    }
}
