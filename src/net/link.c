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

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/listener.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/accept.h"
#include "net/address.h"
#include "net/identity.h"
#include "net/pack.h"
#include "net/session.h"
#include "net/timer.h"
#include "net/tls.h"

enum { MAX_STRANGERS = 256,             /* connections that have not proved themselves yet */
       N_SAID = 64 };
static const double FIRST_PAUSE = 0.05, LONGEST_PAUSE = 2, STABLE_AFTER = 2, PARTING_SECONDS = 1, SAME_LINE_AGAIN = 60;

typedef enum { LINK_PAUSING, LINK_CONNECTING, LINK_TALKING, LINK_LOST } link_state;

/* What all links of a listener share, and a connecting link has for itself. */
typedef struct {
    struct event_base *loop;    /* borrowed: outlives it */
    link_options opt;           /* its strings are owned */
    link_events events;
    proof_side side;
    SSL_CTX *tls;               /* NULL: none */
    struct { char what[480]; double at; } said[N_SAID];     /* refusals in the log, and when: not to repeat them all the time */
} endpoint;

struct net_link {
    endpoint *end;              /* owned by the connecting side, else the listener's */
    link_listener *listener;    /* NULL: the connecting side */
    net_link *prev, *next;      /* of the listener's */
    link_state state;
    bool was_up, freed;         /* freed: by its owner from within a callback; finish() does it */
    bool welcoming;             /* within `up` of an accepted link */
    int depth;                  /* callbacks we are within */
    const char *how;            /* LINK_LOST: "lost %s: %s" and so on */
    char why[256];
    struct bufferevent *bev;    /* NULL when pausing */
    session *talk;              /* as long as bev */
    struct bufferevent *parting;
    char where[128], peer[400]; /* the peer's address; the peer in words */
    double last_heard, up_since;
    double last_drained;        /* when some of what waits to be sent was taken, or began to wait */
    struct event *timer, *finish;
    buf out;                    /* a message being sent */
    void *data;
    /* connecting side only */
    address to;
    struct evdns_base *dns;     /* NULL for numeric addresses */
    double pause;
    uint64_t n_pauses;
};

struct link_listener {
    endpoint end;
    struct evconnlistener *socket;
    struct event *resting;      /* of socket */
    char address[128];
    struct sockaddr_un path;    /* sun_path "" unless a unix socket with a file */
    net_link *links;
};

/* How the log tells of an end: of whom, and why. */
static const char LOST[] = "lost %s: %s", REFUSED[] = "refused %s: %s", REFUSED_BY[] = "refused by %s: %s",
                  UNREACHABLE[] = "cannot reach %s: %s; trying again", STRANGER[] = "%s did not say who it is: %s";

link_options link_options_default(void)
{
    return (link_options){.ping_every = 1, .silence = 5, .max_message = (size_t)64 << 20, .max_unsent = (size_t)128 << 20};
}

/* A peer that is gone must be an error of write(), not the end of the process. */
static void ignore_sigpipe(void)
{
    signal(SIGPIPE, SIG_IGN);
}

static char *own_name(void)
{
    char *host = identity_host(), *name = xasprintf("%s/%d", host, (int)getpid());
    free(host);
    return name;
}

static int endpoint_init(endpoint *end, struct event_base *loop, const link_options *o, const link_events *e,
                         proof_side side, err *error)
{
    CHECK(o->secret && o->ping_every > 0 && o->silence > 0);
    *end = (endpoint){.loop = loop, .opt = *o, .events = *e, .side = side};
    end->opt.secret = xstrdup(o->secret);
    end->opt.name = o->name ? xasprintf("%.200s", o->name) : own_name();
    end->opt.instance = o->instance ? o->instance : identity_random();
    end->opt.model = o->model ? xstrdup(o->model) : NULL;
    ignore_sigpipe();
    if (side == SIDE_LISTENING && o->tls_cert)
        end->tls = tls_listening(o->tls_cert, o->tls_key, error);
    else if (side == SIDE_CONNECTING && o->tls_ca)
        end->tls = tls_connecting(o->tls_ca, error);
    else
        return 0;
    return end->tls ? 0 : -1;
}

