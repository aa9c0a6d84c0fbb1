/* socket_stream.c - streams over sockets: TCP and unix sockets, with and without TLS; see stream.h, event_loop.h */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/accept.h"
#include "net/address.h"
#include "net/event_loop.h"
#include "net/timer.h"
#include "net/tls.h"

enum { DESCRIPTORS_KEPT = 32, ACCEPTED_PER_TURN = 32 };

typedef struct {
    net_stream base; /* first */
    net_loop *on;
    struct bufferevent *bev;
    bool is_plain; /* may be written to directly */
    bool finishing;
} socket_stream;

typedef struct {
    dialer base; /* first */
    event_loop *on;
    address to;
    const credentials *own; /* borrowed */
    struct evdns_base *dns; /* NULL for numeric addresses */
} socket_dialer;

typedef struct {
    acceptor base; /* first */
    event_loop *on;
    acceptor_events events;
    const credentials *own; /* borrowed */
    struct evconnlistener *socket;
    struct event *backoff;   /* from accept_add_backoff(socket) */
    struct event *next_turn; /* pending: enough connections were accepted in this turn; it enables socket again */
    int n_taken;             /* connections accepted in this turn of the loop */
    char address[128];
    struct sockaddr_un path; /* of a unix socket's file; sun_path "": there is none */
} socket_acceptor;

/* Writes into why what went wrong with the connection. */
static void explain(const socket_stream *s, short what, char *why, size_t n)
{
    int os = EVUTIL_SOCKET_ERROR(), dns = bufferevent_socket_get_dns_error(s->bev);
    unsigned long tls = bufferevent_get_openssl_error(s->bev);
    const char *of_tls = tls ? ERR_reason_error_string(tls) : NULL;
    if (of_tls)
        snprintf(why, n, "TLS: %s", of_tls);
    else if (what & BEV_EVENT_EOF)
        snprintf(why, n, "%s", s->base.is_open ? "it closed the connection" : "no connection");
    else if (dns)
        snprintf(why, n, "%s", evutil_gai_strerror(dns));
    else
        snprintf(why, n, "%s", os ? evutil_socket_error_to_string(os) : "the connection broke");
}

static void set_open(socket_stream *s)
{
    int on = 1;
    setsockopt(bufferevent_getfd(s->bev), IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on); /* fails on a unix socket, which does not need it */
    s->base.is_open = true;
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    (void)bev;
    socket_stream *s = ctx;
    stream_events *e = &s->base.events;
    if (what & BEV_EVENT_CONNECTED) {
        set_open(s);
        if (e->open)
            e->open(e->ctx);
        return;
    }
    char why[200];
    explain(s, what, why, sizeof why);
    if (e->lost)
        e->lost(e->ctx, why);
}

static void on_bytes(struct bufferevent *bev, void *ctx)
{
    socket_stream *s = ctx;
    stream_events *e = &s->base.events;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (s->finishing)
        evbuffer_drain(in, evbuffer_get_length(in));
    else if (e->bytes)
        e->bytes(e->ctx);
}

static void on_written(struct bufferevent *bev, void *ctx)
{
    if (((socket_stream *)ctx)->finishing)
        shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *change, void *ctx)
{
    (void)out;
    socket_stream *s = ctx;
    if (change->n_deleted > 0 || change->orig_size == 0)
        s->base.drained_at = loop_now(s->on);
}

static struct evbuffer *output(socket_stream *s)
{
    return bufferevent_get_output(s->bev);
}

/* Writes at once what the socket takes, without a turn of the loop: a token leaves sooner. The rest, and everything
 * under TLS, goes through the bufferevent. */
static void write_bytes(net_stream *base, const void *bytes, size_t n)
{
    socket_stream *s = (socket_stream *)base;
    ssize_t done = 0;
    if (s->is_plain && evbuffer_get_length(output(s)) == 0)
        done = write(bufferevent_getfd(s->bev), bytes, n);
    size_t sent = done > 0 ? (size_t)done : 0;
    if (sent < n)
        bufferevent_write(s->bev, (const char *)bytes + sent, n - sent);
}

static size_t unsent(net_stream *base)
{
    return evbuffer_get_length(output((socket_stream *)base));
}

static const char *peek(net_stream *base, size_t most, size_t *n)
{
    struct evbuffer *in = bufferevent_get_input(((socket_stream *)base)->bev);
    size_t all = evbuffer_get_length(in);
    *n = all < most ? all : most;
    return (const char *)evbuffer_pullup(in, (ev_ssize_t)*n);
}

