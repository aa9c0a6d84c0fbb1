/* link.c - see link.h: a link's life
 *
 * Every failure calls lose(), from anywhere, also from within callbacks: it only notes the reason. finish() does the
 * rest on the next turn of the loop. A peer that is refused is told why; its connection stays open (`lingering`) until
 * it has read that. link_state.h has the drawing. */
#include "net/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/identity.h"
#include "net/link_state.h"
#include "net/pack.h"

static const double FIRST_PAUSE = 0.05, LONGEST_PAUSE = 2; /* seconds between two tries to connect */
static const double STABLE_AFTER = 2;                      /* seconds up after which the backoff starts over */
static const double LINGER_SECONDS = 1;                    /* that a refused peer has to read why */
static const double UNFINISHED = 6; /* times `silence` that a frame may take: a peer may send bytes for ever */

/* The log's words for the end of a link: with which peer, and why. */
static const char LOST[] = "lost %s: %s", REFUSED[] = "refused %s: %s", REFUSED_BY[] = "refused by %s: %s",
                  UNREACHABLE[] = "cannot reach %s: %s; trying again", STRANGER[] = "%s did not say who it is: %s";

link_options link_options_default(void)
{
    return (link_options){
        .ping_every = 1, .silence = 5, .max_message = (size_t)64 << 20, .max_unsent = (size_t)128 << 20};
}

static char *own_name(void)
{
    char *host = identity_host(), *name = xasprintf("%s/%d", host, (int)getpid());
    free(host);
    return name;
}

void link_endpoint_init(link_endpoint *end, net_loop *on, const link_options *o, const link_events *e, proof_side side)
{
    CHECK(o->own && o->ping_every > 0 && o->silence > 0);
    *end = (link_endpoint){.on = on, .opt = *o, .events = *e, .side = side};
    end->opt.name = o->name ? xasprintf("%.200s", o->name) : own_name();
    end->opt.instance = o->instance ? o->instance : loop_random_id(on);
    end->opt.model = o->model ? xstrdup(o->model) : NULL;
}

void link_endpoint_deinit(link_endpoint *end)
{
    free((char *)end->opt.name);
    free((char *)end->opt.model);
}

/* Writes "runner gpu3/812 at 10.0.0.3:40112" into l->peer, as far as that is known. */
static void name_peer(net_link *l)
{
    const char *who = l->session ? session_peer(l->session) : "";
    snprintf(l->peer, sizeof l->peer, "%s%s%s", who, *who ? " at " : "", l->where);
}

/* Loses the link: notes why, stops everything, and has finish() do the rest. told: the peer has been told why and needs
 * time to read it. */
static void lose(net_link *l, const char *how, bool told, const char *why)
{
    if (l->state == LINK_LOST || l->state == LINK_PAUSING)
        return;
    snprintf(l->why, sizeof l->why, "%s", why);
    l->how = l->was_up ? LOST : how;
    name_peer(l);
    if (l->session)
        session_stop(l->session);
    if (l->stream)
        l->stream->events = (stream_events){0};
    if (told)
        l->lingering = l->stream;
    l->state = LINK_LOST;
    loop_timer_stop(l->timer);
    loop_timer_set(l->finish, 0);
}

/* Loses the link because the peer, or the connection to it, is gone. */
static void miss(net_link *l, const char *why)
{
    lose(l, l->listener ? STRANGER : UNREACHABLE, false, why);
}

static void on_session_up(void *ctx, const Hello *hello)
{
    net_link *l = ctx;
    l->was_up = true;
    l->up_since = loop_now(l->end->on);
    loop_timer_set(l->timer, l->end->opt.ping_every);
    name_peer(l);
    l->welcoming = l->listener;
    l->end->events.up(l->end->events.ctx, l, hello);
    l->welcoming = false;
    if (l->state == LINK_IN_SESSION)
        log_line(l->end->opt.within ? LOG_DEBUG : LOG_INFO, "%s is up", l->peer);
}

static void on_session_message(void *ctx, const Message *m)
{
    net_link *l = ctx;
    l->end->events.message(l->end->events.ctx, l, m);
}

static void on_session_over(void *ctx, session_over how, const char *why)
{
    net_link *l = ctx;
    if (how == OVER_BROKEN)
        miss(l, why);
    else
        lose(l, how == OVER_BY_US ? REFUSED : REFUSED_BY, how == OVER_BY_US, why);
}