static void endpoint_deinit(endpoint *end)
{
    SSL_CTX_free(end->tls);
    free((char *)end->opt.secret);
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
    session_stop(l->talk);
    bufferevent_disable(l->bev, EV_READ);
    if (told)
        l->parting = l->bev;
    l->state = LINK_LOST;
    event_del(l->timer);
    event_active(l->finish, EV_TIMEOUT, 0);
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
    l->up_since = clock_now();
    timer_set(l->timer, l->end->opt.ping_every);
    name_peer(l);
    l->welcoming = l->listener;
    l->end->events.up(l->end->events.ctx, l, hello);
    l->welcoming = false;
    if (l->state == LINK_TALKING)
        log_info("%s is up", l->peer);
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

static void on_bytes(struct bufferevent *bev, void *ctx)
{
    (void)bev;
    net_link *l = ctx;
    l->last_heard = clock_now();
    l->depth++;
    session_read(l->talk);
    l->depth--;
}

/* TCP, and TLS where used, are there. */
static void connected(net_link *l)
{
    int on = 1;
    setsockopt(bufferevent_getfd(l->bev), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);    /* a unix socket has no need of it */
    l->state = LINK_TALKING;
    session_begin(l->talk, l->to.is_unix ? "localhost" : l->to.host);
}

/* What went wrong with the connection, in words. */
static void explain(const net_link *l, short what, char *why, size_t n)
{
    struct bufferevent *bev = l->bev;
    int os = EVUTIL_SOCKET_ERROR(), dns = bufferevent_socket_get_dns_error(bev);
    unsigned long tls = bufferevent_get_openssl_error(bev);
    const char *of_tls = tls ? ERR_reason_error_string(tls) : NULL;
    if (of_tls)
        snprintf(why, n, "TLS: %s", of_tls);
    else if (what & BEV_EVENT_EOF)
        snprintf(why, n, "%s", l->state == LINK_CONNECTING ? "no connection" : "it closed the connection");
    else if (dns)
        snprintf(why, n, "%s", evutil_gai_strerror(dns));
    else
        snprintf(why, n, "%s", os ? evutil_socket_error_to_string(os) : "the connection broke");
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    (void)bev;
    net_link *l = ctx;
    if (l->state == LINK_LOST)
        return;
    if (what & BEV_EVENT_CONNECTED) {
        connected(l);
        return;
    }
    char why[200];
    explain(l, what, why, sizeof why);
    miss(l, why);
}

static void destroy(net_link *l);

static void free_parting(net_link *l)
{
    if (l->parting)
        bufferevent_free(l->parting);
    l->parting = NULL;
}

static void parting_event(struct bufferevent *bev, short what, void *ctx)
{
    (void)bev;
    (void)what;
    net_link *l = ctx;
    free_parting(l);
    if (l->listener)
        destroy(l);
}

static void parting_read(struct bufferevent *bev, void *ctx)
{
    (void)ctx;
    struct evbuffer *in = bufferevent_get_input(bev);
    evbuffer_drain(in, evbuffer_get_length(in));
}

static void parting_written(struct bufferevent *bev, void *ctx)
{
    (void)ctx;
    shutdown(bufferevent_getfd(bev), SHUT_WR);
}

/* Leave the connection open until the peer has read its last message and closed, or a moment has passed: closing with
 * bytes unread here would take the message from the peer. A connecting link's next try ends it, too. */
static void start_parting(net_link *l)
{
    bufferevent_setcb(l->parting, parting_read, parting_written, parting_event, l);
    bufferevent_enable(l->parting, EV_READ | EV_WRITE);
    if (l->listener)
        timer_set(l->timer, PARTING_SECONDS);
    if (evbuffer_get_length(bufferevent_get_output(l->parting)) == 0)
        parting_written(l->parting, l);
}

/* Back to how it was before the connection. */
static void disconnect(net_link *l)
{
    session_free(l->talk);
    if (l->bev && l->bev != l->parting)
        bufferevent_free(l->bev);
    l->talk = NULL;
    l->bev = NULL;
}

/* Whether this was logged not long ago, or too much else; if not it is remembered in place of the oldest. */
static bool was_said(endpoint *end, const char *what)
{
    double now = clock_now();
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
    timer_set(l->timer, l->pause * jitter);
    l->pause = l->pause * 2 < LONGEST_PAUSE ? l->pause * 2 : LONGEST_PAUSE;
}

/* Second half of lose(), outside of all callbacks. */
static void finish(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
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
    bool was_stable = was_up && clock_now() - l->up_since > STABLE_AFTER;
    if (was_stable)
        memset(l->end->said, 0, sizeof l->end->said);
    start_pausing(l, was_stable);
}

/* Whatever is to be sent: a burst may be large, but the peer has to be taking it. */
static bool is_reading(const net_link *l)
{
    return evbuffer_get_length(bufferevent_get_output(l->bev)) <= l->end->opt.max_unsent ||
           clock_now() - l->last_drained <= l->end->opt.silence;
}

static void check_peer(net_link *l)
{
    double silent = clock_now() - l->last_heard;
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
    session_ping(l->talk);
    timer_set(l->timer, l->end->opt.ping_every);
}

static void start_connecting(net_link *l);

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    net_link *l = ctx;
    if (l->state == LINK_PAUSING)
        start_connecting(l);
    else if (l->state == LINK_LOST)
        destroy(l);             /* it has been parting for long enough */
    else if (l->was_up)
        check_peer(l);
    else
        miss(l, "too slow");
}

