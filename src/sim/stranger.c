/* stranger.c - see stranger.h */
#include "sim/stranger.h"

#include "sim/network.h"

/* A runner of another model may be let in as long as no frontend has said which model is served. */
static void on_up(void *ctx, net_link *l, const Hello *hello)
{
    (void)l, (void)hello;
    stranger *s = ctx;
    if (s->kind != STRANGER_OTHER_MODEL)
        world_violate(s->p.in, "a stranger has been let in");
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    (void)l, (void)m;
    world_violate(((stranger *)ctx)->p.in, "a stranger is told something");
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    (void)ctx, (void)l, (void)why;
}

static void leave(void *ctx)
{
    stranger_leave(ctx);
}

void stranger_connect(stranger *s, world *w, const char *address, const link_options *like, stranger_kind kind,
                      double seconds)
{
    if (s->link)
        return;
    static const credentials guess = {.secret = {"a guess"}};
    link_options o = *like;
    const link_events events = {on_up, on_message, on_down, s};
    err e;
    sim_process_init(&s->p, w, STRANGER, 0);
    s->kind = kind;
    s->leaving = (sim_task){.run = leave, .ctx = s};
    o.name = STRANGER;
    o.own = kind == STRANGER_OTHER_SECRET ? &guess : o.own;
    o.model = kind == STRANGER_OTHER_MODEL ? "another" : "toy";
    o.role = kind == STRANGER_SCHEDULER ? HELLO__ROLE__SCHEDULER : HELLO__ROLE__RUNNER;
    s->link = link_connect(&s->p.base, address, &o, &events, &e);
    CHECK(s->link);
    world_plan(w, &s->leaving, seconds);
}

void stranger_leave(stranger *s)
{
    if (!s->link)
        return;
    world_cancel(s->p.in, &s->leaving);
    s->p.dead = true;
    sim_network_process_died(s->p.in->net, &s->p, false);
    link_free(s->link);
    s->link = NULL;
}
