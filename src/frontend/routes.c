/* routes.c - see routes.h */
#include "frontend/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontend/admin.h"
#include "frontend/api_error.h"
#include "frontend/api_reply.h"
#include "frontend/fetches.h"
#include "frontend/json_text.h"
#include "frontend/openapi.h"

#define JSON_TYPE "application/json"
#define MAX_REQUEST_ID 128
#define MAX_OTHER_BODY (16u << 10) /* bytes of a body, except for routes that take POST alone */

/* Returns the client's own x-request-id, if it can stand in a header and in a log; else "". */
static const char *request_id(const http_exchange *x)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    const char *id = http_field_of(http_exchange_head(x), "x-request-id");
    return id && strlen(id) <= MAX_REQUEST_ID && strspn(id, allowed) == strlen(id) ? id : "";
}

/* Returns the tenant whose key is shown; NULL: none that is known, or there are no tenants. */
static tenant *asker(const routes *r, const http_head *h)
{
    const char *key = r->calls.accounts ? api_key_shown(h) : NULL;
    return key ? tenants_find(accounts_tenants(r->calls.accounts), key, loop_wall(r->calls.on)) : NULL;
}

/* Returns what the asker sees; NULL: everything. */
static model_view *view_of(const routes *r, const http_exchange *x)
{
    const tenant *t = asker(r, http_exchange_head(x));
    return t ? tenant_view(t) : NULL;
}

static bool is_admin(const routes *r, const http_head *h)
{
    return r->admin.n && api_keys_open(&r->admin, h);
}

/* Sends the answer to anything but a call, counts it and logs it. route: static. retry_after: in seconds; 0: not
 * said. */
static void send_answer(routes *r, http_exchange *x, const char *route, int status, int retry_after, const char *type,
                        const buf *body)
{
    char seconds[16];
    const http_head *h = http_exchange_head(x);
    const char *id = h->text ? request_id(x) : "";
    double now = loop_now(r->calls.on), start = http_exchange_start(x);
    const tenant *who = h->text ? asker(r, h) : NULL;
    metrics_count_answer(r->calls.counts, route, "none", status);
    access_log_write(r->calls.log, now,
                     &(access_line){.method = h->method,
                                    .path = h->path,
                                    .status = status,
                                    .client = http_exchange_client(x),
                                    .key = who ? tenant_name(who) : NULL,
                                    .prompt = -1,
                                    .output = -1,
                                    .first = -1,
                                    .total = start ? now - start : 0});
    if (id[0])
        http_exchange_add_header(x, "x-request-id", id);
    if (status == 401)
        http_exchange_add_header(x, "WWW-Authenticate", "Bearer");
    snprintf(seconds, sizeof seconds, "%d", retry_after);
    if (retry_after)
        http_exchange_add_header(x, "Retry-After", seconds);
    http_exchange_send(x, status, type, body, r->calls.draining);
}

static void send_body(routes *r, http_exchange *x, const char *route, int status, const char *type, const buf *body)
{
    send_answer(r, x, route, status, api_error_retry_after(&(api_error){.status = status}), type, body);
}

static void write_error(const char *route, const api_error *e, buf *out);

static void send_error(routes *r, http_exchange *x, const char *route, const api_error *e)
{
    buf body = {0};
    write_error(route, e, &body);
    send_answer(r, x, route, e->status, api_error_retry_after(e), JSON_TYPE, &body);
    buf_free(&body);
}

/* Liveness: as long as this is answered, there is no need to restart the server. */
static int get_health(routes *r, http_exchange *x, const char *rest, buf *body, const char **type)
{
    (void)r;
    (void)x;
    (void)rest;
    *type = JSON_TYPE;
    buf_add_str(body, "{\"status\":\"ok\"}");
    return 200;
}

