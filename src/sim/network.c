/* network.c - see network.h
 *
 * A connection has two ends. What an end writes lies in its `out` until a delivery takes some of it to the other end's
 * `in`. One delivery is planned at a time for each direction, so bytes stay in order. An end that is closed goes on
 * delivering what it had written; then the other end learns of the close. */
#include "sim/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { SLOW_BUFFER = 200, SLOW_PIECE = 40, MOST_SINGLE_BYTES = 150, SMALL_PIECE = 60 };
static const double SLOW_EVERY = 0.02;

typedef struct connection connection;

typedef struct {
    net_stream base; /* first */
    connection *of;
    int side;        /* 0: dialed, 1: accepted */
    sim_process *at; /* borrowed; NULL: the end does not exist yet, or has been freed */
    buf in, out;
    sim_task delivery; /* of what it wrote */
    sim_task loss;     /* when it learns that the connection is gone */
    const char *why;   /* static; of a loss that is planned; NULL: none is */
    bool lost;         /* it has learnt of it */
    bool finishing;    /* what arrives is dropped */
    bool closes;       /* it is closed: the other end learns of that when out is empty */
    bool mute;         /* what it writes goes nowhere */
    bool noisy;        /* a bit of its next delivery is flipped */
    bool unacked;      /* mute, and what it writes stays in out, as nobody acknowledges it */
    bool owner_died;   /* its process has died, and out was truncated already */
} end;

struct connection {
    sim_network *in; /* borrowed */
    end end[2];
    sim_task opening; /* the dialed end's way to the acceptor and back */
    int stage;        /* of opening: 0 dialed, 1 accepted, 2 open */
    char to[32];
    bool choppy;
    int n_single; /* deliveries of one byte so far */
    double stalled_until, slow_until;
    int slow_side; /* who reads slowly */
    connection *prev, *next;
};

typedef struct sim_acceptor {
    acceptor base;   /* first */
    sim_process *at; /* borrowed */
    acceptor_events events;
    struct sim_acceptor *next;
} sim_acceptor;

typedef struct {
    dialer base;     /* first */
    sim_process *at; /* borrowed */
    char to[32];
} sim_dialer;

typedef struct isolation {
    const sim_process *p;
    double until;
} isolation;

struct sim_network {
    world *w; /* borrowed */
    sim_network_conditions conditions;
    connection *all; /* newest first */
    sim_acceptor *acceptors;
    isolation isolated[16];
};

sim_network *sim_network_new(world *w)
{
    sim_network *n = XNEW(sim_network);
    n->w = w;
    return n;
}

void sim_network_set_conditions(sim_network *n, const sim_network_conditions *conditions)
{
    n->conditions = *conditions;
}

void sim_network_stop_noise(sim_network *n)
{
    n->conditions.noise = 0;
}

static bool is_isolated(const sim_network *n, const sim_process *p)
{
    for (size_t i = 0; i < sizeof n->isolated / sizeof *n->isolated; i++)
        if (n->isolated[i].p == p && n->isolated[i].until > n->w->now)
            return true;
    return false;
}

static double some_delay(sim_network *n)
{
    double late = -log(1 - world_uniform(n->w, RNG_NETWORK, 0, 1)) * n->conditions.delay;
    return world_chance(n->w, RNG_NETWORK, n->conditions.spikes) ? late + world_uniform(n->w, RNG_NETWORK, 0.05, 1)
                                                                 : late;
}

static void connection_free(connection *c)
{
    world *w = c->in->w;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->in->all = c->next;
    if (c->next)
        c->next->prev = c->prev;
    world_cancel(w, &c->opening);
    for (int i = 0; i < 2; i++) {
        world_cancel(w, &c->end[i].delivery);
        world_cancel(w, &c->end[i].loss);
        buf_free(&c->end[i].in);
        buf_free(&c->end[i].out);
    }
    free(c);
}

void sim_network_free(sim_network *n)
{
    while (n->all)
        connection_free(n->all);
    CHECK(!n->acceptors);
    free(n);
}

static end *other(end *e)
{
    return &e->of->end[!e->side];
}

/* Frees a connection if both ends are freed, and nothing is under way. */
static void free_if_over(connection *c)
{
    bool busy =
        c->end[0].at || c->end[1].at || c->end[0].delivery.planned || c->end[1].delivery.planned || c->opening.planned;
    if (!busy)
        connection_free(c);
}

