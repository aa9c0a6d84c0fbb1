/* admin.c - see admin.h
 *
 * The form of a call is checked on the loop; run() is called on the store's thread, and touches nothing but the
 * call. */
#include "frontend/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "frontend/api_error.h"
#include "frontend/json_text.h"
#include "store/store_json.h"

enum { MAX_PARTS = 4, MAX_AUDIT = 10000 /* lines */ };
#define MAX_TIME (INT64_C(1) << 40) /* seconds since the epoch */

struct admin_call {
    account_task t; /* first */
    char *method;
    json_t *query;             /* an object of strings, by the names of parameters */
    char *part[MAX_PARTS + 1]; /* [n_parts] of the path behind ADMIN_PATH, decoded; owned */
    int n_parts;
    char *usage_of; /* NULL: an operator asks */
    json_t *body;   /* NULL: there is none */
    char who[96];
    bool broken; /* error says why: it is not run */
    api_error error;
    json_t *answer; /* NULL: error */
    int status;
    void (*done)(void *ctx, int status, const buf *json); /* NULL: forgotten */
    void *ctx;
};

/* What went wrong. */

static void fail(admin_call *c, int status, const char *code, const char *why)
{
    c->broken = true;
    api_error_set(&c->error, status, NULL, code, "%s", why);
}

/* Returns whether a call of the store went well; if not, makes the answer an error. */
static bool went(admin_call *c, store_result r, const err *e)
{
    static const struct {
        int status;
        const char *code;
    } told[] = {[STORE_BAD] = {400, "invalid_value"},
                [STORE_ABSENT] = {404, "not_found"},
                [STORE_TAKEN] = {409, "already_there"},
                [STORE_TOO_MANY] = {403, "too_many_adapters"},
                [STORE_TOO_LARGE] = {413, "adapters_too_large"},
                [STORE_FAILED] = {503, "store_failed"}};
    bool hide = r == STORE_FAILED && c->usage_of; /* tenants are not told where the store is */
    if (r != STORE_OK)
        fail(c, told[r].status, told[r].code, hide ? "the store does not answer; try again later" : e->msg);
    return r == STORE_OK;
}

/* What is asked. */

/* Refuses members other than these: one that is misspelt must not be ignored. */
static int check_members(const json_t *body, const char *const *known, err *e)
{
    const char *key;
    json_t *value;
    if (!json_is_object(body))
        return err_set(e, "the body is to be a JSON object");
    json_object_foreach((json_t *)body, key, value)
    {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k)
            return err_set(e, "\"%.64s\" is not known here", key);
    }
    return 0;
}

/* Reads a number from the query into *x, which stays as it is where there is none. */
static int read_number(const admin_call *c, const char *name, int64_t min, int64_t max, int64_t *x, err *e)
{
    const char *text = json_string_value(json_object_get(c->query, name));
    char *end;
    if (!text)
        return 0;
    errno = 0;
    *x = strtoll(text, &end, 10);
    if (end == text || *end || errno || *x < min || *x > max)
        return err_set(e, "\"%s\" is a number from %lld to %lld, not \"%.64s\"", name, (long long)min, (long long)max,
                       text);
    return 0;
}

/* Reads a tenant's settings. with_name: "name" may be among them, as it is for a new tenant; later it is fixed. */
static int read_settings(const json_t *body, bool with_name, store_tenant *t, err *e)
{
    static const char *const all[] = {"name",
                                      "base",
                                      "weight",
                                      "in_flight",
                                      "waiting",
                                      "requests_per_minute",
                                      "tokens_per_minute",
                                      "max_adapters",
                                      "max_adapter_bytes",
                                      NULL};
    const char *const *known = with_name ? all : all + 1;
    const struct {
        const char *name;
        int64_t *to;
    } limit[] = {{"weight", &t->weight},
                 {"in_flight", &t->in_flight},
                 {"waiting", &t->waiting},
                 {"requests_per_minute", &t->requests_per_minute},
                 {"tokens_per_minute", &t->tokens_per_minute},
                 {"max_adapters", &t->max_adapters},
                 {"max_adapter_bytes", &t->max_adapter_bytes}};
    if (check_members(body, known, e) || json_get_bool(body, "base", &t->base, e))
        return -1;
    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        long x = (long)*limit[i].to;
        if (json_get_int(body, limit[i].name, 0, 1000000000000, &x, e))
            return -1;
        *limit[i].to = x;
    }
    return 0;
}