static int get_version(routes *r, http_exchange *x, const char *rest, buf *body, const char **type)
{
    (void)r;
    (void)x;
    (void)rest;
    *type = JSON_TYPE;
    buf_add_str(body, "{\"version\":\"" PUNICA_VERSION "\"}");
    return 200;
}

/* Readiness: 200 if requests would be served, so that a load balancer may send some here. */
static int get_ready(routes *r, http_exchange *x, const char *rest, buf *body, const char **type)
{
    (void)x;
    (void)rest;
    const dispatch *d = r->calls.at_scheduler;
    const char *why = r->calls.draining     ? "shutting down"
                      : !dispatch_is_up(d)  ? "no scheduler"
                      : !dispatch_n_gpus(d) ? "no GPU"
                                            : NULL;
    *type = JSON_TYPE;
    buf_printf(body, "{\"status\":\"%s\"}", why ? why : "ready");
    return why ? 503 : 200;
}

/* Metrics by tenant are for operators only; so are those by model, where there are tenants. */
static int get_metrics(routes *r, http_exchange *x, const char *rest, buf *body, const char **type)
{
    (void)rest;
    metrics *m = r->calls.counts;
    m->live_requests = dispatch_n_live(r->calls.at_scheduler);
    m->reconnections = dispatch_n_reconnections(r->calls.at_scheduler);
    m->connections = http_server_n_connections(r->server);
    m->memory = r->calls.memory ? r->calls.memory->whole.used : 0;
    metrics_write(m, body);
    if (r->more_metrics)
        r->more_metrics(r->metrics_ctx, body);
    if (r->calls.accounts)
        accounts_write_metrics(r->calls.accounts, body);
    if (r->tiers)
        tiers_write_metrics(r->tiers, body);
    if (r->calls.fetches)
        fetches_write_metrics(r->calls.fetches, body);
    bool admin = is_admin(r, http_exchange_head(x));
    if (admin || !r->calls.accounts)
        metrics_write_models(m, body);
    if (admin && r->calls.accounts)
        tenants_write_metrics(accounts_tenants(r->calls.accounts), body);
    *type = "text/plain; version=0.0.4; charset=utf-8";
    return 200;
}

static int get_model(routes *r, http_exchange *x, const char *rest, buf *body, const char **type)
{
    buf name = {0};
    bool readable = http_decode_path(rest, &name) == 0;
    const model_view *view = view_of(r, x);
    registered what = {0};
    bool known = readable && catalog_lookup(r->calls.models, model_view_owner(view), name.data, &what);
    bool seen = readable && model_view_has(view, known ? what.name : name.data);
    catalog_kind kind = !seen ? CATALOG_NOTHING : known ? CATALOG_ADAPTER : catalog_find(r->calls.models, name.data);
    registered_deinit(&what);
    int status = 200;
    api_error bad;
    *type = JSON_TYPE;
    if (kind == CATALOG_ADAPTER && !known &&
        adapter_checks_look(r->calls.tools.checks, name.data, &bad.what) == CHECK_BAD) {
        err why = bad.what;
        api_error_set(&bad, status = 404, "model", "invalid_adapter", "the adapter \"%s\" cannot be served: %s",
                      name.data, why.msg);
        api_error_write(&bad, body);
    } else if (kind == CATALOG_NOTHING) {
        api_error e;
        api_error_set(&e, status = 404, "model", "model_not_found", "there is no model \"%s\" here",
                      readable ? name.data : "");
        api_error_write(&e, body);
    } else {
        api_write_model(body, name.data, kind == CATALOG_BASE ? NULL : catalog_base(r->calls.models), r->created,
                        atomic_load(r->calls.tools.context));
    }
    buf_free(&name);
    return status;
}

/* Requests that are answered later. */

typedef struct pending pending;
struct pending {
    routes *r;
    http_exchange *x;
    const char *route;          /* static */
    void *asked;                /* the request, at whoever is to answer it */
    void (*forget)(pending *p); /* drops it there: the client is gone */
};

