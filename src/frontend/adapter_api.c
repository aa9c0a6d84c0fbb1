/* adapter_api.c - see adapter_api.h */
#include "frontend/adapter_api.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "frontend/api_error.h"
#include "frontend/background.h"
#include "net/http_server.h"
#include "registry/registry.h"

enum { THREADS = 5 };           /* four adapters may be on their way at once */

struct adapter_api {
    adapter_api_options o;
    const catalog *models;
    disk_cache *cache;
    registry *names;
    background *threads;
};

typedef enum { WISH_LIST, WISH_SHOW, WISH_ADD, WISH_ROLLBACK, WISH_REMOVE, WISH_BAD } wish_kind;

/* Made on the loop, carried out on a thread. */
struct adapter_wish {
    task task;                  /* first */
    adapter_api *api;
    wish_kind kind;
    char *name, *source, *client;
    bool replace;
    int version;
    int status;                 /* what is answered */
    api_error why;              /* status >= 400 */
    buf json;                   /* else */
    void (*tell)(void *ctx, int status, const buf *json);
    void *ctx;
};

static void free_wish(task *t)
{
    adapter_wish *w = (adapter_wish *)t;
    free(w->name);
    free(w->source);
    free(w->client);
    buf_free(&w->json);
    free(w);
}

static void finish(task *t)
{
    adapter_wish *w = (adapter_wish *)t;
    if (w->status >= 400)
        api_error_write(&w->why, &w->json);
    w->tell(w->ctx, w->status, &w->json);
    free_wish(t);
}

/* Always -1. */
static int refuse(adapter_wish *w, int status, const char *param, const char *code, const char *why)
{
    w->status = status;
    return api_error_set(&w->why, status, param, code, "%s", why);
}

static void write_json(adapter_wish *w, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    CHECK(text);
    buf_add_str(&w->json, text);
    free(text);
    json_decref(o);
    w->status = 200;
}

/* What a name is, with whether its version is on disk. NULL: there is none. */
static json_t *describe(const adapter_api *a, const char *name, err *e)
{
    adapter_record r;
    if (registry_read(a->names, name, &r, e))
        return NULL;
    json_t *o = adapter_record_to_json(&r);
    char *dir = path_join(a->o.cache, r.version[r.current].id);
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "on_disk", json_boolean(file_is_dir(dir)));
    free(dir);
    adapter_record_deinit(&r);
    return o;
}

static void run_show(adapter_wish *w)
{
    err e;
    json_t *o = describe(w->api, w->name, &e);
    if (o)
        write_json(w, o);
    else
        refuse(w, 404, NULL, "model_not_found", e.msg);
}

static void run_list(adapter_wish *w)
{
    int n;
    char **name = registry_list(w->api->names, &n);
    json_t *all = json_array();
    for (int i = 0; i < n; i++) {
        err e;
        json_t *o = describe(w->api, name[i], &e);
        if (o)
            json_array_append_new(all, o);
        free(name[i]);
    }
    free(name);
    write_json(w, json_pack("{s:s, s:o}", "object", "list", "data", all));
}

/* A name is ours to change, or nobody's. -1: w says why not. */
static int check_name(adapter_wish *w)
{
    adapter_record r;
    err e;
    if (adapter_name_check(w->name, &e))
        return refuse(w, 400, "lora_name", NULL, e.msg);
    bool is_ours = registry_read(w->api->names, w->name, &r, &e) == 0;
    if (is_ours)
        adapter_record_deinit(&r);
    if (is_ours && !w->replace)
        return refuse(w, 400, "lora_name", "already_loaded", "there is an adapter of this name already; load_inplace makes this its next version");
    if (!is_ours && catalog_find(w->api->models, w->name) != CATALOG_NOTHING)
        return refuse(w, 400, "lora_name", "already_loaded", "there is a model of this name that does not come from here");
    return 0;
}