/* On the store's thread: a function for each operation. */

static void answer_tenant(admin_call *c, store *s, const char *name, int status)
{
    err e;
    store_directory *d = store_read_directory(s, &e);
    const store_tenant *t = d ? store_find_tenant(d, name) : NULL;
    if (t) {
        c->answer = store_tenant_json(d, t);
        c->status = status;
    } else if (d) {
        err_set(&e, "there is no tenant \"%s\"", name);
    }
    if (!t)
        went(c, d ? STORE_ABSENT : STORE_FAILED, &e);
    store_directory_free(d);
}

static void answer_done(admin_call *c)
{
    c->answer = json_pack("{s:b}", "done", 1);
    c->status = 200;
}

static void list_tenants(admin_call *c, store *s)
{
    err e;
    store_directory *d = store_read_directory(s, &e);
    if (!d) {
        went(c, STORE_FAILED, &e);
        return;
    }
    json_t *all = json_array();
    for (size_t i = 0; i < d->n_tenants; i++)
        json_array_append_new(all, store_tenant_json(d, &d->tenant[i]));
    c->answer = json_pack("{s:o}", "tenants", all);
    c->status = 200;
    store_directory_free(d);
}

static void add_tenant(admin_call *c, store *s)
{
    err e;
    store_tenant t = {.name = "", .weight = STORE_WEIGHT};
    bool good = read_settings(c->body, true, &t, &e) == 0 && json_get_string(c->body, "name", &t.name, &e) == 0;
    if (went(c, good ? store_add_tenant(s, c->who, &t, &e) : STORE_BAD, &e))
        answer_tenant(c, s, t.name, 201);
}

static void show_tenant(admin_call *c, store *s)
{
    answer_tenant(c, s, c->part[1], 200);
}

static int change_settings(void *ctx, store_tenant *t, err *e)
{
    return read_settings(((const admin_call *)ctx)->body, false, t, e);
}

static void change_tenant(admin_call *c, store *s)
{
    err e;
    if (went(c, store_change_tenant(s, c->who, c->part[1], change_settings, c, &e), &e))
        answer_tenant(c, s, c->part[1], 200);
}

static void remove_tenant(admin_call *c, store *s)
{
    err e;
    if (went(c, store_remove_tenant(s, c->who, c->part[1], &e), &e))
        answer_done(c);
}

static int read_expiry(const json_t *body, bool with_name, long *expires, err *e)
{
    static const char *const known[] = {"expires", "name", NULL}, *const only[] = {"expires", NULL};
    return check_members(body, with_name ? known : only, e) || json_get_int(body, "expires", 0, MAX_TIME, expires, e)
               ? -1
               : 0;
}

static void add_key(admin_call *c, store *s)
{
    err e;
    store_key k = {.tenant = c->part[1], .name = ""};
    char text[STORE_KEY_TEXT];
    long expires = 0;
    bool good = read_expiry(c->body, true, &expires, &e) == 0 && json_get_string(c->body, "name", &k.name, &e) == 0;
    k.expires = expires;
    if (!went(c, good ? store_add_key(s, c->who, &k, text, &e) : STORE_BAD, &e))
        return;
    c->answer = json_pack("{s:s, s:s, s:o}", "name", k.name, "key", text, "expires",
                          expires ? json_integer(expires) : json_null());
    c->status = 201;
}

static void change_key(admin_call *c, store *s)
{
    err e;
    long expires = 0;
    bool good = read_expiry(c->body, false, &expires, &e) == 0;
    if (good && !json_object_get(c->body, "expires")) {
        err_set(&e, "\"expires\" is needed: seconds since the epoch, or null for never");
        good = false;
    }
    if (went(c, good ? store_expire_key(s, c->who, c->part[1], c->part[3], expires, &e) : STORE_BAD, &e))
        answer_done(c);
}

static void remove_key(admin_call *c, store *s)
{
    err e;
    if (went(c, store_remove_key(s, c->who, c->part[1], c->part[3], &e), &e))
        answer_done(c);
}

