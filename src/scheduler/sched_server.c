/* sched_server.c - see sched_server.h
 *
 * A message is one event of the scheduler; the commands it answers with are packed as they come, each into the outbox
 * of the frontend or GPU it is for (outbox.h), and sent when the event is over. sched_server_state.h says which part of
 * the server has what. */
#include "scheduler/sched_server.h"

#include <stdlib.h>

#include "base/mem.h"
#include "net/pack.h"
#include "scheduler/sched_frontends.h"
#include "scheduler/sched_gpus.h"
#include "scheduler/sched_peers.h"
#include "scheduler/signals.h"

static const double LONGEST_TICK = 0.25; /* seconds; also what scale_hook_advise() and sched_gpus_watch() rely on */

sched_server_options sched_server_options_default(void)
{
    sched_server_options o = {
        .listen = "127.0.0.1:7000", .link = link_options_default(), .policy = scheduler_options_default()};
    o.link.max_message /= 4;
    return o;
}

static void pack_for_gpu(sched_server *v, const command *c)
{
    Command out = COMMAND__INIT;
    Request add;
    Cancel cancel;
    if (c->kind == COMMAND_ADD) {
        add = sched_wire_add(c);
        out.what_case = COMMAND__WHAT_ADD;
        out.add = &add;
    } else {
        cancel = sched_wire_cancel(c);
        out.what_case = COMMAND__WHAT_CANCEL;
        out.cancel = &cancel;
    }
    outboxes_pack(&v->out, v->out.gpus.at[c->gpu], COMMANDS_COMMANDS, &out.base);
}

static void pack_for_frontend(sched_server *v, const command *c)
{
    outbox *to = v->out.frontends.at[c->frontend];
    if (c->kind == COMMAND_TOKENS) {
        Tokens tokens = sched_wire_tokens(c);
        outboxes_pack(&v->out, to, RESULTS_TOKENS, &tokens.base);
    } else {
        End end = sched_wire_end(c);
        outboxes_pack(&v->out, to, RESULTS_ENDS, &end.base);
    }
}

static void on_command(void *ctx, const command *c)
{
    switch (c->kind) {
    case COMMAND_ADD:
    case COMMAND_CANCEL: pack_for_gpu(ctx, c); return;
    case COMMAND_TOKENS:
    case COMMAND_END: pack_for_frontend(ctx, c); return;
    }
}

static void link_is_up(void *ctx, net_link *l, const Hello *hello)
{
    sched_peers_admit(ctx, l, hello);
}

static void link_is_down(void *ctx, net_link *l, const char *why)
{
    (void)ctx;
    (void)why;
    sched_peer *p = link_data(l);
    if (p)
        sched_peer_free(p);
}

static void link_message(void *ctx, net_link *l, const Message *m)
{
    sched_server *v = ctx;
    sched_peer *p = link_data(l);
    if (!p)
        return; /* it is being dropped */
    if (p->frontend >= 0)
        sched_frontend_message(p, m);
    else
        sched_runner_message(p, m);
    outboxes_flush(&v->out);
}

/* Tells the hook how the cluster's size should change. */
static void advise_hook(sched_server *v)
{
    buf_clear(&v->advice);
    buf_add(&v->advice, "", 0);
    signals_write_advice(&v->advice, v->policy, (int)v->out.gpus.n);
    scale_hook_advise(v->hook, sched_server_now(v), v->advice.data);
}

static void tick(void *ctx)
{
    sched_server *v = ctx;
    double wait = scheduler_tick(v->policy, sched_server_now(v));
    sched_gpus_watch(v);
    outboxes_flush(&v->out);
    sched_frontends_tell_cluster(v);
    if (v->hook)
        advise_hook(v);
    loop_timer_set(v->tick, wait < LONGEST_TICK ? wait : LONGEST_TICK);
}

static int start_links(sched_server *v, const sched_server_options *o, err *e)
{
    link_options l = o->link;
    l.role = HELLO__ROLE__SCHEDULER;
    l.model = NULL;
    link_events events = {link_is_up, link_message, link_is_down, v};
    v->listener = link_listen(v->on, o->listen, &l, &events, e);
    return v->listener ? 0 : -1;
}

sched_server *sched_server_new(net_loop *on, const sched_server_options *o, err *e)
{
    sched_server *v = XNEW(sched_server);
    *v = (sched_server){.on = on, .model = xstrdup(""), .hook = o->hook, .epoch = loop_wall(on) - loop_now(on)};
    v->policy = scheduler_new(&o->policy, on_command, v);
    v->pace = pace_new();
    if (o->tap)
        scheduler_set_tap(v->policy, o->tap);
    v->tick = loop_timer_new(on, tick, v);
    if (start_links(v, o, e)) {
        sched_server_free(v);
        return NULL;
    }
    loop_timer_set(v->tick, 0);
    return v;
}

void sched_server_free(sched_server *v)
{
    if (!v)
        return;
    while (v->peers)
        sched_peer_free(v->peers);
    link_listener_free(v->listener);
    loop_timer_free(v->tick);
    scheduler_free(v->policy);
    pace_free(v->pace);
    outboxes_deinit(&v->out);
    step_scratch_deinit(&v->scratch);
    buf_free(&v->advice);
    free(v->model);
    free(v);
}

const char *sched_server_address(const sched_server *v)
{
    return link_listener_address(v->listener);
}

scheduler_stats sched_server_stats(const sched_server *v)
{
    return scheduler_get_stats(v->policy);
}

void sched_server_check(const sched_server *v)
{
    scheduler_check(v->policy);
}

void sched_server_write_metrics(const sched_server *v, buf *out)
{
    signals_write_metrics(out, v->policy, (int)v->out.gpus.n, sched_peers_count_frontends(v));
}

void sched_server_write_signals(const sched_server *v, buf *out)
{
    signals_write_json(out, v->policy, (int)v->out.gpus.n, sched_peers_count_frontends(v));
}