static int record(adapter_wish *w, const source *s, const fetched *got, err *e)
{
    adapter_version v = {.source = s->shown, .revision = (char *)got->revision, .by = w->client, .at = time(NULL),
                         .bytes = (int64_t)got->bytes, .rank = got->rank};
    memcpy(v.id, got->id, sizeof v.id);
    return registry_add(w->api->names, w->name, &v, w->replace, e);
}

static void run_add(adapter_wish *w)
{
    const adapter_api *a = w->api;
    fetch_options o = *a->o.fetch;
    source s;
    fetched got;
    disk_pin pin;
    err e;
    o.stop = &w->task.abandoned;
    if (check_name(w))
        return;
    if (source_parse(&s, w->source, &e)) {
        refuse(w, 400, "lora_path", NULL, e.msg);
        return;
    }
    int status = fetch_adapter(a->cache, &s, &o, a->o.base, &got, &pin, &e);
    if (status == 0) {
        status = record(w, &s, &got, &e);
        disk_cache_unpin(&pin);
    }
    source_deinit(&s);
    if (status) {
        log_warn("adapter %s: %s", w->name, e.msg);
        refuse(w, 400, "lora_path", "adapter_not_loaded", e.msg);
    } else {
        log_info("adapter %s is %.12s, by %s", w->name, got.id, w->client);
        run_show(w);
    }
}

static void run_rollback(adapter_wish *w)
{
    err e;
    if (registry_rollback(w->api->names, w->name, w->version, &e)) {
        refuse(w, 404, "version", "model_not_found", e.msg);
        return;
    }
    log_info("adapter %s is version %d again, by %s", w->name, w->version, w->client);
    run_show(w);
}

static void run_remove(adapter_wish *w)
{
    err e;
    if (registry_remove(w->api->names, w->name, &e)) {
        refuse(w, 404, "lora_name", "model_not_found", e.msg);
        return;
    }
    log_info("adapter %s is removed, by %s", w->name, w->client);
    write_json(w, json_pack("{s:s, s:b}", "name", w->name, "removed", 1));
}

static void run(task *t)
{
    adapter_wish *w = (adapter_wish *)t;
    switch (w->kind) {
    case WISH_LIST: run_list(w); break;
    case WISH_SHOW: run_show(w); break;
    case WISH_ADD: run_add(w); break;
    case WISH_ROLLBACK: run_rollback(w); break;
    case WISH_REMOVE: run_remove(w); break;
    case WISH_BAD: break;
    }
}

/* A member that is a string and must be there, copied. */
static int need(adapter_wish *w, const json_t *o, const char *key, char **out)
{
    const char *text = NULL;
    err e;
    if (json_get_string(o, key, &text, &e))
        return refuse(w, 400, NULL, NULL, e.msg);
    if (!text || !*text) {
        err_set(&e, "\"%s\" is needed", key);
        return refuse(w, 400, NULL, "missing_field", e.msg);
    }
    *out = xstrdup(text);
    return 0;
}

/* A hub's OWNER/NAME alone is a source, too: vLLM's clients say it so. */
static void complete_source(adapter_wish *w)
{
    const char *slash = strchr(w->source, '/');
    if (!slash || slash == w->source || strchr(slash + 1, '/') || strchr(w->source, ':'))
        return;
    char *whole = xasprintf("hf://%s", w->source);
    free(w->source);
    w->source = whole;
}

static void read_load(adapter_wish *w, const json_t *o)
{
    err e;
    if (need(w, o, "lora_name", &w->name) || need(w, o, "lora_path", &w->source))
        return;
    if (json_get_bool(o, "load_inplace", &w->replace, &e)) {
        refuse(w, 400, "load_inplace", NULL, e.msg);
        return;
    }
    complete_source(w);
    w->kind = WISH_ADD;
}