static void on_pending_gone(void *ctx, client_loss why)
{
    (void)why;
    pending *p = ctx;
    p->forget(p);
    metrics_count_answer(p->r->calls.counts, p->route, "none", 499);
    free(p);
}

static pending *pending_new(routes *r, http_exchange *x, const char *route, void (*forget)(pending *p))
{
    pending *p = XNEW(pending);
    *p = (pending){.r = r, .x = x, .route = route, .forget = forget};
    http_exchange_set_gone(x, on_pending_gone, p);
    return p;
}

/* The list of models. */

static const char list_route[] = "/v1/models";

static void list_done(void *ctx, const buf *json)
{
    pending *p = ctx;
    routes *r = p->r;
    budget *memory = shared_budget_part(r->calls.memory, NULL);
    if (budget_take(memory, json->len)) {
        budget_give(memory, json->len); /* the server charges what it cannot send at once */
        send_body(r, p->x, list_route, 200, JSON_TYPE, json);
    } else {
        api_error e;
        api_error_set(&e, 503, NULL, "out_of_memory", "too many large answers wait for their clients; try again later");
        send_error(r, p->x, list_route, &e);
    }
    free(p);
}

static void forget_list(pending *p)
{
    model_list_forget(p->r->list, p->asked);
}

static void ask_for_list(routes *r, http_exchange *x)
{
    pending *p = pending_new(r, x, list_route, forget_list);
    p->asked = model_list_ask(r->list, view_of(r, x), list_done, p);
}

struct route;

/* What operators ask of the store, and tenants of their usage. */

static void add_allow(http_exchange *x, const char *const *method);

static void store_done(void *ctx, int status, const buf *json)
{
    pending *p = ctx;
    if (status == 405) {
        const char *method[ADMIN_METHODS + 1];
        admin_call_methods(p->asked, method);
        add_allow(p->x, method);
    }
    send_body(p->r, p->x, p->route, status, JSON_TYPE, json);
    free(p);
}

static void forget_store(pending *p)
{
    admin_forget(p->asked);
}

static const char admin_route[] = ADMIN_PATH, usage_route[] = "/v1/usage";

static void ask_store(routes *r, http_exchange *x, const char *route, const char *tenant_only)
{
    pending *p = pending_new(r, x, route, forget_store);
    charged_buf body = http_exchange_take_body(x);
    p->asked = admin_ask(r->calls.accounts,
                         &(admin_request){.head = http_exchange_head(x),
                                          .body = &body.bytes,
                                          .client = http_exchange_client(x),
                                          .usage_of = tenant_only},
                         store_done, p);
    charged_buf_free(&body);
}

static void refuse(routes *r, http_exchange *x, const struct route *to);

static void ask_admin(routes *r, http_exchange *x)
{
    if (r->calls.accounts)
        ask_store(r, x, admin_route, NULL);
    else
        refuse(r, x, NULL);
}

static void ask_usage(routes *r, http_exchange *x)
{
    const tenant *t = asker(r, http_exchange_head(x));
    if (t)
        ask_store(r, x, usage_route, tenant_name(t));
    else
        refuse(r, x, NULL); /* where there are no tenants there is no usage */
}

/* Changes of adapters. */

static void change_done(void *ctx, int status, const buf *json)
{
    pending *p = ctx;
    send_body(p->r, p->x, p->route, status, JSON_TYPE, json);
    free(p);
}

static void forget_change(pending *p)
{
    adapter_api_forget(p->r->adapters, p->asked);
}

static void add_header(void *ctx, const char *name, const char *value)
{
    http_exchange_add_header(ctx, name, value);
}

/* Counts a change among its tenant's requests per minute, and adds the headers that tell of them: 0, or -1 with e set.
 * Each change is a line of the audit log, and all frontends read the directory again. */
