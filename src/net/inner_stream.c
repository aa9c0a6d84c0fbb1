/* inner_stream.c - streams between two roles of one process; see stream.h, event_loop.h
 *
 * Bytes written at one end are in the other's buffer at once, and its owner is told within the same turn of the loop:
 * no system call, no copy through the kernel. Nothing waits to be sent, so a buffer is bounded only by what a role
 * writes before it returns to the loop. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/event_loop.h"

typedef struct inner_stream inner_stream;
struct inner_stream {
    net_stream base;    /* first */
    event_loop *on;     /* borrowed */
    inner_stream *peer; /* borrowed; NULL: not there yet, or closed */
    buf in;             /* bytes that have come; those from `at` on are unread */
    size_t at;
    struct event *news; /* active: the owner must be told of one of these: */
    bool opens, has_bytes, has_ended;
    bool finishing; /* further bytes are dropped */
};

typedef struct {
    dialer base; /* first */
    event_loop *on;
} inner_dialer;

struct inner_acceptor {
    acceptor base; /* first */
    event_loop *on;
    acceptor_events events;
};

static void tell_soon(inner_stream *s)
{
    event_active(s->news, EV_READ, 0);
}

/* Notes that the peer will write no more. */
static void end_stream(inner_stream *s)
{
    s->has_ended = true;
    tell_soon(s);
}

static void write_bytes(net_stream *base, const void *bytes, size_t n)
{
    inner_stream *to = ((inner_stream *)base)->peer;
    if (!to || to->finishing)
        return;
    buf_add(&to->in, bytes, n);
    to->has_bytes = true;
    tell_soon(to);
}

static size_t unsent(net_stream *base)
{
    (void)base;
    return 0;
}

static const char *peek(net_stream *base, size_t most, size_t *n)
{
    const inner_stream *s = (inner_stream *)base;
    size_t all = s->in.len - s->at;
    *n = all < most ? all : most;
    return *n ? s->in.data + s->at : NULL;
}

static size_t read_bytes(net_stream *base, void *to, size_t n)
{
    inner_stream *s = (inner_stream *)base;
    size_t all = s->in.len - s->at;
    n = n < all ? n : all;
    if (to && n)
        memcpy(to, s->in.data + s->at, n);
    s->at += n;
    if (s->at == s->in.len) {
        buf_clear(&s->in);
        s->at = 0;
    }
    return n;
}

static void finish(net_stream *base)
{
    inner_stream *s = (inner_stream *)base;
    s->finishing = true;
    read_bytes(base, NULL, SIZE_MAX);
    if (s->peer)
        end_stream(s->peer);
}

static void free_stream(net_stream *base)
{
    inner_stream *s = (inner_stream *)base;
    if (s->peer) {
        s->peer->peer = NULL;
        end_stream(s->peer);
    }
    event_free(s->news);
    buf_free(&s->in);
    free(s);
}

static inner_stream *stream_new(event_loop *on);

/* Connects s to the acceptor, which gets the other end; without one the stream is lost. */
static void open_stream(inner_stream *s)
{
    inner_acceptor *to = s->on->acceptor;
    if (!to) {
        s->has_ended = true;
        tell_soon(s);
        return;
    }
    s->peer = stream_new(s->on);
    s->peer->peer = s;
    s->base.is_open = s->peer->base.is_open = true;
    to->events.accepted(to->events.ctx, &s->peer->base, LOOP_SELF);
    if (s->base.events.open)
        s->base.events.open(s->base.events.ctx);
}

/* Tells the owner of one thing only, since it may free the stream in its callback. */
static void on_news(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    inner_stream *s = ctx;
    const stream_events *e = &s->base.events;
    if (s->opens) {
        s->opens = false;
        open_stream(s);
    } else if (s->has_bytes) {
        s->has_bytes = false;
        if (s->has_ended)
            tell_soon(s);
        if (e->bytes)
            e->bytes(e->ctx);
    } else if (s->has_ended) {
        s->has_ended = false;
        if (e->lost)
            e->lost(e->ctx, s->base.is_open ? "it closed the connection" : "nobody listens in this process");
    }
}

static inner_stream *stream_new(event_loop *on)
{
    static const stream_ops ops = {.write = write_bytes,
                                   .unsent = unsent,
                                   .peek = peek,
                                   .read = read_bytes,
                                   .finish = finish,
                                   .free = free_stream};
    inner_stream *s = XNEW(inner_stream);
    *s = (inner_stream){
        .base = {.ops = &ops, .is_private = true}, .on = on, .news = event_new(on->events, -1, 0, on_news, s)};
    CHECK(s->news);
    return s;
}

static net_stream *dial(dialer *base, const stream_events *events, err *e)
{
    (void)e;
    inner_stream *s = stream_new(((inner_dialer *)base)->on);
    s->base.events = *events;
    s->opens = true;
    tell_soon(s);
    return &s->base;
}

static void free_dialer(dialer *base)
{
    free(base);
}

dialer *inner_dialer_new(event_loop *l)
{
    static const dialer_ops ops = {.dial = dial, .free = free_dialer};
    inner_dialer *d = XNEW(inner_dialer);
    *d = (inner_dialer){.base = {.ops = &ops, .host = LOOP_SELF}, .on = l};
    return &d->base;
}

static void free_acceptor(acceptor *base)
{
    inner_acceptor *a = (inner_acceptor *)base;
    a->on->acceptor = NULL;
    free(a);
}

acceptor *inner_acceptor_new(event_loop *l, const acceptor_events *events)
{
    CHECK(!l->acceptor);
    inner_acceptor *a = l->acceptor = XNEW(inner_acceptor);
    *a = (inner_acceptor){.base = {.free = free_acceptor, .address = LOOP_SELF}, .on = l, .events = *events};
    return &a->base;
}
