/* link.c - see link.h
 *
 * What is said on a connection is session.c's business; here is a link's life around its sessions:
 *
 *   connecting side    pausing ──▶ connecting ──▶ talking ──▶ lost ──▶ pausing ...
 *   listening side                 connecting ──▶ talking ──▶ lost ──▶ freed
 *
 * Whatever goes wrong calls lose(), from anywhere, also from within callbacks: it only notes the reason. The rest is
 * done by finish() on the next turn of the loop. A peer that is sent away is told why; the connection stays open
 * behind the scenes (`parting`) until that has been read. */
#include "net/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/id_map.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/address.h"
#include "net/identity.h"
#include "net/pack.h"
#include "net/session.h"

enum {
    MAX_STRANGERS = 1024, /* connections that have not proved themselves yet: of all networks, */
    MAX_OF_NETWORK = 256, /* and of one */
    N_SAID = 64
};
static const double FIRST_PAUSE = 0.05, LONGEST_PAUSE = 2, STABLE_AFTER = 2, PARTING_SECONDS = 1, SAME_LINE_AGAIN = 60;
static const double UNFINISHED = 6; /* times `silence` that a message may take: bytes that come need not make sense */

typedef enum { LINK_PAUSING, LINK_CONNECTING, LINK_TALKING, LINK_LOST } link_state;

/* What all links of a listener share, and a connecting link has for itself. */
typedef struct {
    net_loop *on;     /* borrowed: outlives it */
    link_options opt; /* its strings are owned */
    link_events events;
    proof_side side;
    struct {
        char what[480];
        double at;
    } said[N_SAID]; /* refusals in the log, and when: not to repeat them all the time */
} endpoint;

/* Where links come from (address_network()). */
typedef struct {
    uint64_t id;
    int n_links, n_strangers;
} network;

struct net_link {
    endpoint *end;           /* owned by the connecting side, else the listener's */
    link_listener *listener; /* NULL: the connecting side */
    net_link *prev, *next;   /* of the listener's */
    network *from;           /* borrowed: of the listener's */
    uint64_t number;         /* that they came in */
    link_state state;
    bool was_up, freed; /* freed: by its owner from within a callback; finish() does it */
    bool welcoming;     /* within `up` of an accepted link */
    int depth;          /* callbacks we are within */
    const char *how;    /* LINK_LOST: "lost %s: %s" and so on */
    char why[256];
    net_stream *way; /* NULL when pausing, or when there is none to be had */
    session *talk;   /* as long as way */
    net_stream *parting;
    char where[128], peer[400]; /* the peer's address; the peer in words */
    double last_heard, up_since;
    loop_timer *timer, *finish;
    buf out; /* a message being sent */
    void *data;
    /* connecting side only */
    dialer *to;
    double pause;
    uint64_t n_pauses;
};

struct link_listener {
    endpoint end;
    acceptor *door;
    net_link *links;
    id_map *networks; /* of network *, owned */
    uint64_t n_accepted;
};

/* How the log tells of an end: of whom, and why. */
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

static void endpoint_init(endpoint *end, net_loop *on, const link_options *o, const link_events *e, proof_side side)
{
    CHECK(o->own && o->ping_every > 0 && o->silence > 0);
    *end = (endpoint){.on = on, .opt = *o, .events = *e, .side = side};
    end->opt.name = o->name ? xasprintf("%.200s", o->name) : own_name();
    end->opt.instance = o->instance ? o->instance : loop_random_id(on);
    end->opt.model = o->model ? xstrdup(o->model) : NULL;
}

static void endpoint_deinit(endpoint *end)
{
    free((char *)end->opt.name);
    free((char *)end->opt.model);
}

/* "runner gpu3/812 at 10.0.0.3:40112", as far as is known. */
static void name_peer(net_link *l)
{
    const char *who = l->talk ? session_peer(l->talk) : "";
    snprintf(l->peer, sizeof l->peer, "%s%s%s", who, *who ? " at " : "", l->where);
}

/* The link is of no more use. told: the peer is being told so, and has to be given the time to read it. */
static void lose(net_link *l, const char *how, bool told, const char *why)
{
    if (l->state == LINK_LOST || l->state == LINK_PAUSING)
        return;
    snprintf(l->why, sizeof l->why, "%s", why);
    l->how = l->was_up ? LOST : how;
    name_peer(l);
    if (l->talk)
        session_stop(l->talk);
    if (l->way)
        l->way->events = (stream_events){0};
    if (told)
        l->parting = l->way;
    l->state = LINK_LOST;
    loop_timer_stop(l->timer);
    loop_timer_set(l->finish, 0);
}