static void on_bytes(void *ctx)
{
    net_link *l = ctx;
    l->last_heard = loop_now(l->end->on);
    l->depth++;
    session_read(l->session);
    l->depth--;
}

/* Begins the session: the connection is made, TLS included. */
static void on_open(void *ctx)
{
    net_link *l = ctx;
    l->state = LINK_IN_SESSION;
    session_begin(l->session, l->to ? l->to->host : NULL);
}

static void on_lost(void *ctx, const char *why)
{
    miss(ctx, why);
}

static void free_lingering(net_link *l)
{
    stream_free(l->lingering);
    l->lingering = NULL;
}

static void on_lingering_lost(void *ctx, const char *why)
{
    (void)why;
    net_link *l = ctx;
    free_lingering(l);
    if (l->listener)
        link_destroy(l);
}

/* Leaves the connection open until the peer has read its last message and closed, or a moment has passed. A connecting
 * link's next try ends it, too. */
static void start_lingering(net_link *l)
{
    l->lingering->events = (stream_events){.lost = on_lingering_lost, .ctx = l};
    stream_finish(l->lingering);
    if (l->listener)
        loop_timer_set(l->timer, LINGER_SECONDS);
}

/* Frees session and stream; the link is as it was before it connected. */
static void disconnect(net_link *l)
{
    session_free(l->session);
    if (l->stream != l->lingering)
        stream_free(l->stream);
    l->session = NULL;
    l->stream = NULL;
}

/* Logs why the link was lost; the same refusal of the same peer at most once a minute. */
static void log_loss(net_link *l)
{
    char what[sizeof l->end->logged.line[0].what];
    snprintf(what, sizeof what, "%.220s: %s", l->session ? session_peer(l->session) : "", l->why);
    bool again = l->how != LOST && log_limit_repeats(&l->end->logged, what, loop_now(l->end->on));
    log_line(again ? LOG_DEBUG : LOG_WARN, l->how, l->peer, l->why);
}

/* Waits until the next try: exponential backoff with jitter, which starts over once a link has been stable. */
static void start_pausing(net_link *l, bool was_stable)
{
    if (was_stable || l->pause == 0)
        l->pause = FIRST_PAUSE;
    double jitter = 0.5 + 0.5 * rng_uniform(l->end->opt.instance, l->n_pauses++);
    l->state = LINK_PAUSING;
    loop_timer_set(l->timer, l->pause * jitter);
    l->pause = l->pause * 2 < LONGEST_PAUSE ? l->pause * 2 : LONGEST_PAUSE;
}

/* The second half of lose(), called by the loop, outside of all callbacks: tells the owner, frees, and reconnects. */
static void finish(void *ctx)
{
    net_link *l = ctx;
    if (l->freed) {
        link_destroy(l);
        return;
    }
    log_loss(l);
    bool was_up = l->was_up;
    l->was_up = false;
    if (was_up) {
        l->depth++;
        l->end->events.down(l->end->events.ctx, l, l->why);
        l->depth--;
    }
    disconnect(l);
    if (l->freed || (l->listener && !l->lingering)) {
        link_destroy(l);
        return;
    }
    if (l->lingering)
        start_lingering(l);
    if (l->listener)
        return;
    bool was_stable = was_up && loop_now(l->end->on) - l->up_since > STABLE_AFTER;
    if (was_stable)
        log_limit_forget(&l->end->logged);
    start_pausing(l, was_stable);
}

/* Returns whether the peer reads what it is sent. A burst may be large, but some of it has to leave within
 * `silence`. */
static bool is_reading(const net_link *l)
{
    return stream_unsent(l->stream) <= l->end->opt.max_unsent ||
           loop_now(l->end->on) - l->stream->drained_at <= l->end->opt.silence;
}

static void check_peer(net_link *l)
{
    double silent = loop_now(l->end->on) - l->last_heard;
    if (!is_reading(l)) {
        miss(l, NOT_READING);
        return;
    }
    if (silent > l->end->opt.silence) {
        char why[64];
        snprintf(why, sizeof why, "silent for %.1f s", silent);
        miss(l, why);
        return;
    }
    double unfinished = loop_now(l->end->on) - session_framed_at(l->session);
    if (unfinished > UNFINISHED * l->end->opt.silence) {
        char why[80];
        snprintf(why, sizeof why, "no message of it has come to its end for %.0f s", unfinished);
        miss(l, why);
        return;
    }
    if (!session_secret_is_accepted(l->session)) {
        link_drop(l, "the secret by which the link was made is no longer accepted");
        return;
    }
    session_ping(l->session);
    loop_timer_set(l->timer, l->end->opt.ping_every);
}