static size_t read_bytes(net_stream *base, void *to, size_t n)
{
    struct evbuffer *in = bufferevent_get_input(((socket_stream *)base)->bev);
    size_t all = evbuffer_get_length(in);
    n = n < all ? n : all;
    if (to)
        evbuffer_remove(in, to, n);
    else
        evbuffer_drain(in, n);
    return n;
}

static void finish(net_stream *base)
{
    socket_stream *s = (socket_stream *)base;
    s->finishing = true;
    bufferevent_enable(s->bev, EV_READ | EV_WRITE);
    on_bytes(s->bev, s);
    if (unsent(base) == 0)
        on_written(s->bev, s);
}

static void free_stream(net_stream *base)
{
    socket_stream *s = (socket_stream *)base;
    bufferevent_free(s->bev);
    free(s);
}

static bool peer_has_role(net_stream *base, const char *role)
{
    const SSL *s = bufferevent_openssl_get_ssl(((socket_stream *)base)->bev);
    return s && tls_peer_has_role(s, role);
}

static bool channel_key(net_stream *base, uint8_t key[32])
{
    SSL *s = bufferevent_openssl_get_ssl(((socket_stream *)base)->bev);
    if (s)
        tls_channel_key(s, key);
    return s;
}

static socket_stream *stream_over(net_loop *l, struct bufferevent *bev, bool is_plain)
{
    static const stream_ops ops = {.write = write_bytes,
                                   .unsent = unsent,
                                   .peek = peek,
                                   .read = read_bytes,
                                   .finish = finish,
                                   .free = free_stream,
                                   .peer_has_role = peer_has_role,
                                   .channel_key = channel_key};
    CHECK(bev);
    socket_stream *s = XNEW(socket_stream);
    *s = (socket_stream){.base.ops = &ops, .on = l, .bev = bev, .is_plain = is_plain};
    if (!is_plain)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    evbuffer_add_cb(output(s), on_output, s);
    bufferevent_setcb(bev, on_bytes, on_written, on_event, s);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    return s;
}

static int start_connecting(socket_dialer *d, socket_stream *s, err *e)
{
    struct sockaddr_storage where;
    socklen_t len;
    if (!d->dns && address_resolve(&d->to, &where, &len, e))
        return -1;
    int status = d->dns ? bufferevent_socket_connect_hostname(s->bev, d->dns, AF_UNSPEC, d->to.host, atoi(d->to.port))
                        : bufferevent_socket_connect(s->bev, (struct sockaddr *)&where, (int)len);
    return status ? err_set(e, "%s", strerror(errno)) : 0;
}

static net_stream *dial(dialer *base, const stream_events *events, err *e)
{
    socket_dialer *d = (socket_dialer *)base;
    struct event_base *on = d->on->events;
    SSL_CTX *tls = d->own->tls;
    struct bufferevent *bev = tls ? bufferevent_openssl_socket_new(on, -1, tls_connection_to(tls, d->to.host),
                                                                   BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE)
                                  : bufferevent_socket_new(on, -1, BEV_OPT_CLOSE_ON_FREE);
    socket_stream *s = stream_over(&d->on->base, bev, !tls);
    if (start_connecting(d, s, e)) {
        free_stream(&s->base);
        return NULL;
    }
    s->base.events = *events;
    return &s->base;
}

static void free_dialer(dialer *base)
{
    socket_dialer *d = (socket_dialer *)base;
    if (d->dns)
        evdns_base_free(d->dns, 0);
    free(d);
}

/* Returns whether the address has a host name, which must be looked up. */
static bool needs_dns(const address *a)
{
    struct sockaddr_storage s;
    int len = sizeof s;
    return !a->is_unix && evutil_parse_sockaddr_port(a->host, (struct sockaddr *)&s, &len) != 0;
}

static int prepare_dialing(socket_dialer *d, const char *to, err *e)
{
    if (address_parse(&d->to, to, e))
        return -1;
    if (d->to.is_unix && d->own->tls)
        return err_set(e, "%s: a unix socket has no use for TLS", to);
    if (needs_dns(&d->to))
        d->dns = evdns_base_new(d->on->events, EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    d->base.host = d->to.is_unix ? "localhost" : d->to.host;
    return 0;
}

dialer *socket_dialer_new(net_loop *l, const char *to, const credentials *own, err *e)
{
    static const dialer_ops ops = {.dial = dial, .free = free_dialer};
    socket_dialer *d = XNEW(socket_dialer);
    *d = (socket_dialer){.base.ops = &ops, .on = (event_loop *)l, .own = own};
    if (prepare_dialing(d, to, e) == 0)
        return &d->base;
    free_dialer(&d->base);
    return NULL;
}

/* Returns whether fd, the lowest that was free, is among the last DESCRIPTORS_KEPT that this process can have: they are
 * reserved for files it opens itself, and for peers that prove themselves. */
static bool is_scarce(int fd)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && (rlim_t)fd + DESCRIPTORS_KEPT >= files.rlim_cur;
}