static net_link *new_link(endpoint *end, link_listener *listener)
{
    net_link *l = XNEW(net_link);
    *l = (net_link){.end = end, .listener = listener, .state = LINK_PAUSING};
    l->timer = evtimer_new(end->loop, on_timer, l);
    l->finish = evtimer_new(end->loop, finish, l);
    CHECK(l->timer && l->finish);
    return l;
}

/* Take it out of its listener's list. */
static void unlist(net_link *l)
{
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
    event_free(l->timer);
    event_free(l->finish);
    buf_free(&l->out);
    if (l->listener) {
        unlist(l);
    } else {
        if (l->dns)
            evdns_base_free(l->dns, 0);
        endpoint_deinit(l->end);
        free(l->end);
    }
    free(l);
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *change, void *ctx)
{
    (void)out;
    net_link *l = ctx;
    if (change->n_deleted > 0 || change->orig_size == 0)
        l->last_drained = clock_now();
}

/* The connection is being made: everything from here to `up` must be done within `silence` seconds. */
static void begin(net_link *l, struct bufferevent *bev)
{
    CHECK(bev);
    session_events events = {talk_is_up, talk_message, talk_is_over, l};
    l->bev = bev;
    l->talk = session_new(bev, !l->end->tls, &l->end->opt, l->end->side, &events);
    l->state = LINK_CONNECTING;
    l->last_heard = clock_now();
    if (l->end->tls)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    evbuffer_add_cb(bufferevent_get_output(bev), on_output, l);
    bufferevent_setcb(bev, on_bytes, NULL, on_event, l);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    timer_set(l->timer, l->end->opt.silence);
}

static struct bufferevent *outgoing(const net_link *l)
{
    if (!l->end->tls)
        return bufferevent_socket_new(l->end->loop, -1, BEV_OPT_CLOSE_ON_FREE);
    return bufferevent_openssl_socket_new(l->end->loop, -1, tls_connection_to(l->end->tls, l->to.host), BUFFEREVENT_SSL_CONNECTING,
                                          BEV_OPT_CLOSE_ON_FREE);
}

static int dial(net_link *l, err *e)
{
    struct sockaddr_storage s;
    socklen_t len;
    if (!l->dns && address_resolve(&l->to, &s, &len, e))
        return -1;
    int status = l->dns ? bufferevent_socket_connect_hostname(l->bev, l->dns, AF_UNSPEC, l->to.host, atoi(l->to.port))
                        : bufferevent_socket_connect(l->bev, (struct sockaddr *)&s, (int)len);
    return status ? err_set(e, "%s", strerror(errno)) : 0;
}

static void start_connecting(net_link *l)
{
    err e;
    free_parting(l);
    begin(l, outgoing(l));
    if (dial(l, &e))
        miss(l, e.msg);
}

/* Whether a host name has to be looked up. */
static bool needs_dns(const address *a)
{
    struct sockaddr_storage s;
    int len = sizeof s;
    return !a->is_unix && evutil_parse_sockaddr_port(a->host, (struct sockaddr *)&s, &len) != 0;
}