static void start_connecting(net_link *l);

static void on_timer(void *ctx)
{
    net_link *l = ctx;
    if (l->state == LINK_PAUSING)
        start_connecting(l);
    else if (l->state == LINK_LOST)
        link_destroy(l); /* it has lingered for long enough */
    else if (l->was_up)
        check_peer(l);
    else
        miss(l, "too slow");
}

net_link *link_new(link_endpoint *end, link_listener *listener)
{
    net_link *l = XNEW(net_link);
    *l = (net_link){.end = end, .listener = listener, .state = LINK_PAUSING};
    l->timer = loop_timer_new(end->on, on_timer, l);
    l->finish = loop_timer_new(end->on, finish, l);
    return l;
}

void link_destroy(net_link *l)
{
    disconnect(l);
    free_lingering(l);
    loop_timer_free(l->timer);
    loop_timer_free(l->finish);
    buf_free(&l->out);
    if (l->listener) {
        link_listener_remove(l);
    } else {
        dialer_free(l->to);
        link_endpoint_deinit(l->end);
        free(l->end);
    }
    free(l);
}

/* Begins to connect: everything from here to `up` must be done within `silence` seconds. */
static void begin_session(net_link *l)
{
    l->state = LINK_CONNECTING;
    l->last_heard = loop_now(l->end->on);
    loop_timer_set(l->timer, l->end->opt.silence);
}

static void set_stream(net_link *l, net_stream *stream)
{
    session_events events = {on_session_up, on_session_message, on_session_over, l};
    l->stream = stream;
    l->session = session_new(l->end->on, stream, &l->end->opt, l->end->side, &events);
}

static stream_events events_of(net_link *l)
{
    return (stream_events){.open = on_open, .bytes = on_bytes, .lost = on_lost, .ctx = l};
}

static void start_connecting(net_link *l)
{
    err e;
    stream_events events = events_of(l);
    free_lingering(l);
    begin_session(l);
    net_stream *stream = dialer_dial(l->to, &events, &e);
    if (stream)
        set_stream(l, stream);
    else
        miss(l, e.msg);
}

void link_accept(net_link *l, net_stream *stream, const char *from)
{
    snprintf(l->where, sizeof l->where, "%s", from);
    stream->events = events_of(l);
    begin_session(l);
    set_stream(l, stream);
    if (stream->is_open)
        on_open(l);
}

void link_hang_up(net_link *l, const char *why)
{
    if (l->state != LINK_LOST) {
        l->how = STRANGER;
        snprintf(l->why, sizeof l->why, "%s", why);
        name_peer(l);
        log_loss(l);
    }
    link_destroy(l);
}

net_link *link_connect(net_loop *on, const char *to, const link_options *o, const link_events *e, err *error)
{
    dialer *d = on->ops->dialer_new(on, to, o->own, error);
    if (!d)
        return NULL;
    link_endpoint *end = XNEW(link_endpoint);
    link_endpoint_init(end, on, o, e, SIDE_CONNECTING);
    net_link *l = link_new(end, NULL);
    l->to = d;
    snprintf(l->where, sizeof l->where, "%s", to);
    name_peer(l);
    loop_timer_set(l->timer, 0);
    return l;
}

void link_free(net_link *l)
{
    if (!l)
        return;
    CHECK(!l->listener);
    if (l->depth == 0) {
        link_destroy(l);
        return;
    }
    l->freed = true;
    lose(l, LOST, false, "freed");
    loop_timer_set(l->finish, 0);
}

void link_send(net_link *l, const Message *m)
{
    if (!l->session || !session_is_up(l->session))
        return;
    buf_clear(&l->out);
    pack_message(&l->out, m);
    session_send(l->session, l->out.data, l->out.len);
}

void link_send_packed(net_link *l, const void *message, size_t n)
{
    if (l->session)
        session_send(l->session, message, n);
}

void link_set_data(net_link *l, void *data)
{
    l->data = data;
}

void *link_data(const net_link *l)
{
    return l->data;
}

const char *link_peer(const net_link *l)
{
    return l->peer;
}

bool link_is_within(const net_link *l)
{
    return l->end->opt.within;
}

void link_drop(net_link *l, const char *why)
{
    if (l->state != LINK_IN_SESSION)
        return;
    if (l->welcoming)
        l->was_up = false;
    session_close(l->session, why);
    lose(l, REFUSED, true, why);
}