static int count_change(const routes *r, http_exchange *x, tenant *t, api_error *e)
{
    const char *method = http_exchange_head(x)->method;
    double now = loop_now(r->calls.on);
    if (!t || strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        return 0;
    int refused = tenant_count_call(t, now, e);
    tenant_headers(t, now, add_header, x);
    return refused;
}

static void change_adapter(routes *r, http_exchange *x)
{
    const http_head *h = http_exchange_head(x);
    const char *route = strcmp(h->path, LOAD_PATH) == 0     ? LOAD_PATH
                        : strcmp(h->path, UNLOAD_PATH) == 0 ? UNLOAD_PATH
                                                            : ADAPTERS_PATH;
    tenant *t = asker(r, h);
    api_error e;
    if (!r->adapters) {
        api_error_set(&e, 404, NULL, "unknown_url", "%.200s: this server was started without --adapter-updates",
                      h->path);
        send_error(r, x, "other", &e);
        return;
    }
    if (count_change(r, x, t, &e)) {
        send_error(r, x, route, &e);
        return;
    }
    pending *p = pending_new(r, x, route, forget_change);
    charged_buf body = http_exchange_take_body(x);
    const adapter_asker who = {.tenant = t ? tenant_name(t) : NULL, .address = http_exchange_client(x)};
    p->asked = adapter_api_ask(r->adapters, h, &body.bytes, &who, change_done, p);
    charged_buf_free(&body);
}

static int get_openapi(routes *r, http_exchange *x, const char *rest, buf *body, const char **type);

/* The routes. A path that ends with / stands for all that begin with it. */
static const struct route {
    const char *path;
    const char *method[4]; /* ends with NULL; GET stands for HEAD, too; none: any, and what answers it refuses some */
    int (*get)(routes *r, http_exchange *x, const char *rest, buf *body, const char **type); /* returns the status */
    void (*start)(routes *r, http_exchange *x); /* get NULL: it answers later; NULL: a call */
    const api_shape *shape;                     /* of calls; else NULL */
    bool for_operators;                         /* answered on the last connections, too, which are reserved */
} table[] = {
    {"/v1/completions", {"POST"}, NULL, NULL, &shape_completions, false},
    {"/v1/chat/completions", {"POST"}, NULL, NULL, &shape_chat, false},
    {"/v1/responses", {"POST"}, NULL, NULL, &shape_responses, false},
    {"/v1/messages", {"POST"}, NULL, NULL, &shape_messages, false},
    {"/v1/messages/count_tokens", {"POST"}, NULL, NULL, &shape_count_tokens, false},
    {list_route, {"GET"}, NULL, ask_for_list, NULL, false},
    {"/v1/models/", {"GET"}, get_model, NULL, NULL, false},
    {"/tokenize", {"POST"}, NULL, NULL, &shape_tokenize, false},
    {"/detokenize", {"POST"}, NULL, NULL, &shape_detokenize, false},
    {"/version", {"GET"}, get_version, NULL, NULL, true},
    {usage_route, {"GET"}, NULL, ask_usage, NULL, false},
    {admin_route, {NULL}, NULL, ask_admin, NULL, false},
    {LOAD_PATH, {"POST"}, NULL, change_adapter, NULL, false},
    {UNLOAD_PATH, {"POST"}, NULL, change_adapter, NULL, false},
    {"/v1/adapters", {"GET"}, NULL, change_adapter, NULL, false},
    {ADAPTERS_PATH, {"GET", "PUT", "DELETE"}, NULL, change_adapter, NULL, false},
    {"/health", {"GET"}, get_health, NULL, NULL, true},
    {"/ready", {"GET"}, get_ready, NULL, NULL, true},
    {"/metrics", {"GET"}, get_metrics, NULL, NULL, true},
    {"/openapi.json", {"GET"}, get_openapi, NULL, NULL, false},
};

/* Returns whether /openapi.json shows a route: not one for operators or with several methods, nor one that this server
 * does not have. */
static bool is_shown(const routes *r, const struct route *to)
{
    if (!to->method[0] || to->method[1])
        return false;
    return to->start == ask_usage ? r->calls.accounts != NULL : to->start != change_adapter || r->adapters;
}

static int get_openapi(routes *r, http_exchange *x, const char *rest, buf *body, const char **type)
{
    (void)x;
    (void)rest;
    json_t *api = openapi_new(PUNICA_VERSION, r->keys.n > 0 || r->calls.accounts);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (is_shown(r, &table[i]))
            openapi_add(api, table[i].path, table[i].method[0]);
    *type = JSON_TYPE;
    json_add_take(body, api);
    return 200;
}

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

/* Writes an error as the route's clients know errors. */
static void write_error(const char *route, const api_error *e, buf *out)
{
    const struct route *to = find_route(route);
    if (to && to->shape)
        to->shape->write_error(e, out);
    else
        api_error_write(e, out);
}

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0)
        words++;
    return *words != NULL;
}