/* A grant that is there already is no error: PUT is idempotent. */
static void add_grant(admin_call *c, store *s)
{
    err e;
    store_result r = store_add_grant(s, c->who, &(store_grant){c->part[1], c->part[3]}, &e);
    if (went(c, r == STORE_TAKEN ? STORE_OK : r, &e))
        answer_done(c);
}

static void remove_grant(admin_call *c, store *s)
{
    err e;
    if (went(c, store_remove_grant(s, c->who, &(store_grant){c->part[1], c->part[3]}, &e), &e))
        answer_done(c);
}

static void take_usage(void *ctx, const store_usage *u)
{
    json_array_append_new(ctx, store_usage_json(u));
}

/* Reads the time from "from" to "to" as all hours that overlap it. */
static int read_period(const admin_call *c, store_period *p, err *e)
{
    static const char *const known[] = {"tenant", "from", "to", NULL};
    int64_t from = 0, to = MAX_TIME;
    if (check_members(c->query, known, e) || read_number(c, "from", 0, MAX_TIME, &from, e) ||
        read_number(c, "to", 0, MAX_TIME, &to, e))
        return -1;
    *p = (store_period){.tenant = c->usage_of ? c->usage_of : json_string_value(json_object_get(c->query, "tenant")),
                        .from = from / 3600,
                        .to = (to + 3599) / 3600};
    return 0;
}

static void show_usage(admin_call *c, store *s)
{
    err e;
    store_period p;
    json_t *rows = json_array();
    store_result r = read_period(c, &p, &e)                          ? STORE_BAD
                     : store_read_usage(s, &p, take_usage, rows, &e) ? STORE_FAILED
                                                                     : STORE_OK;
    if (went(c, r, &e)) {
        c->answer = json_pack("{s:O}", "usage", rows);
        c->status = 200;
    }
    json_decref(rows);
}

static void take_audit(void *ctx, const store_audit *a)
{
    json_array_append_new(ctx, store_audit_json(a));
}

static void show_audit(admin_call *c, store *s)
{
    static const char *const known[] = {"tenant", "last", NULL};
    err e;
    int64_t last = 50;
    const char *whose = json_string_value(json_object_get(c->query, "tenant"));
    json_t *rows = json_array();
    store_result r = check_members(c->query, known, &e) || read_number(c, "last", 1, MAX_AUDIT, &last, &e) ? STORE_BAD
                     : store_read_audit(s, whose, (int)last, take_audit, rows, &e) ? STORE_FAILED
                                                                                   : STORE_OK;
    if (went(c, r, &e)) {
        c->answer = json_pack("{s:O}", "audit", rows);
        c->status = 200;
    }
    json_decref(rows);
}

/* "*" matches any part of a path. */
static const struct operation {
    const char *method, *part[MAX_PARTS];
    void (*run)(admin_call *c, store *s);
} operations[] = {
    {"GET", {"tenants"}, list_tenants},
    {"POST", {"tenants"}, add_tenant},
    {"GET", {"tenants", "*"}, show_tenant},
    {"PATCH", {"tenants", "*"}, change_tenant},
    {"DELETE", {"tenants", "*"}, remove_tenant},
    {"POST", {"tenants", "*", "keys"}, add_key},
    {"PATCH", {"tenants", "*", "keys", "*"}, change_key},
    {"DELETE", {"tenants", "*", "keys", "*"}, remove_key},
    {"PUT", {"tenants", "*", "adapters", "*"}, add_grant},
    {"DELETE", {"tenants", "*", "adapters", "*"}, remove_grant},
    {"GET", {"usage"}, show_usage},
    {"GET", {"audit"}, show_audit},
};

static bool is_path(const admin_call *c, const struct operation *o)
{
    int n = 0;
    while (n < MAX_PARTS && o->part[n])
        n++;
    for (int i = 0; i < n && n == c->n_parts; i++)
        if (strcmp(o->part[i], "*") != 0 && strcmp(o->part[i], c->part[i]) != 0)
            return false;
    return n == c->n_parts;
}

static const struct operation *find_operation(admin_call *c)
{
    bool path = false;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (!is_path(c, &operations[i]))
            continue;
        path = true;
        if (strcmp(operations[i].method, c->method) == 0)
            return &operations[i];
    }
    fail(c, path ? 405 : 404, path ? "method_not_allowed" : "unknown_url",
         path ? "this path does not take this method" : "there is nothing at this path");
    return NULL;
}