/* The peer, or the way to it, is gone. */
static void miss(net_link *l, const char *why)
{
    lose(l, l->listener ? STRANGER : UNREACHABLE, false, why);
}

static void talk_is_up(void *ctx, const Hello *hello)
{
    net_link *l = ctx;
    l->was_up = true;
    l->up_since = loop_now(l->end->on);
    loop_timer_set(l->timer, l->end->opt.ping_every);
    name_peer(l);
    l->welcoming = l->listener;
    l->end->events.up(l->end->events.ctx, l, hello);
    l->welcoming = false;
    if (l->state == LINK_TALKING)
        log_line(l->end->opt.within ? LOG_DEBUG : LOG_INFO, "%s is up", l->peer);
}

static void talk_message(void *ctx, const Message *m)
{
    net_link *l = ctx;
    l->end->events.message(l->end->events.ctx, l, m);
}

static void talk_is_over(void *ctx, session_over how, const char *why)
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
    session_read(l->talk);
    l->depth--;
}

/* TCP, and TLS where used, are there. */
static void on_open(void *ctx)
{
    net_link *l = ctx;
    l->state = LINK_TALKING;
    session_begin(l->talk, l->to ? l->to->host : NULL);
}

static void on_lost(void *ctx, const char *why)
{
    miss(ctx, why);
}

static void destroy(net_link *l);

static void free_parting(net_link *l)
{
    stream_free(l->parting);
    l->parting = NULL;
}

static void parting_is_over(void *ctx, const char *why)
{
    (void)why;
    net_link *l = ctx;
    free_parting(l);
    if (l->listener)
        destroy(l);
}

/* Leave the connection open until the peer has read its last message and closed, or a moment has passed. A connecting
 * link's next try ends it, too. */
static void start_parting(net_link *l)
{
    l->parting->events = (stream_events){.lost = parting_is_over, .ctx = l};
    stream_finish(l->parting);
    if (l->listener)
        loop_timer_set(l->timer, PARTING_SECONDS);
}

/* Back to how it was before the connection. */
static void disconnect(net_link *l)
{
    session_free(l->talk);
    if (l->way != l->parting)
        stream_free(l->way);
    l->talk = NULL;
    l->way = NULL;
}

/* Whether this was logged not long ago, or too much else; if not it is remembered in place of the oldest. */
static bool was_said(endpoint *end, const char *what)
{
    double now = loop_now(end->on);
    int oldest = 0;
    for (int i = 0; i < N_SAID; i++) {
        if (strcmp(end->said[i].what, what) == 0 && now - end->said[i].at < SAME_LINE_AGAIN)
            return true;
        if (end->said[i].at < end->said[oldest].at)
            oldest = i;
    }
    if (*end->said[oldest].what && now - end->said[oldest].at < SAME_LINE_AGAIN)
        return true;
    snprintf(end->said[oldest].what, sizeof end->said[oldest].what, "%s", what);
    end->said[oldest].at = now;
    return false;
}

/* The same refusal of the same peer again and again is told once a minute. */
static void log_loss(net_link *l)
{
    char what[sizeof l->end->said[0].what];
    snprintf(what, sizeof what, "%.220s: %s", l->talk ? session_peer(l->talk) : "", l->why);
    bool again = l->how != LOST && was_said(l->end, what);
    log_line(again ? LOG_DEBUG : LOG_WARN, l->how, l->peer, l->why);
}

/* A little while until the next try: longer each time until a link has been stable, and not the same for all. */
static void start_pausing(net_link *l, bool was_stable)
{
    if (was_stable || l->pause == 0)
        l->pause = FIRST_PAUSE;
    double jitter = 0.5 + 0.5 * rng_uniform(l->end->opt.instance, l->n_pauses++);
    l->state = LINK_PAUSING;
    loop_timer_set(l->timer, l->pause * jitter);
    l->pause = l->pause * 2 < LONGEST_PAUSE ? l->pause * 2 : LONGEST_PAUSE;
}