static void plan_delivery(end *e)
{
    sim_network *n = e->of->in;
    double stall = e->of->stalled_until - n->w->now,
           slow = e->of->slow_until > n->w->now && e->of->slow_side != e->side ? SLOW_EVERY : 0;
    world_plan(n->w, &e->delivery, fmax(fmax(some_delay(n), slow), stall));
}

/* Returns how many bytes of `out` arrive now. */
static size_t piece_of(end *e)
{
    connection *c = e->of;
    world *w = c->in->w;
    size_t most = e->out.len;
    if (c->slow_until > w->now && c->slow_side != e->side)
        most = SLOW_PIECE;
    else if (c->choppy && c->n_single < MOST_SINGLE_BYTES && world_chance(w, RNG_NETWORK, 0.5)) {
        c->n_single++;
        most = 1;
    } else if (c->choppy)
        most = 1 + (size_t)world_draw(w, RNG_NETWORK, SMALL_PIECE);
    return most < e->out.len ? most : e->out.len;
}

/* Has an end learn, `after` seconds from now, that the connection is gone. */
static void lose(end *e, const char *why, double after)
{
    if (!e->at || e->why)
        return;
    e->why = why;
    world_plan(e->of->in->w, &e->loss, after);
}

static void on_loss(void *ctx)
{
    end *e = ctx;
    e->lost = true;
    if (e->base.events.lost)
        e->base.events.lost(e->base.events.ctx, e->why);
}

/* Flips a bit of the first n bytes; often one of the very first, which are a frame's head. */
static void garble(end *e, size_t n)
{
    world *w = e->of->in->w;
    double where = world_uniform(w, RNG_NETWORK, 0, 1);
    size_t most = where < 0.4 ? 1 : where < 0.7 && n > 4 ? 4 : n;
    size_t at = (size_t)world_draw(w, RNG_NETWORK, most);
    e->out.data[at] ^= (char)(1 << world_draw(w, RNG_NETWORK, 8));
    e->noisy = false;
}

static void on_delivery(void *ctx)
{
    end *e = ctx, *to = other(e);
    connection *c = e->of;
    size_t n = piece_of(e);
    bool heard = to->at && !to->at->dead && !to->lost;
    if (n > 0 &&
        (e->noisy || (c->in->conditions.noise > 0 && world_chance(c->in->w, RNG_NETWORK, c->in->conditions.noise))))
        garble(e, n);
    if (heard && !to->finishing)
        buf_add(&to->in, e->out.data, n);
    buf_drop(&e->out, n);
    e->base.drained_at = c->in->w->now;
    if (e->out.len > 0)
        plan_delivery(e);
    else if (e->closes)
        lose(to, "it closed the connection", 0);
    if (heard && !to->finishing && n > 0 && to->base.events.bytes)
        AS_PROCESS(to->at, to->base.events.bytes(to->base.events.ctx));
    else
        free_if_over(c);
}

/* Delivers; to a process that is stopped only when it goes on: until then its kernel would hold the bytes. */
static void deliver(void *ctx)
{
    end *e = ctx, *to = other(e);
    double wait = to->at && !to->at->dead ? to->at->stopped_until - e->of->in->w->now : 0;
    if (wait > 0)
        world_plan(e->of->in->w, &e->delivery, wait);
    else
        on_delivery(e);
}

static void write_bytes(net_stream *s, const void *bytes, size_t n)
{
    end *e = (end *)s;
    if (e->unacked && e->at && !e->lost)
        buf_add(&e->out, bytes, n);
    if (!e->at || e->at->dead || e->mute || e->lost || is_isolated(e->of->in, e->at) ||
        (other(e)->at && is_isolated(e->of->in, other(e)->at)))
        return;
    if (e->out.len == 0)
        e->base.drained_at = e->of->in->w->now;
    buf_add(&e->out, bytes, n);
    if (!e->delivery.planned)
        plan_delivery(e);
}

static size_t unsent(net_stream *s)
{
    end *e = (end *)s;
    size_t room = e->of->slow_until > e->of->in->w->now && e->of->slow_side != e->side ? SLOW_BUFFER
                                                                                       : e->of->in->conditions.buffer;
    return e->out.len > room ? e->out.len - room : 0;
}

