/* http_reply.c - see http_reply.h
 *
 * While evhttp waits for an answer it does not read from the connection, so it does not notice that the client has
 * gone: an event of our own does. Until the answer has left, evhttp's read timeout must not run, as the client has
 * nothing to say; only writing may time out. A stream's chunks do not wait for the loop to find the socket writable: while
 * nothing else is waiting they go straight to the kernel, which saves a turn of the loop and two thirds of the system
 * calls of a token. */
#include "frontend/http_reply.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"
#include "net/timer.h"

#define MAX_READ_AHEAD (64u << 10)      /* bytes of further requests taken in while one is answered */

typedef struct {
    reply base;                         /* first */
    struct evhttp_request *req;
    const reply_limits *limits;         /* borrowed */
    struct event *watch;                /* the client closes, or (activated by us) is to be cut off */
    bool chunked;                       /* of a stream: as evhttp has announced */
    buf unsent;                         /* of a stream: what neither the kernel nor evhttp has */
    bool stuck;                         /* it has too much unread */
} http_reply;

static struct bufferevent *stream_of(const http_reply *r)
{
    return evhttp_connection_get_bufferevent(evhttp_request_get_connection(r->req));
}

static void reply_free(http_reply *r)
{
    event_free(r->watch);
    buf_free(&r->unsent);
    free(r);
}

/* The connection is being freed, by us or by evhttp after an error. evhttp frees a request that is still on its
 * connection; one it has taken off it is left to us. */
static void on_close(struct evhttp_connection *c, void *ctx)
{
    (void)c;
    http_reply *r = ctx;
    if (!evhttp_request_get_connection(r->req))
        evhttp_request_free(r->req);
    void (*gone)(void *, reply_loss) = r->base.gone;
    void *owner = r->base.ctx;
    reply_loss why = r->stuck ? CLIENT_DOES_NOT_READ : CLIENT_LEFT;
    reply_free(r);
    gone(owner, why);
}

static void on_watch(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    http_reply *r = ctx;
    evhttp_connection_free(evhttp_request_get_connection(r->req));
}

static void set_timeouts(struct bufferevent *b, const reply_limits *l, bool reading)
{
    struct timeval t = timer_seconds(l->timeout);
    bufferevent_set_timeouts(b, reading ? &t : NULL, &t);
}

static void add_header(reply *base, const char *name, const char *value)
{
    evhttp_add_header(evhttp_request_get_output_headers(((http_reply *)base)->req), name, value);
}

static void on_lost_at_last(struct evhttp_connection *c, void *limits)
{
    (void)c;
    --*((const reply_limits *)limits)->n_leaving;
}

/* The connection is as it was before this request. */
static void on_sent(struct evhttp_request *req, void *limits)
{
    struct evhttp_connection *c = evhttp_request_get_connection(req);
    struct bufferevent *b = evhttp_connection_get_bufferevent(c);
    evhttp_connection_set_closecb(c, NULL, NULL);
    bufferevent_setwatermark(b, EV_READ, 0, 0);
    set_timeouts(b, limits, true);
    --*((const reply_limits *)limits)->n_leaving;
}

/* evhttp has all it needs: the rest is between it and the client. */
static void let_go(http_reply *r)
{
    void *limits = (void *)r->limits;
    ++*r->limits->n_leaving;
    evhttp_request_set_on_complete_cb(r->req, on_sent, limits);
    evhttp_connection_set_closecb(evhttp_request_get_connection(r->req), on_lost_at_last, limits);
    reply_free(r);
}

static void send_whole(reply *base, int status, const char *type, const buf *body, bool close)
{
    http_reply *r = (http_reply *)base;
    add_header(base, "Content-Type", type);
    if (close)
        add_header(base, "Connection", "close");
    struct evhttp_request *req = r->req;
    struct evbuffer *out = evbuffer_new();
    CHECK(out);
    evbuffer_add(out, body->data, body->len);
    set_timeouts(stream_of(r), r->limits, false);
    let_go(r);
    evhttp_send_reply(req, status, NULL, out);
    evbuffer_free(out);
}

static void begin(reply *base, const char *type)
{
    http_reply *r = (http_reply *)base;
    add_header(base, "Content-Type", type);
    add_header(base, "Cache-Control", "no-cache");
    set_timeouts(stream_of(r), r->limits, false);
    evhttp_send_reply_start(r->req, 200, NULL);
    r->chunked = evhttp_find_header(evhttp_request_get_output_headers(r->req), "Transfer-Encoding") != NULL;
}

static void add_chunk(http_reply *r, const buf *bytes)
{
    if (r->chunked)
        buf_printf(&r->unsent, "%zx\r\n", bytes->len);
    buf_add(&r->unsent, bytes->data, bytes->len);
    if (r->chunked)
        buf_add_str(&r->unsent, "\r\n");
}

/* How much of it the kernel took. An error is left to evhttp, which meets it when it writes the rest. */
static size_t send_now(struct bufferevent *b, const buf *bytes)
{
    ssize_t n = send(bufferevent_getfd(b), bytes->data, bytes->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n > 0 ? (size_t)n : 0;
}

static void add(reply *base, const buf *bytes)
{
    http_reply *r = (http_reply *)base;
    if (r->stuck)
        return;
    struct bufferevent *b = stream_of(r);
    bool first = r->unsent.len == 0 && evbuffer_get_length(bufferevent_get_output(b)) == 0;
    add_chunk(r, bytes);
    if (first)
        buf_drop(&r->unsent, send_now(b, &r->unsent));
}

static void settle(reply *base)
{
    http_reply *r = (http_reply *)base;
    if (r->unsent.len == 0)
        return;
    struct bufferevent *b = stream_of(r);
    bufferevent_write(b, r->unsent.data, r->unsent.len);
    buf_clear(&r->unsent);
    if (evbuffer_get_length(bufferevent_get_output(b)) > r->limits->max_unsent) {
        r->stuck = true;
        event_active(r->watch, EV_CLOSED, 0);
    }
}

static bool end(reply *base)
{
    http_reply *r = (http_reply *)base;
    struct evhttp_request *req = r->req;
    settle(base);
    if (r->stuck) {
        struct evhttp_connection *c = evhttp_request_get_connection(req);
        evhttp_connection_set_closecb(c, NULL, NULL);
        reply_free(r);
        evhttp_connection_free(c);
        return false;
    }
    let_go(r);
    evhttp_send_reply_end(req);
    return true;
}

reply *http_reply_new(struct evhttp_request *req, const reply_limits *l)
{
    static const reply_ops ops = {.add_header = add_header, .send = send_whole, .begin = begin, .add = add, .settle = settle, .end = end};
    http_reply *r = XNEW(http_reply);
    *r = (http_reply){.base.ops = &ops, .req = req, .limits = l};
    struct evhttp_connection *c = evhttp_request_get_connection(req);
    struct bufferevent *b = stream_of(r);
    bufferevent_setwatermark(b, EV_READ, 0, MAX_READ_AHEAD);
    r->watch = event_new(bufferevent_get_base(b), bufferevent_getfd(b), EV_CLOSED, on_watch, r);
    CHECK(r->watch);
    event_add(r->watch, NULL);
    evhttp_connection_set_closecb(c, on_close, r);
    return &r->base;
}
