/* routes.c - see routes.h */
#include "frontend/routes.h"

#include <ctype.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/api_error.h"
#include "frontend/api_reply.h"

#define JSON_TYPE "application/json"
#define MAX_REQUEST_ID 128

/* The client's own x-request-id, if it can stand in a header and in a log; else "". */
static const char *request_id(struct evhttp_request *req)
{
    const char *id = evhttp_find_header(evhttp_request_get_input_headers(req), "x-request-id");
    if (!id || strlen(id) > MAX_REQUEST_ID)
        return "";
    for (const char *p = id; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_.:", *p))
            return "";
    return id;
}

static void add_length(struct evkeyvalq *headers, size_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", n);
    evhttp_add_header(headers, "Content-Length", text);
}

/* The head of what is there alone, if that was asked for: evhttp would send a body after it. */
static void send_body(struct evhttp_request *req, int status, const char *type, const buf *body)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(req);
    const char *id = request_id(req);
    evhttp_add_header(headers, "Content-Type", type);
    if (id[0])
        evhttp_add_header(headers, "x-request-id", id);
    struct evbuffer *out = evbuffer_new();
    if (evhttp_request_get_command(req) == EVHTTP_REQ_HEAD)
        add_length(headers, body->len);
    else
        evbuffer_add(out, body->data, body->len);
    evhttp_send_reply(req, status, NULL, out);
    evbuffer_free(out);
}

static int get_health(routes *r, const char *rest, buf *body, const char **type)
{
    (void)rest;
    bool draining = r->calls.draining, up = dispatch_is_up(r->calls.at_scheduler);
    *type = JSON_TYPE;
    buf_printf(body, "{\"status\":\"%s\"}", draining ? "shutting down" : up ? "ok" : "no scheduler");
    return up && !draining ? 200 : 503;
}

static int get_metrics(routes *r, const char *rest, buf *body, const char **type)
{
    (void)rest;
    metrics *m = r->calls.counts;
    m->live_requests = dispatch_n_live(r->calls.at_scheduler);
    m->reconnections = dispatch_n_reconnections(r->calls.at_scheduler);
    metrics_write(m, body);
    if (r->more_metrics)
        r->more_metrics(r->metrics_ctx, body);
    *type = "text/plain; version=0.0.4; charset=utf-8";
    return 200;
}

static int get_models(routes *r, const char *rest, buf *body, const char **type)
{
    (void)rest;
    int n;
    char **names = catalog_list(r->calls.models, &n);
    api_write_models(body, catalog_base(r->calls.models), names, n, r->created, r->calls.tools.context);
    catalog_list_free(names, n);
    *type = JSON_TYPE;
    return 200;
}

static int get_model(routes *r, const char *rest, buf *body, const char **type)
{
    char *name = evhttp_uridecode(rest, 0, NULL);
    catalog_kind kind = catalog_find(r->calls.models, name);
    int status = 200;
    *type = JSON_TYPE;
    if (kind == CATALOG_NOTHING) {
        api_error e;
        api_error_set(&e, status = 404, "model", "model_not_found", "there is no model \"%s\" here", name);
        api_error_write(&e, body);
    } else {
        api_write_model(body, name, kind == CATALOG_BASE ? NULL : catalog_base(r->calls.models), r->created, r->calls.tools.context);
    }
    free(name);
    return status;
}

/* A path that ends with / stands for all that begin with it. */
static const struct route {
    const char *path;
    enum evhttp_cmd_type method;
    int (*get)(routes *r, const char *rest, buf *body, const char **type);      /* returns the status */
    bool chat;                                                                  /* of calls: get is NULL */
} table[] = {
    {"/v1/completions", EVHTTP_REQ_POST, NULL, false},
    {"/v1/chat/completions", EVHTTP_REQ_POST, NULL, true},
    {"/v1/models", EVHTTP_REQ_GET, get_models, false},
    {"/v1/models/", EVHTTP_REQ_GET, get_model, false},
    {"/health", EVHTTP_REQ_GET, get_health, false},
    {"/metrics", EVHTTP_REQ_GET, get_metrics, false},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        size_t n = strlen(table[i].path);
        bool prefix = table[i].path[n - 1] == '/';
        if (prefix ? strncmp(path, table[i].path, n) == 0 && path[n] : strcmp(path, table[i].path) == 0)
            return &table[i];
    }
    return NULL;
}

/* What can be got can be asked for its head. */
static bool takes(const struct route *to, enum evhttp_cmd_type method)
{
    return method == to->method || (method == EVHTTP_REQ_HEAD && to->method == EVHTTP_REQ_GET);
}

static void answer_get(routes *r, struct evhttp_request *req, const struct route *to, const char *path)
{
    buf body = {0};
    const char *type;
    int status = to->get(r, path + strlen(to->path), &body, &type);
    metrics_count_answer(r->calls.counts, to->path, "none", status);
    send_body(req, status, type, &body);
    buf_free(&body);
}

static void take_call(routes *r, struct evhttp_request *req, const struct route *to)
{
    struct evbuffer *in = evhttp_request_get_input_buffer(req);
    size_t n = evbuffer_get_length(in);
    const char *body = n ? (const char *)evbuffer_pullup(in, -1) : "";
    call_start(&r->calls, http_reply_new(req, &r->limits), body, n, to->chat, to->path, request_id(req));
}

static void refuse(routes *r, struct evhttp_request *req, const struct route *to, const char *path)
{
    api_error e;
    if (to) {
        const char *method = to->method == EVHTTP_REQ_POST ? "POST" : "GET";
        api_error_set(&e, 405, NULL, "method_not_allowed", "%s takes %s only", to->path, method);
        evhttp_add_header(evhttp_request_get_output_headers(req), "Allow", method);
    } else {
        api_error_set(&e, 404, NULL, "unknown_url", "there is nothing at %.200s", path);
    }
    metrics_count_answer(r->calls.counts, to ? to->path : "other", "none", e.status);
    buf body = {0};
    api_error_write(&e, &body);
    send_body(req, e.status, JSON_TYPE, &body);
    buf_free(&body);
}

void routes_answer(struct evhttp_request *req, void *ctx)
{
    routes *r = ctx;
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(req));
    const struct route *to = find_route(path ? path : "");
    if (!to || !takes(to, evhttp_request_get_command(req)))
        refuse(r, req, to, path ? path : "");
    else if (to->get)
        answer_get(r, req, to, path);
    else
        take_call(r, req, to);
}