/* Returns whether a route takes a method. GET implies HEAD. */
static bool takes(const struct route *to, const char *method)
{
    return !to->method[0] || is_one_of(strcmp(method, "HEAD") == 0 ? "GET" : method, to->method);
}

/* Appends the methods of a list as headers name them: with HEAD where there is GET, and with OPTIONS, which every path
 * takes. An empty list: all. */
static void add_methods(buf *out, const char *const *method)
{
    static const char *const all[] = {"GET", "POST", "PUT", "PATCH", "DELETE", NULL};
    for (const char *const *m = *method ? method : all; *m; m++)
        buf_printf(out, "%s, ", strcmp(*m, "GET") == 0 ? "GET, HEAD" : *m);
    buf_add_str(out, "OPTIONS");
}

static void add_allow(http_exchange *x, const char *const *method)
{
    buf methods = {0};
    add_methods(&methods, method);
    http_exchange_add_header(x, "Allow", methods.data);
    buf_free(&methods);
}

/* Returns the methods of a route, as its table has them; of no route (NULL): any. */
static const char *const *methods_of(const struct route *to)
{
    static const char *const any[] = {NULL};
    return to ? to->method : any;
}

static void add_cors(routes *r, http_exchange *x, const struct route *to)
{
    const char *asked = http_exchange_head(x)->method;
    buf methods = {0};
    if (asked && strcmp(asked, "OPTIONS") == 0) /* a preflight alone is told them */
        add_methods(&methods, methods_of(to));
    cors_add(&r->cors, x, methods.data);
    buf_free(&methods);
}

static void answer_get(routes *r, http_exchange *x, const struct route *to)
{
    buf body = {0};
    const char *type;
    int status = to->get(r, x, http_exchange_head(x)->path + strlen(to->path), &body, &type);
    send_body(r, x, to->path, status, type, &body);
    buf_free(&body);
}

static void take_call(routes *r, http_exchange *x, const struct route *to)
{
    charged_buf body = http_exchange_take_body(x);
    const char *id = request_id(x);
    call_start(&r->calls, asker(r, http_exchange_head(x)), http_reply_new(x), &body, to->shape, to->path, id);
}

static void answer_options(routes *r, http_exchange *x, const struct route *to)
{
    const buf nothing = {0};
    add_allow(x, methods_of(to));
    send_body(r, x, to ? to->path : "other", 204, NULL, &nothing);
}

static void refuse(routes *r, http_exchange *x, const struct route *to)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", NULL};
    const http_head *h = http_exchange_head(x);
    api_error e;
    if (!is_one_of(h->method, known)) {
        api_error_set(&e, 501, NULL, "method_not_implemented", "the method %.40s is not known here", h->method);
    } else if (to) {
        buf methods = {0};
        add_methods(&methods, to->method);
        api_error_set(&e, 405, NULL, "method_not_allowed", "%s takes %s only", to->path, methods.data);
        http_exchange_add_header(x, "Allow", methods.data);
        buf_free(&methods);
    } else {
        api_error_set(&e, 404, NULL, "unknown_url", "there is nothing at %.200s", h->path);
    }
    send_error(r, x, to ? to->path : "other", &e);
}