/* Second half of lose(), outside of all callbacks. */
static void finish(void *ctx)
{
    net_link *l = ctx;
    if (l->freed) {
        destroy(l);
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
    if (l->freed || (l->listener && !l->parting)) {
        destroy(l);
        return;
    }
    if (l->parting)
        start_parting(l);
    if (l->listener)
        return;
    bool was_stable = was_up && loop_now(l->end->on) - l->up_since > STABLE_AFTER;
    if (was_stable)
        memset(l->end->said, 0, sizeof l->end->said);
    start_pausing(l, was_stable);
}

/* Whatever is to be sent: a burst may be large, but the peer has to be taking it. */
static bool is_reading(const net_link *l)
{
    return stream_unsent(l->way) <= l->end->opt.max_unsent ||
           loop_now(l->end->on) - l->way->drained_at <= l->end->opt.silence;
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
    double unfinished = loop_now(l->end->on) - session_framed_at(l->talk);
    if (unfinished > UNFINISHED * l->end->opt.silence) {
        char why[80];
        snprintf(why, sizeof why, "no message of it has come to its end for %.0f s", unfinished);
        miss(l, why);
        return;
    }
    if (!session_is_believed(l->talk)) {
        link_drop(l, "the secret by which the link was made is not believed any more");
        return;
    }
    session_ping(l->talk);
    loop_timer_set(l->timer, l->end->opt.ping_every);
}

static void start_connecting(net_link *l);

static void on_timer(void *ctx)
{
    net_link *l = ctx;
    if (l->state == LINK_PAUSING)
        start_connecting(l);
    else if (l->state == LINK_LOST)
        destroy(l); /* it has been parting for long enough */
    else if (l->was_up)
        check_peer(l);
    else
        miss(l, "too slow");
}

static net_link *new_link(endpoint *end, link_listener *listener)
{
    net_link *l = XNEW(net_link);
    *l = (net_link){.end = end, .listener = listener, .state = LINK_PAUSING};
    l->timer = loop_timer_new(end->on, on_timer, l);
    l->finish = loop_timer_new(end->on, finish, l);
    return l;
}

/* Take it out of its listener's list. */
static void unlist(net_link *l)
{
    if (--l->from->n_links == 0) {
        id_map_remove(l->listener->networks, l->from->id);
        free(l->from);
    }
    if (l->prev)
        l->prev->next = l->next;
    else
        l->listener->links = l->next;
    if (l->next)
        l->next->prev = l->prev;
}

static void destroy(net_link *l)
{
    disconnect(l);
    free_parting(l);
    loop_timer_free(l->timer);
    loop_timer_free(l->finish);
    buf_free(&l->out);
    if (l->listener) {
        unlist(l);
    } else {
        dialer_free(l->to);
        endpoint_deinit(l->end);
        free(l->end);
    }
    free(l);
}

/* The connection is being made: everything from here to `up` must be done within `silence` seconds. */
static void begin(net_link *l)
{
    l->state = LINK_CONNECTING;
    l->last_heard = loop_now(l->end->on);
    loop_timer_set(l->timer, l->end->opt.silence);
}

static void set_way(net_link *l, net_stream *way)
{
    session_events events = {talk_is_up, talk_message, talk_is_over, l};
    l->way = way;
    l->talk = session_new(l->end->on, way, &l->end->opt, l->end->side, &events);
}

static stream_events events_of(net_link *l)
{
    return (stream_events){.open = on_open, .bytes = on_bytes, .lost = on_lost, .ctx = l};
}

static void start_connecting(net_link *l)
{
    err e;
    stream_events events = events_of(l);
    free_parting(l);
    begin(l);
    net_stream *way = dialer_dial(l->to, &events, &e);
    if (way)
        set_way(l, way);
    else
        miss(l, e.msg);
}

net_link *link_connect(net_loop *on, const char *to, const link_options *o, const link_events *e, err *error)
{
    dialer *d = on->ops->dialer_new(on, to, o->own, error);
    if (!d)
        return NULL;
    endpoint *end = XNEW(endpoint);
    endpoint_init(end, on, o, e, SIDE_CONNECTING);
    net_link *l = new_link(end, NULL);
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
        destroy(l);
        return;
    }
    l->freed = true;
    lose(l, LOST, false, "freed");
    loop_timer_set(l->finish, 0);
}

static bool is_stranger(const net_link *l)
{
    return !l->was_up;
}

