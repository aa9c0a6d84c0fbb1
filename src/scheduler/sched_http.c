/* sched_http.c - see sched_http.h */
#include "scheduler/sched_http.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "net/http_server.h"

/* Few clients come here, each for one page. The limits keep a port that strangers can reach from using up the file
 * descriptors that links need. */
enum { MAX_CONNECTIONS = 64, MAX_BODY = 1 << 10, MAX_SECONDS = 5 };

struct sched_http {
    const sched_server *server; /* borrowed */
    http_server *http;
};

/* Answers with an error, in the form of a frontend's errors. */
static void refuse(http_exchange *x, int status, const char *code, const char *why)
{
    buf text = {0};
    json_t *e = json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", why, "type",
                          status < 500 ? "invalid_request_error" : "server_error", "param", "code", code);
    CHECK(e);
    char *line = json_dumps(e, JSON_COMPACT);
    buf_add_str(&text, line);
    http_exchange_send(x, status, "application/json", &text, false);
    free(line);
    json_decref(e);
    buf_free(&text);
}

static void on_request(void *ctx, http_exchange *x)
{
    const sched_http *h = ctx;
    const http_head *head = http_exchange_head(x);
    const char *type = "application/json";
    buf text = {0};
    bool known = true;
    if (strcmp(head->path, "/health") == 0) {
        buf_add_str(&text, "{\"status\": \"ok\"}\n");
    } else if (strcmp(head->path, "/metrics") == 0) {
        sched_server_write_metrics(h->server, &text);
        type = "text/plain; version=0.0.4";
    } else if (strcmp(head->path, "/v1/signals") == 0) {
        sched_server_write_signals(h->server, &text);
    } else {
        known = false;
    }
    bool can_get = strcmp(head->method, "GET") == 0 || strcmp(head->method, "HEAD") == 0;
    if (!known) {
        refuse(x, 404, "unknown_url", "there is nothing here");
    } else if (!can_get) {
        http_exchange_add_header(x, "Allow", "GET, HEAD");
        refuse(x, 405, "method_not_allowed", "only GET is taken here");
    } else {
        http_exchange_send(x, 200, type, &text, false);
    }
    buf_free(&text);
}

static size_t on_head(void *ctx, http_exchange *x, http_fault *f)
{
    (void)ctx;
    (void)x;
    (void)f;
    return MAX_BODY;
}

static void on_fault(void *ctx, http_exchange *x, const http_fault *why)
{
    (void)ctx;
    refuse(x, why->status, why->code, why->why);
}

sched_http *sched_http_new(event_loop *loop, const sched_server *server, const char *at, err *e)
{
    sched_http *h = XNEW(sched_http);
    const http_options o = {.listen = at, .timeout = MAX_SECONDS, .max_connections = MAX_CONNECTIONS};
    const http_events events = {.judge = on_head, .request = on_request, .fault = on_fault, .ctx = h};
    h->server = server;
    h->http = http_server_new(loop, &o, &events, e);
    if (h->http)
        return h;
    sched_http_free(h);
    return NULL;
}

void sched_http_free(sched_http *h)
{
    if (!h)
        return;
    http_server_free(h->http);
    free(h);
}

const char *sched_http_address(const sched_http *h)
{
    return http_server_address(h->http);
}