/* Counts a connection, and stops accepting for this turn of the loop after ACCEPTED_PER_TURN: libevent would accept all
 * that wait before it does anything else, and a burst of connections would hold up everything. */
static void count_accepted(socket_acceptor *a)
{
    if (++a->n_taken < ACCEPTED_PER_TURN)
        return;
    evconnlistener_disable(a->socket);
    timer_set(a->next_turn, 0);
}

static void accept_again(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    socket_acceptor *a = ctx;
    a->n_taken = 0;
    evconnlistener_enable(a->socket);
}

static void on_accept_error(struct evconnlistener *socket, void *ctx)
{
    socket_acceptor *a = ctx;
    int why = errno;
    if ((why == EMFILE || why == ENFILE) && a->events.spare(a->events.ctx))
        return; /* libevent tries again on the next turn */
    log_warn("cannot take a connection: %s", strerror(why));
    evconnlistener_disable(socket); /* `backoff` enables it again */
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *from, int from_len, void *ctx)
{
    (void)socket;
    socket_acceptor *a = ctx;
    struct event_base *on = a->on->events;
    if (is_scarce(fd))
        a->events.spare(a->events.ctx);
    SSL_CTX *tls = a->own->tls;
    struct bufferevent *bev =
        tls ? bufferevent_openssl_socket_new(on, fd, SSL_new(tls), BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
            : bufferevent_socket_new(on, fd, BEV_OPT_CLOSE_ON_FREE);
    socket_stream *s = stream_over(&a->on->base, bev, !tls);
    if (!tls)
        set_open(s);
    char where[128];
    address_print(from, (socklen_t)from_len, where, sizeof where);
    a->events.accepted(a->events.ctx, &s->base, where);
    count_accepted(a);
}

/* Removes a socket file that nobody listens on any more: bind() would fail. */
static void remove_stale(const struct sockaddr_un *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)path, sizeof *path) != 0 && errno == ECONNREFUSED)
        unlink(path->sun_path);
    if (fd >= 0)
        close(fd);
}

static int open_socket(socket_acceptor *s, const char *at, err *e)
{
    address a;
    struct sockaddr_storage where;
    socklen_t len;
    if (address_parse(&a, at, e) || address_resolve(&a, &where, &len, e))
        return -1;
    if (a.is_unix && s->own->tls)
        return err_set(e, "%s: a unix socket has no use for TLS", at);
    bool has_file = a.is_unix && a.path.sun_path[0];
    if (has_file)
        remove_stale(&a.path);
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    s->socket = evconnlistener_new_bind(s->on->events, on_accept, s, flags, ACCEPT_BACKLOG, (struct sockaddr *)&where,
                                        (int)len);
    if (!s->socket)
        return err_set(e, "cannot listen on %s: %s", at, strerror(errno));
    s->backoff = accept_add_backoff(s->socket);
    evconnlistener_set_error_cb(s->socket, on_accept_error);
    s->next_turn = evtimer_new(s->on->events, accept_again, s);
    CHECK(s->next_turn);
    s->path = a.path;
    if (has_file)
        chmod(a.path.sun_path, 0600);
    len = sizeof where;
    getsockname(evconnlistener_get_fd(s->socket), (struct sockaddr *)&where, &len);
    address_print((struct sockaddr *)&where, len, s->address, sizeof s->address);
    return 0;
}

static void free_acceptor(acceptor *base)
{
    socket_acceptor *a = (socket_acceptor *)base;
    if (a->socket) {
        event_free(a->backoff);
        event_free(a->next_turn);
        evconnlistener_free(a->socket);
        if (a->path.sun_path[0])
            unlink(a->path.sun_path);
    }
    free(a);
}

acceptor *socket_acceptor_new(net_loop *l, const char *at, const credentials *own, const acceptor_events *events,
                              err *e)
{
    socket_acceptor *a = XNEW(socket_acceptor);
    *a = (socket_acceptor){.base.free = free_acceptor, .on = (event_loop *)l, .own = own, .events = *events};
    a->base.address = a->address;
    if (open_socket(a, at, e) == 0)
        return &a->base;
    free_acceptor(&a->base);
    return NULL;
}