/* Whom to hang up on first: who has been refused already; else of the network with the most strangers, the one who has
 * had the most time. Whoever is in earnest needs only a moment, and nobody takes the places of another network. */
static bool is_missed_less(const net_link *a, const net_link *b)
{
    if ((a->state == LINK_LOST) != (b->state == LINK_LOST))
        return a->state == LINK_LOST;
    if (a->from != b->from)
        return a->from->n_strangers > b->from->n_strangers;
    return a->number < b->number;
}

/* The stranger who is missed least, of one network or (NULL) of all; *n: how many there are. NULL: there is none. */
static net_link *least_missed(link_listener *s, const network *of, int *n)
{
    net_link *least = NULL;
    *n = 0;
    for (net_link *l = s->links; l; l = l->next)
        l->from->n_strangers = 0;
    for (net_link *l = s->links; l; l = l->next)
        l->from->n_strangers += is_stranger(l);
    for (net_link *l = s->links; l; l = l->next) {
        if (!is_stranger(l) || (of && l->from != of))
            continue;
        ++*n;
        if (!least || is_missed_less(l, least))
            least = l;
    }
    return least;
}

static void hang_up_on(net_link *l, const char *why)
{
    if (l->state != LINK_LOST) {
        l->how = STRANGER;
        snprintf(l->why, sizeof l->why, "%s", why);
        name_peer(l);
        log_loss(l);
    }
    destroy(l);
}

/* So that a network, and all together, have no more strangers than they may. */
static void make_room(link_listener *s, const network *of)
{
    int n;
    net_link *least = least_missed(s, of, &n);
    if (n >= MAX_OF_NETWORK) {
        hang_up_on(least, "many others of its network have not done so either");
        return;
    }
    least = least_missed(s, NULL, &n);
    if (n >= MAX_STRANGERS)
        hang_up_on(least, "many others have not done so either");
}

static bool spare_one(void *ctx)
{
    int n;
    net_link *least = least_missed(ctx, NULL, &n);
    if (least)
        hang_up_on(least, "there are no file descriptors left");
    return least;
}

/* The network of an address; it is there as long as one of its links. */
static network *join_network(link_listener *s, const char *from)
{
    uint64_t id = address_network(from);
    network *n = id_map_get(s->networks, id);
    if (!n) {
        n = XNEW(network);
        n->id = id;
        id_map_put(s->networks, id, n);
    }
    n->n_links++;
    return n;
}

static void on_accepted(void *ctx, net_stream *way, const char *from)
{
    link_listener *s = ctx;
    net_link *l = new_link(&s->end, s);
    l->from = join_network(s, from);
    l->number = s->n_accepted++;
    make_room(s, l->from);
    l->next = s->links;
    if (l->next)
        l->next->prev = l;
    s->links = l;
    snprintf(l->where, sizeof l->where, "%s", from);
    way->events = events_of(l);
    begin(l);
    set_way(l, way);
    if (way->is_open)
        on_open(l);
}

link_listener *link_listen(net_loop *on, const char *at, const link_options *o, const link_events *e, err *error)
{
    link_listener *s = XNEW(link_listener);
    const acceptor_events events = {on_accepted, spare_one, s};
    s->networks = id_map_new();
    endpoint_init(&s->end, on, o, e, SIDE_LISTENING);
    s->door = on->ops->acceptor_new(on, at, o->own, &events, error);
    if (s->door)
        return s;
    link_listener_free(s);
    return NULL;
}

const char *link_listener_address(const link_listener *s)
{
    return s->door->address;
}

void link_listener_free(link_listener *s)
{
    if (!s)
        return;
    while (s->links)
        destroy(s->links);
    acceptor_free(s->door);
    id_map_free(s->networks);
    endpoint_deinit(&s->end);
    free(s);
}

void link_send(net_link *l, const Message *m)
{
    if (!l->talk || !session_is_up(l->talk))
        return;
    buf_clear(&l->out);
    pack_message(&l->out, m);
    session_send(l->talk, l->out.data, l->out.len);
}

void link_send_packed(net_link *l, const void *message, size_t n)
{
    if (l->talk)
        session_send(l->talk, message, n);
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
    if (l->state != LINK_TALKING)
        return;
    if (l->welcoming)
        l->was_up = false;
    session_close(l->talk, why);
    lose(l, REFUSED, true, why);
}