static void run(account_task *t, store *s)
{
    admin_call *c = (admin_call *)t;
    const struct operation *o = c->broken ? NULL : find_operation(c);
    if (o)
        o->run(c, s);
}

static void call_free(admin_call *c)
{
    for (int i = 0; i < c->n_parts; i++)
        free(c->part[i]);
    free(c->method);
    json_decref(c->query);
    free(c->usage_of);
    json_decref(c->body);
    json_decref(c->answer);
    free(c);
}

static void store_done(account_task *t)
{
    admin_call *c = (admin_call *)t;
    buf text = {0};
    if (c->broken)
        api_error_write(&c->error, &text);
    else
        json_add_take(&text, json_incref(c->answer));
    if (c->done)
        c->done(c->ctx, c->broken ? c->error.status : c->status, &text);
    buf_free(&text);
    call_free(c);
}

static void drop(account_task *t)
{
    call_free((admin_call *)t);
}

/* On the loop: the form of a call. */

static bool is_text(const char *text)
{
    json_t *s = json_string(text); /* NULL unless it is UTF-8 */
    json_decref(s);
    return s != NULL;
}

static void read_path(admin_call *c, const char *path)
{
    for (const char *at = path; c->n_parts <= MAX_PARTS; at++) {
        char *raw = xstrndup(at, strcspn(at, "/"));
        buf part = {0};
        buf_add_str(&part, "");
        if ((http_decode_path(raw, &part) || !is_text(part.data)) && !c->broken)
            fail(c, 404, "unknown_url", "there is nothing at this path");
        free(raw);
        c->part[c->n_parts++] = buf_take(&part);
        at += strcspn(at, "/");
        if (!*at)
            break;
    }
}

/* Decodes a name or a value of a query, n bytes long. NULL: it is not valid. */
static json_t *read_piece(const char *at, size_t n)
{
    char *raw = xstrndup(at, n);
    buf text = {0};
    buf_add_str(&text, "");
    json_t *s = http_decode_path(raw, &text) == 0 ? json_string(text.data) : NULL;
    free(raw);
    buf_free(&text);
    return s;
}

static void read_query(admin_call *c, const char *query)
{
    c->query = json_object();
    for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&') {
        size_t n = strcspn(at, "&"), k = strcspn(at, "=&");
        json_t *name = read_piece(at, k), *value = read_piece(at + k + (k < n), n - k - (k < n));
        if (!name || !value)
            fail(c, 400, "invalid_value", "the query is not UTF-8");
        else
            json_object_set(c->query, json_string_value(name), value);
        json_decref(name);
        json_decref(value);
    }
}

static void read_body(admin_call *c, const buf *body)
{
    err e;
    if (!body || body->len == 0)
        return;
    c->body = json_read_text(body->data, body->len, &e);
    if (!c->body)
        fail(c, 400, NULL, e.msg);
}

admin_call *admin_ask(accounts *a, const admin_request *r, void (*done)(void *ctx, int status, const buf *json),
                      void *ctx)
{
    admin_call *c = XNEW(admin_call);
    *c = (admin_call){.t = {.run = run, .done = store_done, .drop = drop},
                      .done = done,
                      .ctx = ctx,
                      .method = xstrdup(strcmp(r->head->method, "HEAD") == 0 ? "GET" : r->head->method),
                      .usage_of = r->usage_of ? xstrdup(r->usage_of) : NULL};
    snprintf(c->who, sizeof c->who, "admin:%s", r->client);
    read_path(c, r->usage_of ? "usage" : r->head->path + strlen(ADMIN_PATH));
    read_query(c, r->head->query ? r->head->query : "");
    read_body(c, r->body);
    accounts_ask(a, &c->t);
    return c;
}

void admin_call_methods(const admin_call *c, const char *method[ADMIN_METHODS + 1])
{
    int n = 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (is_path(c, &operations[i])) {
            CHECK(n < ADMIN_METHODS);
            method[n++] = operations[i].method;
        }
    method[n] = NULL;
}

void admin_forget(admin_call *c)
{
    c->done = NULL;
}
