/* http_server.c - see http_server.h: which connections are accepted; http_conn.c serves them */
#include "net/http_server.h"

#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/accept.h"
#include "net/address.h"
#include "net/http_conn.h"

struct http_server {
    http_shared s;
    struct evconnlistener *socket; /* NULL once it is stopped */
    struct event *backoff;         /* from accept_add_backoff(socket) */
    char address[128];
};

/* Returns whether there is room for one more connection of a kind, after closing the one that has kept us waiting
 * longest if need be. */
static bool make_room(http_shared *s, bool reserve)
{
    int most = reserve ? s->options.reserve : s->options.max_connections;
    if (s->n[reserve] < most)
        return true;
    http_conn *longest = TAILQ_FIRST(&s->waiting[reserve]);
    if (longest)
        http_conn_close(longest);
    return s->n[reserve] < most;
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *from, int from_len, void *ctx)
{
    (void)socket;
    http_shared *s = &((http_server *)ctx)->s;
    bool reserve = !make_room(s, false);
    char client[128];
    if (reserve && !make_room(s, true)) {
        close(fd);
        return;
    }
    address_print(from, (socklen_t)from_len, client, sizeof client);
    http_conn_new(s, fd, client, reserve);
}

/* Sets options of the listening socket, which its connections inherit: answers are sent at once, the kernel buffers a
 * bounded part of them, and vanished clients are noticed (keep-alive). */
static void set_up_socket(int fd, size_t send_buffer)
{
    int one = 1, idle = 60, every = 15, size = (int)send_buffer;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    if (size)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

static int open_socket(http_server *v, const char *at, err *e)
{
    address a;
    struct sockaddr_storage where;
    socklen_t len;
    if (address_parse(&a, at, e))
        return -1;
    if (a.is_unix)
        return err_set(e, "%s: HTTP needs HOST:PORT", at);
    if (address_resolve(&a, &where, &len, e))
        return -1;
    const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    v->socket = evconnlistener_new_bind(v->s.loop->events, on_accept, v, flags, ACCEPT_BACKLOG,
                                        (struct sockaddr *)&where, (int)len);
    if (!v->socket)
        return err_set(e, "cannot listen on %s: %s%s", at, strerror(errno),
                       errno == EADDRINUSE ? "; stop what is there or choose another port" : "");
    set_up_socket(evconnlistener_get_fd(v->socket), v->s.options.send_buffer);
    v->backoff = accept_add_backoff(v->socket);
    len = sizeof where;
    CHECK(getsockname(evconnlistener_get_fd(v->socket), (struct sockaddr *)&where, &len) == 0);
    address_print((struct sockaddr *)&where, len, v->address, sizeof v->address);
    return 0;
}

http_server *http_server_new(event_loop *l, const http_options *o, const http_events *events, err *e)
{
    http_server *v = XNEW(http_server);
    v->s = (http_shared){.loop = l, .options = *o, .events = *events, .scratch = xmalloc(HTTP_SCRATCH)};
    v->s.options.listen = NULL;
    for (int i = 0; i < 2; i++) {
        TAILQ_INIT(&v->s.waiting[i]);
        TAILQ_INIT(&v->s.busy[i]);
    }
    if (open_socket(v, o->listen, e) == 0)
        return v;
    http_server_free(v);
    return NULL;
}

void http_server_set_tls(http_server *v, SSL_CTX *tls)
{
    SSL_CTX_free(v->s.tls);
    v->s.tls = tls;
}

static void close_socket(http_server *v)
{
    if (!v->socket)
        return;
    event_free(v->backoff);
    evconnlistener_free(v->socket);
    v->socket = NULL;
}

static void close_all(http_conn_list *l)
{
    for (http_conn *c; (c = TAILQ_FIRST(l));)
        http_conn_close(c);
}

void http_server_free(http_server *v)
{
    if (!v)
        return;
    close_socket(v);
    for (int i = 0; i < 2; i++) {
        close_all(&v->s.waiting[i]);
        close_all(&v->s.busy[i]);
    }
    SSL_CTX_free(v->s.tls);
    free(v->s.scratch);
    free(v);
}

const char *http_server_address(const http_server *v)
{
    return v->address;
}

void http_server_stop(http_server *v)
{
    close_socket(v);
    v->s.stopping = true;
    for (int i = 0; i < 2; i++)
        for (http_conn *c = TAILQ_FIRST(&v->s.waiting[i]), *next; c; c = next) {
            next = http_conn_after(c);
            if (http_conn_is_idle(c))
                http_conn_close(c);
        }
}

int http_server_n_connections(const http_server *v)
{
    return v->s.n[0] + v->s.n[1];
}

int http_server_n_leaving(const http_server *v)
{
    return v->s.n_leaving;
}