static bool is_adapter_path(const char *path)
{
    const struct route *to = find_route(path);
    return to && to->start == change_adapter;
}

/* Returns whether the request's key opens its path. What is neither a call nor below /v1/ or /admin/ needs none: it
 * shows nothing of tenants, and costs little. OPTIONS needs none: browsers send it before they show a key. */
static bool may_ask(const routes *r, const http_head *h)
{
    const struct route *to = find_route(h->path);
    if (strcmp(h->method, "OPTIONS") == 0)
        return true;
    if (strncmp(h->path, "/admin/", 7) == 0)
        return is_admin(r, h);
    if (strncmp(h->path, "/v1/", 4) != 0 && !(to && to->shape))
        return true;
    if (r->calls.accounts && is_adapter_path(h->path))
        return is_admin(r, h) || asker(r, h) != NULL;
    return r->calls.accounts ? asker(r, h) != NULL : api_keys_open(&r->keys, h);
}

static const http_fault no_key = {401, "invalid_api_key",
                                  "Incorrect API key provided. Show one as \"Authorization: Bearer KEY\""};

/* Refuses a key that has expired since the head came. */
static void refuse_key(routes *r, http_exchange *x, const struct route *to)
{
    api_error e;
    api_error_set(&e, no_key.status, NULL, no_key.code, "%s", no_key.why);
    send_error(r, x, to ? to->path : "other", &e);
}

static void on_request(void *ctx, http_exchange *x)
{
    routes *r = ctx;
    const http_head *h = http_exchange_head(x);
    const struct route *to = find_route(h->path);
    bool options = strcmp(h->method, "OPTIONS") == 0;
    add_cors(r, x, to);
    if (options && (to || strcmp(h->path, "*") == 0))
        answer_options(r, x, to);
    else if (!may_ask(r, h))
        refuse_key(r, x, to);
    else if (!to || !takes(to, h->method))
        refuse(r, x, to);
    else if (to->get)
        answer_get(r, x, to);
    else if (to->start)
        to->start(r, x);
    else
        take_call(r, x, to);
}

static size_t on_head(void *ctx, http_exchange *x, http_fault *f)
{
    routes *r = ctx;
    const http_head *h = http_exchange_head(x);
    const struct route *to = find_route(h->path);
    const char *coding = http_field_of(h, "Content-Encoding");
    if (http_exchange_is_reserve(x) && !(to && to->for_operators))
        *f = (http_fault){503, "too_many_connections", "too many connections are open; try again later"};
    else if (!may_ask(r, h))
        *f = no_key;
    else if (coding && strcmp(coding, "identity") != 0)
        *f = (http_fault){415, "unsupported_content_encoding", "a body must not be compressed"};
    const tenant *who = !f->status && r->calls.accounts ? asker(r, h) : NULL;
    if (who)
        http_exchange_charge(x, shared_budget_part(r->calls.memory, tenant_name(who)));
    bool is_call = to && to->method[0] && strcmp(to->method[0], "POST") == 0 && strcmp(h->method, "POST") == 0;
    return is_call ? r->max_body : MAX_OTHER_BODY;
}

static void on_fault(void *ctx, http_exchange *x, const http_fault *why)
{
    const http_head *h = http_exchange_head(x);
    const struct route *to = h->text ? find_route(h->path) : NULL;
    api_error e;
    add_cors(ctx, x, to);
    api_error_set(&e, why->status, NULL, why->code, "%s", why->why);
    send_error(ctx, x, to ? to->path : "other", &e);
}

http_events routes_events(routes *r)
{
    return (http_events){.judge = on_head, .request = on_request, .fault = on_fault, .ctx = r};
}
