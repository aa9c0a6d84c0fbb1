/* fault_net.c - see fault_net.h */
#include "bench/fault_net.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

void sim_net_init(sim_net *n, uint64_t seed)
{
    *n = (sim_net){.seed = seed, .now = 1000};
}

void sim_net_deinit(sim_net *n)
{
    while (n->events.n > 0)
        sim_event_free(sim_next(n));
    wait_queue_deinit(&n->events);
    free(n->conn);
}

uint64_t sim_draw(sim_net *n, uint64_t below)
{
    return rng_u64(n->seed, n->drawn++) % below;
}

double sim_uniform(sim_net *n, double low, double high)
{
    return low + (high - low) * rng_uniform(n->seed, n->drawn++);
}

bool sim_chance(sim_net *n, double share)
{
    return rng_uniform(n->seed, n->drawn++) < share;
}

static void plan_at(sim_net *n, double time, sim_event what)
{
    sim_event *e = XNEW(sim_event);
    *e = what;
    e->order = (wait_item){time, n->n_events++, 0};
    wait_queue_put(&n->events, &e->order);
}

void sim_plan(sim_net *n, double after, int kind, int a, int b, uint64_t epoch, message *m)
{
    plan_at(n, n->now + after, (sim_event){.kind = kind, .a = a, .b = b, .epoch = epoch, .m = m});
}

sim_event *sim_next(sim_net *n)
{
    wait_item *first = wait_queue_first(&n->events);
    wait_queue_remove(&n->events, first);
    n->now = first->arrival;
    return (sim_event *)first;
}

void sim_event_free(sim_event *e)
{
    message_free(e->m);
    free(e);
}

int sim_connect(sim_net *n, int peer)
{
    n->conn = xgrow(n->conn, &n->conns_cap, n->n_conns + 1, sizeof *n->conn);
    n->conn[n->n_conns] = (connection){.peer = peer, .open = {true, true}, .last = {n->now, n->now}};
    return (int)n->n_conns++;
}

void sim_send(sim_net *n, int conn, side to, message *m)
{
    connection *c = &n->conn[conn];
    double late = -log(1 - sim_uniform(n, 0, 1)) * n->delay;
    if (sim_chance(n, n->spikes))
        late += sim_uniform(n, 0.05, 1);
    c->last[to] = fmax(c->last[to], n->now + late);
    plan_at(n, c->last[to], (sim_event){.kind = EVENT_DELIVER, .a = conn, .b = (int)to, .m = m});
}

void sim_close(sim_net *n, int conn, side by)
{
    side other = by == SIDE_PEER ? SIDE_SCHEDULER : SIDE_PEER;
    if (!n->conn[conn].open[by])
        return;
    n->conn[conn].open[by] = false;
    sim_send(n, conn, other, message_new(MESSAGE_CLOSE));
}

void sim_break(sim_net *n, int conn, double peer_learns, double scheduler_learns)
{
    n->conn[conn].broken = true;
    sim_plan(n, peer_learns, EVENT_NOTICE, conn, SIDE_PEER, 0, NULL);
    sim_plan(n, scheduler_learns, EVENT_NOTICE, conn, SIDE_SCHEDULER, 0, NULL);
}

bool sim_is_heard(const sim_net *n, int conn, side by)
{
    return !n->conn[conn].broken && n->conn[conn].open[by];
}