net_link *link_connect(struct event_base *loop, const char *to, const link_options *o, const link_events *e, err *error)
{
    address a;
    if (address_parse(&a, to, error))
        return NULL;
    if (a.is_unix && o->tls_ca) {
        err_set(error, "%s: a unix socket has no use for TLS", to);
        return NULL;
    }
    endpoint *end = XNEW(endpoint);
    if (endpoint_init(end, loop, o, e, SIDE_CONNECTING, error)) {
        endpoint_deinit(end);
        free(end);
        return NULL;
    }
    net_link *l = new_link(end, NULL);
    l->to = a;
    snprintf(l->where, sizeof l->where, "%s", to);
    name_peer(l);
    if (needs_dns(&a))
        l->dns = evdns_base_new(loop, EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    timer_set(l->timer, 0);
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
    event_active(l->finish, EV_TIMEOUT, 0);
}

/* Where there are too many strangers the oldest has to go: one that is in earnest needs only a moment. */
static void make_room(link_listener *s)
{
    int n = 0;
    net_link *oldest = NULL;
    for (net_link *l = s->links; l; l = l->next)
        if (!l->was_up) {
            n++;
            oldest = l;
        }
    if (n < MAX_STRANGERS)
        return;
    if (oldest->state != LINK_LOST) {
        oldest->how = STRANGER;
        snprintf(oldest->why, sizeof oldest->why, "%d others have not done so either", n - 1);
        name_peer(oldest);
        log_loss(oldest);
    }
    destroy(oldest);
}

static struct bufferevent *incoming(const endpoint *end, evutil_socket_t fd)
{
    if (!end->tls)
        return bufferevent_socket_new(end->loop, fd, BEV_OPT_CLOSE_ON_FREE);
    return bufferevent_openssl_socket_new(end->loop, fd, SSL_new(end->tls), BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *from, int from_len, void *ctx)
{
    (void)socket;
    link_listener *s = ctx;
    make_room(s);
    net_link *l = new_link(&s->end, s);
    l->next = s->links;
    if (l->next)
        l->next->prev = l;
    s->links = l;
    address_print(from, (socklen_t)from_len, l->where, sizeof l->where);
    begin(l, incoming(&s->end, fd));
    if (!s->end.tls)
        connected(l);
}

/* A socket file that nobody listens on any more is in the way of a new one. */
static void remove_stale(const struct sockaddr_un *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)path, sizeof *path) != 0 && errno == ECONNREFUSED)
        unlink(path->sun_path);
    if (fd >= 0)
        close(fd);
}

static int open_socket(link_listener *s, const char *at, err *e)
{
    address a;
    struct sockaddr_storage where;
    socklen_t len;
    if (address_parse(&a, at, e) || address_resolve(&a, &where, &len, e))
        return -1;
    if (a.is_unix && s->end.tls)
        return err_set(e, "%s: a unix socket has no use for TLS", at);
    bool has_file = a.is_unix && a.path.sun_path[0];
    if (has_file)
        remove_stale(&a.path);
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    s->socket = evconnlistener_new_bind(s->end.loop, on_accept, s, flags, -1, (struct sockaddr *)&where, (int)len);
    if (!s->socket)
        return err_set(e, "cannot listen on %s: %s", at, strerror(errno));
    s->resting = accept_rest(s->socket);
    s->path = a.path;
    if (has_file)
        chmod(a.path.sun_path, 0600);
    len = sizeof where;
    getsockname(evconnlistener_get_fd(s->socket), (struct sockaddr *)&where, &len);
    address_print((struct sockaddr *)&where, len, s->address, sizeof s->address);
    return 0;
}

link_listener *link_listen(struct event_base *loop, const char *at, const link_options *o, const link_events *e, err *error)
{
    link_listener *s = XNEW(link_listener);
    if (endpoint_init(&s->end, loop, o, e, SIDE_LISTENING, error) || open_socket(s, at, error)) {
        link_listener_free(s);
        return NULL;
    }
    return s;
}

const char *link_listener_address(const link_listener *s)
{
    return s->address;
}

void link_listener_free(link_listener *s)
{
    if (!s)
        return;
    while (s->links)
        destroy(s->links);
    if (s->socket) {
        event_free(s->resting);
        evconnlistener_free(s->socket);
        if (s->path.sun_path[0])
            unlink(s->path.sun_path);
    }
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

void link_drop(net_link *l, const char *why)
{
    if (l->state != LINK_TALKING)
        return;
    if (l->welcoming)
        l->was_up = false;
    session_close(l->talk, why);
    lose(l, REFUSED, true, why);
}