static const char *peek(net_stream *s, size_t most, size_t *n)
{
    end *e = (end *)s;
    *n = e->in.len < most ? e->in.len : most;
    return e->in.data;
}

static size_t read_bytes(net_stream *s, void *to, size_t n)
{
    end *e = (end *)s;
    n = n < e->in.len ? n : e->in.len;
    if (to && n)
        memcpy(to, e->in.data, n);
    buf_drop(&e->in, n);
    return n;
}

/* Closes an end: what it wrote still arrives, then the other end learns of the close. */
static void close_out(end *e)
{
    e->closes = true;
    if (!e->mute && !e->delivery.planned)
        plan_delivery(e);
}

static void finish(net_stream *s)
{
    end *e = (end *)s;
    e->finishing = true;
    buf_clear(&e->in);
    close_out(e);
}

/* Drops a random suffix of what was written and has not arrived. */
static void truncate_out(end *e)
{
    if (e->out.len > 0)
        e->out.len = (size_t)world_draw(e->of->in->w, RNG_NETWORK, e->out.len + 1);
}

/* Frees an end. One closed with bytes unread resets the connection, which may lose what was on its way to the peer. */
static void free_end(net_stream *s)
{
    end *e = (end *)s;
    connection *c = e->of;
    if (!e->owner_died && e->in.len > 0 && world_chance(c->in->w, RNG_NETWORK, 0.5))
        truncate_out(e);
    e->at = NULL;
    e->base.events = (stream_events){0};
    world_cancel(c->in->w, &e->loss);
    if (c->stage < 2 && e->side == 0)
        world_cancel(c->in->w, &c->opening);
    if (!e->mute && (other(e)->at || e->delivery.planned))
        close_out(e);
    free_if_over(c);
}

static void init_end(connection *c, int side, sim_process *at)
{
    static const stream_ops ops = {
        .write = write_bytes, .unsent = unsent, .peek = peek, .read = read_bytes, .finish = finish, .free = free_end};
    end *e = &c->end[side];
    e->base = (net_stream){.ops = &ops, .drained_at = c->in->w->now};
    e->of = c;
    e->side = side;
    e->at = at;
    e->delivery = (sim_task){.run = deliver, .ctx = e};
    e->loss = (sim_task){.of = at, .run = on_loss, .ctx = e};
}

static sim_acceptor *find_acceptor(const sim_network *n, const char *name)
{
    for (sim_acceptor *a = n->acceptors; a; a = a->next)
        if (strcmp(a->at->name, name) == 0 && !a->at->dead)
            return a;
    return NULL;
}

static void reach_acceptor(connection *c)
{
    sim_network *n = c->in;
    sim_acceptor *a = find_acceptor(n, c->to);
    if (is_isolated(n, c->end[0].at) || (a && is_isolated(n, a->at)))
        return; /* no answer ever comes */
    if (!a) {
        lose(&c->end[0], "connection refused", some_delay(n));
        return;
    }
    if (a->at->stopped_until > n->w->now) {
        world_plan(n->w, &c->opening, a->at->stopped_until - n->w->now);
        return;
    }
    c->stage = 1;
    world_plan(n->w, &c->opening, some_delay(n));
    init_end(c, 1, a->at);
    c->end[1].base.is_open = true;
    AS_PROCESS(a->at, a->events.accepted(a->events.ctx, &c->end[1].base, c->end[0].at->name));
}

static void on_opening(void *ctx)
{
    connection *c = ctx;
    end *e = &c->end[0];
    if (!e->at || e->at->dead)
        return;
    if (c->stage == 0) {
        reach_acceptor(c);
        return;
    }
    if (e->at->stopped_until > c->in->w->now) {
        world_plan(c->in->w, &c->opening, e->at->stopped_until - c->in->w->now);
        return;
    }
    c->stage = 2;
    e->base.is_open = true;
    if (e->base.events.open && !e->why)
        AS_PROCESS(e->at, e->base.events.open(e->base.events.ctx));
}

