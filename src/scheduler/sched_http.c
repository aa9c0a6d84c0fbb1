/* sched_http.c - see sched_http.h */
#include "scheduler/sched_http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/accept.h"
#include "net/address.h"

enum { MAX_HEAD = 8 << 10, MAX_BODY = 1 << 10, MAX_SECONDS = 5 };

struct sched_http {
    const sched_server *server; /* borrowed */
    struct evhttp *http;
    struct event *resting;      /* of its listener */
    char address[128];
};

static void answer(struct evhttp_request *q, const char *type, const buf *text)
{
    struct evbuffer *out = evhttp_request_get_output_buffer(q);
    evbuffer_add(out, text->data, text->len);
    evhttp_add_header(evhttp_request_get_output_headers(q), "Content-Type", type);
    evhttp_send_reply(q, HTTP_OK, "OK", NULL);
}

static void on_request(struct evhttp_request *q, void *ctx)
{
    const sched_http *h = ctx;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(q);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    buf text = {0};
    if (!path) {
        evhttp_send_error(q, HTTP_BADREQUEST, NULL);
    } else if (strcmp(path, "/health") == 0) {
        buf_add_str(&text, "{\"status\": \"ok\"}\n");
        answer(q, "application/json", &text);
    } else if (strcmp(path, "/metrics") == 0) {
        sched_server_write_metrics(h->server, &text);
        answer(q, "text/plain; version=0.0.4", &text);
    } else if (strcmp(path, "/v1/signals") == 0) {
        sched_server_write_signals(h->server, &text);
        answer(q, "application/json", &text);
    } else {
        evhttp_send_error(q, HTTP_NOTFOUND, NULL);
    }
    buf_free(&text);
}

static int start(sched_http *h, const char *at, err *e)
{
    address a;
    if (address_parse(&a, at, e))
        return -1;
    if (a.is_unix)
        return err_set(e, "%s: HTTP needs HOST:PORT", at);
    struct evhttp_bound_socket *socket = evhttp_bind_socket_with_handle(h->http, a.host, (uint16_t)atoi(a.port));
    if (!socket)
        return err_set(e, "cannot listen on %s: %s", at, strerror(errno));
    h->resting = accept_rest(evhttp_bound_socket_get_listener(socket));
    evhttp_set_gencb(h->http, on_request, h);
    evhttp_set_allowed_methods(h->http, EVHTTP_REQ_GET);
    evhttp_set_max_headers_size(h->http, MAX_HEAD);
    evhttp_set_max_body_size(h->http, MAX_BODY);
    evhttp_set_timeout(h->http, MAX_SECONDS);
    struct sockaddr_storage where;
    socklen_t len = sizeof where;
    getsockname(evhttp_bound_socket_get_fd(socket), (struct sockaddr *)&where, &len);
    address_print((struct sockaddr *)&where, len, h->address, sizeof h->address);
    return 0;
}

sched_http *sched_http_new(struct event_base *loop, const sched_server *server, const char *at, err *e)
{
    sched_http *h = XNEW(sched_http);
    *h = (sched_http){.server = server, .http = evhttp_new(loop)};
    CHECK(h->http);
    if (start(h, at, e) == 0)
        return h;
    sched_http_free(h);
    return NULL;
}

void sched_http_free(sched_http *h)
{
    if (!h)
        return;
    if (h->resting)
        event_free(h->resting);
    evhttp_free(h->http);
    free(h);
}

const char *sched_http_address(const sched_http *h)
{
    return h->address;
}