static void read_put(adapter_wish *w, const json_t *o)
{
    long number = 0;
    err e;
    if (json_member(o, "version")) {
        if (json_get_int(o, "version", 1, 1000000000, &number, &e))
            refuse(w, 400, "version", NULL, e.msg);
        else
            w->kind = WISH_ROLLBACK;
        w->version = (int)number;
    } else if (need(w, o, "source", &w->source) == 0) {
        w->replace = true;
        w->kind = WISH_ADD;
    }
}

static void read_body(adapter_wish *w, const char *path, const buf *body)
{
    err e;
    json_t *o = json_read_text(body->data ? body->data : "", body->len, &e);
    if (!json_is_object(o))
        refuse(w, 400, NULL, NULL, o ? "the body must be a JSON object" : e.msg);
    else if (strcmp(path, LOAD_PATH) == 0)
        read_load(w, o);
    else if (strcmp(path, UNLOAD_PATH) == 0)
        w->kind = need(w, o, "lora_name", &w->name) ? WISH_BAD : WISH_REMOVE;
    else
        read_put(w, o);
    json_decref(o);
}

/* Of /v1/adapters, which takes GET only, and /v1/adapters/NAME: what the method means. */
static void read_method(adapter_wish *w, const http_head *h, const buf *body)
{
    buf name = {0};
    const char *rest = h->path + strlen(ADAPTERS_PATH) - (strlen(h->path) < strlen(ADAPTERS_PATH));
    bool is_get = strcmp(h->method, "GET") == 0 || strcmp(h->method, "HEAD") == 0;
    if (http_decode_path(rest, &name)) {
        refuse(w, 404, NULL, "model_not_found", "there is no such adapter");
    } else if (!name.len) {
        w->kind = WISH_LIST;
    } else {
        w->name = xstrdup(name.data);
        if (is_get)
            w->kind = WISH_SHOW;
        else if (strcmp(h->method, "DELETE") == 0)
            w->kind = WISH_REMOVE;
        else if (strcmp(h->method, "PUT") == 0)
            read_body(w, h->path, body);
        else
            refuse(w, 405, NULL, "method_not_allowed", "an adapter takes GET, PUT and DELETE only");
    }
    buf_free(&name);
}

adapter_wish *adapter_api_ask(adapter_api *a, const http_head *head, const buf *body, const char *client,
                              void (*tell)(void *ctx, int status, const buf *json), void *ctx)
{
    adapter_wish *w = XNEW(adapter_wish);
    *w = (adapter_wish){.task = {.turn.size = 1, .run = run, .done = finish, .drop = free_wish}, .api = a, .kind = WISH_BAD,
                        .client = xstrdup(client), .tell = tell, .ctx = ctx};
    if (strcmp(head->method, "POST") == 0 && strncmp(head->path, ADAPTERS_PATH, strlen(ADAPTERS_PATH)) != 0)
        read_body(w, head->path, body);
    else
        read_method(w, head, body);
    if (w->kind == WISH_ADD)
        w->task.turn.size = FAIR_SHORT + 1;             /* questions pass it */
    background_start(a->threads, &w->task);
    return w;
}

void adapter_api_forget(adapter_api *a, adapter_wish *w)
{
    background_abandon(a->threads, &w->task);
}

adapter_api *adapter_api_new(struct event_base *loop, const adapter_api_options *o, const catalog *models, err *e)
{
    adapter_api *a = XNEW(adapter_api);
    *a = (adapter_api){.o = *o, .models = models, .cache = disk_cache_open(o->cache, o->cache_bytes, e)};
    a->names = a->cache ? registry_open(o->cache, a->cache, e) : NULL;
    if (!a->names) {
        adapter_api_free(a);
        return NULL;
    }
    a->threads = background_new(loop, THREADS);
    return a;
}

void adapter_api_free(adapter_api *a)
{
    if (!a)
        return;
    background_free(a->threads);
    registry_close(a->names);
    disk_cache_close(a->cache);
    free(a);
}