static net_stream *dial(dialer *base, const stream_events *events, err *error)
{
    (void)error;
    sim_dialer *d = (sim_dialer *)base;
    sim_network *n = d->at->in->net;
    connection *c = XNEW(connection);
    *c = (connection){.in = n, .next = n->all, .choppy = world_chance(n->w, RNG_NETWORK, n->conditions.choppy)};
    memcpy(c->to, d->to, sizeof c->to);
    if (c->next)
        c->next->prev = c;
    n->all = c;
    init_end(c, 0, d->at);
    init_end(c, 1, NULL);
    c->end[0].base.events = *events;
    c->opening = (sim_task){.run = on_opening, .ctx = c};
    world_plan(n->w, &c->opening, some_delay(n));
    return &c->end[0].base;
}

static void free_dialer(dialer *d)
{
    free(d);
}

dialer *sim_network_dialer_new(net_loop *l, const char *address, const credentials *own, err *e)
{
    static const dialer_ops ops = {.dial = dial, .free = free_dialer};
    (void)own;
    (void)e;
    sim_dialer *d = XNEW(sim_dialer);
    *d = (sim_dialer){.base = {&ops, "simulated"}, .at = (sim_process *)l};
    strncpy(d->to, address, sizeof d->to - 1);
    return &d->base;
}

static void free_acceptor(acceptor *base)
{
    sim_acceptor *a = (sim_acceptor *)base;
    sim_acceptor **at = &a->at->in->net->acceptors;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    free(a);
}

acceptor *sim_network_acceptor_new(net_loop *l, const char *address, const credentials *own,
                                   const acceptor_events *events, err *e)
{
    (void)own;
    (void)e;
    sim_process *p = (sim_process *)l;
    sim_acceptor *a = XNEW(sim_acceptor);
    *a = (sim_acceptor){.base = {free_acceptor, p->name}, .at = p, .events = *events, .next = p->in->net->acceptors};
    CHECK(strcmp(address, p->name) == 0);
    p->in->net->acceptors = a;
    return &a->base;
}

static void go_mute(end *e)
{
    e->mute = e->unacked = true;
    world_cancel(e->of->in->w, &e->delivery);
}

static void cut(connection *c, network_cut how)
{
    world *w = c->in->w;
    int side = (int)world_draw(w, RNG_NETWORK, 2);
    switch (how) {
    case CUT_RESET:
        for (int i = 0; i < 2; i++) {
            truncate_out(&c->end[i]);
            c->end[i].mute = true; /* what is left in out arrives, nothing more */
            lose(&c->end[i], "connection reset", world_uniform(w, RNG_NETWORK, 0, i == side ? 0.1 : 4));
        }
        break;
    case CUT_SILENT:
        go_mute(&c->end[0]);
        go_mute(&c->end[1]);
        break;
    case CUT_HALF: go_mute(&c->end[side]); break;
    case CUT_STALL: c->stalled_until = w->now + world_uniform(w, RNG_NETWORK, 0.5, 7); break;
    case CUT_NOISE: c->end[side].noisy = true; break;
    default: c->slow_until = w->now + world_uniform(w, RNG_NETWORK, 1, 8); c->slow_side = side;
    }
}

bool sim_network_cut_newest(sim_network *n, const sim_process *dialed, network_cut how)
{
    for (connection *c = n->all; c; c = c->next)
        if (c->end[0].at == dialed && c->end[1].at) {
            cut(c, how);
            return true;
        }
    return false;
}

void sim_network_isolate(sim_network *n, const sim_process *p, double seconds)
{
    isolation *oldest = &n->isolated[0];
    for (size_t i = 1; i < sizeof n->isolated / sizeof *n->isolated; i++)
        if (n->isolated[i].until < oldest->until)
            oldest = &n->isolated[i];
    *oldest = (isolation){p, n->w->now + seconds};
    for (connection *c = n->all; c; c = c->next)
        if (c->end[0].at == p || c->end[1].at == p)
            cut(c, CUT_SILENT);
}

void sim_network_process_died(sim_network *n, const sim_process *p, bool silent)
{
    for (connection *c = n->all; c; c = c->next)
        for (int i = 0; i < 2; i++) {
            if (c->end[i].at != p)
                continue;
            c->end[i].owner_died = true;
            truncate_out(&c->end[i]);
            if (silent)
                go_mute(&c->end[i]);
        }
    for (size_t i = 0; i < sizeof n->isolated / sizeof *n->isolated; i++)
        if (n->isolated[i].p == p)
            n->isolated[i].p = NULL;
}
