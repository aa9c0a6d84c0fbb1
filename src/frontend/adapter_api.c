/* adapter_api.c - see adapter_api.h
 *
 * A wish, one request, is read on the loop. With the disk's registry one thread does all of it; with the store's, the
 * store's thread checks it, a thread fetches the files, and the store's thread records the name. */
#include "frontend/adapter_api.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fair_places.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "frontend/accounts.h"
#include "frontend/adapter_names.h"
#include "frontend/api_error.h"
#include "frontend/background.h"
#include "net/http_server.h"

/* For all that tenants may load at once, for operators, and one for what is short. */
enum { THREADS = FAIR_PLACES_MOST + FAIR_PLACES + 1 };

struct adapter_api {
    adapter_api_options o;
    const catalog *models;
    registry *names; /* NULL: the registry is the store's */
    background *threads;
    adapter_wish *loads; /* of tenants, under way */
};

typedef enum { WISH_LIST, WISH_SHOW, WISH_ADD, WISH_ROLLBACK, WISH_REMOVE, WISH_BAD } wish_kind;
typedef enum { STAGE_BEFORE, STAGE_FETCH, STAGE_NAMES } wish_stage; /* check it; fetch its files; record the name */

/* One request: made on the loop, carried out on a thread or the store's. */
struct adapter_wish {
    task task; /* first */
    account_task at_store;
    adapter_api *api;
    wish_kind kind;
    wish_stage stage; /* where the registry is the store's */
    bool is_out;      /* at the store */
    char *owner;      /* the tenant that asks; NULL: an operator */
    char *name;       /* whole: OWNER/NAME of a tenant's */
    char *source, *by;
    bool replace;
    int version;
    int64_t room; /* bytes that it may have */
    fetched got;
    disk_pin pin;                                         /* of what was fetched */
    adapter_version made;                                 /* the same for the registry; url is owned */
    char *shown;                                          /* its source without secrets */
    int status;                                           /* what is answered */
    api_error why;                                        /* status >= 400 */
    buf json;                                             /* else */
    void (*tell)(void *ctx, int status, const buf *json); /* NULL: forgotten */
    void *ctx;
    adapter_wish *next_load; /* of api->loads */
};

/* Makes the answer an error. Always returns -1. */
static int refuse(adapter_wish *w, int status, const char *param, const char *code, const char *why)
{
    w->status = status;
    return api_error_set(&w->why, status, param, code, "%s", why);
}

/* Makes the answer an error by what the registry said. Always returns -1. */
static int refuse_by(adapter_wish *w, store_result r, const char *param, const err *e)
{
    static const struct {
        int status;
        const char *code;
    } told[] = {[STORE_BAD] = {400, NULL},
                [STORE_ABSENT] = {404, "model_not_found"},
                [STORE_TAKEN] = {400, "already_loaded"},
                [STORE_TOO_MANY] = {403, "too_many_adapters"},
                [STORE_TOO_LARGE] = {413, "adapters_too_large"},
                [STORE_FAILED] = {503, "store_failed"}};
    bool hide = r == STORE_FAILED && w->owner; /* tenants are not told where the store is */
    return refuse(w, told[r].status, param, told[r].code, hide ? "the store does not answer; try again later" : e->msg);
}

/* Makes the answer an error because the source could not be fetched. What is wrong with this host's disk is for its
 * operators: it is no fault of the source, and tenants are not told where files are. Always returns -1. */
static int refuse_source(adapter_wish *w, const err *e)
{
    if (!e->is_local)
        return refuse(w, 400, "lora_path", "adapter_not_loaded", e->msg);
    return refuse(w, 503, NULL, "adapter_not_loaded",
                  w->owner ? "this host has no room for the adapter, or its disk fails; try again later" : e->msg);
}

static void end_load(adapter_wish *w)
{
    for (adapter_wish **at = &w->api->loads; *at; at = &(*at)->next_load)
        if (*at == w) {
            *at = w->next_load;
            return;
        }
}

/* Frees a wish, on the loop. The api may be gone, and with it the list of loads: nothing of it is touched. */
static void free_wish(adapter_wish *w)
{
    if (w->pin.dir)
        disk_cache_unpin(&w->pin);
    free(w->made.url);
    free(w->shown);
    free(w->owner);
    free(w->name);
    free(w->source);
    free(w->by);
    buf_free(&w->json);
    free(w);
}

static void drop_task(task *t)
{
    end_load((adapter_wish *)t);
    free_wish((adapter_wish *)t);
}

static void answer(adapter_wish *w)
{
    if (w->status >= 400)
        api_error_write(&w->why, &w->json);
    end_load(w);
    if (w->tell)
        w->tell(w->ctx, w->status, &w->json);
    free_wish(w);
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

/* Returns the name as whoever asks knows it: a tenant's own without its owner. */
static const char *shown_name(const adapter_wish *w, const char *full)
{
    char owner[ADAPTER_OWNER];
    return w->owner ? adapter_name_split(full, owner) : full;
}

/* Describes a name, with where its version is at present. */
static json_t *describe(const adapter_wish *w, const char *full, const adapter_record *r)
{
    const adapter_api_options *opt = &w->api->o;
    json_t *o = adapter_record_to_json(r, false);
    const char *id = r->version[r->current].id;
    char *dir = path_join(opt->dir, id);
    json_object_set_new(o, "name", json_string(shown_name(w, full)));
    bool on_disk = file_is_dir(dir);
    json_object_set_new(o, "on_disk", json_boolean(on_disk));
    tiers_describe(opt->tiers, full, id, on_disk, o);
    free(dir);
    return o;
}

/* On a thread, or the store's: what is asked of the registry. */

static void run_show(adapter_wish *w, const adapter_names *n)
{
    adapter_record r;
    err e;
    store_result result = adapter_names_read(n, w->name, &r, &e);
    if (result != STORE_OK) {
        refuse_by(w, result, NULL, &e);
        return;
    }
    write_json(w, describe(w, w->name, &r));
    adapter_record_deinit(&r);
}

typedef struct {
    const adapter_wish *w;
    json_t *all;
} listing;

static void add_name(void *ctx, const char *full, const adapter_record *r)
{
    listing *l = ctx;
    json_array_append_new(l->all, describe(l->w, full, r));
}

static void run_list(adapter_wish *w, const adapter_names *n)
{
    listing l = {.w = w, .all = json_array()};
    err e;
    if (adapter_names_list(n, w->owner, add_name, &l, &e) == 0) {
        write_json(w, json_pack("{s:s, s:o}", "object", "list", "data", l.all));
        return;
    }
    json_decref(l.all);
    refuse_by(w, STORE_FAILED, NULL, &e);
}

/* Refuses a name of a model that is not of the registry. */
static int check_foreign(adapter_wish *w, const adapter_names *n)
{
    const catalog *models = w->api->models;
    char owner[ADAPTER_OWNER];
    adapter_record r;
    err e;
    bool is_ours = adapter_names_read(n, w->name, &r, &e) == STORE_OK;
    if (is_ours)
        adapter_record_deinit(&r);
    bool is_base = strcmp(adapter_name_split(w->name, owner), catalog_base(models)) == 0;
    if (is_base ||
        (!is_ours && catalog_find(models, w->name) == CATALOG_ADAPTER && !catalog_is_registered(models, w->name)))
        return refuse(w, 400, "lora_name", "already_loaded",
                      "there is a model of this name that does not come from here");
    return 0;
}

/* Checks whether the name may be added, before anything is fetched: 0, or -1 with the wish refused. */
static int check_add(adapter_wish *w, const adapter_names *n)
{
    err e;
    if (check_foreign(w, n))
        return -1;
    store_result r = adapter_names_may_add(n, w->name, w->replace, !w->owner, &w->room, &e);
    if (r == STORE_TAKEN)
        err_set(&e, "there is an adapter of this name already; load_inplace makes this its next version");
    return r == STORE_OK ? 0 : refuse_by(w, r, "lora_name", &e);
}

/* Fetches the files to this host's disk and pins them: 0, or -1 with the wish refused. */
static int fetch_files(adapter_wish *w)
{
    const adapter_api *a = w->api;
    fetch_options o = w->owner ? fetch_options_of_strangers(a->o.fetch) : *a->o.fetch;
    source s;
    err e;
    o.stop = &w->task.abandoned;
    if ((size_t)w->room < o.max_bytes)
        o.max_bytes = (size_t)w->room;
    if (source_parse(&s, w->source, &e))
        return refuse(w, 400, "lora_path", NULL, e.msg);
    if (!w->owner && adapter_names_check_source(a->o.accounts, &s, &e)) {
        source_deinit(&s);
        return refuse(w, 400, "lora_path", NULL, e.msg);
    }
    if (fetch_adapter(a->o.cache, &s, &o, a->o.base, &w->got, &w->pin, &e)) {
        w->pin = (disk_pin){0};
        source_deinit(&s);
        log_warn("adapter %s: %s", w->name, e.msg);
        return refuse_source(w, &e);
    }
    w->made = adapter_names_version(&s, w->source, &w->got, w->by, !w->owner);
    w->made.source = w->shown = xstrdup(s.shown);
    source_deinit(&s);
    return 0;
}

static void register_name(adapter_wish *w, const adapter_names *n)
{
    err e;
    store_result r = adapter_names_add(n, w->by, w->name, &w->made, w->replace, &e);
    if (r != STORE_OK) {
        refuse_by(w, r, r == STORE_TAKEN ? "lora_name" : "lora_path", &e);
        return;
    }
    log_info("adapter %s is %.12s, by %s", w->name, w->got.id, w->by);
    run_show(w, n);
}

static void run_rollback(adapter_wish *w, const adapter_names *n)
{
    err e;
    store_result r = adapter_names_rollback(n, w->by, w->name, w->version, &e);
    if (r != STORE_OK) {
        refuse_by(w, r, "version", &e);
        return;
    }
    log_info("adapter %s is version %d again, by %s", w->name, w->version, w->by);
    run_show(w, n);
}

static void run_remove(adapter_wish *w, const adapter_names *n)
{
    err e;
    store_result r = adapter_names_remove(n, w->by, w->name, &e);
    if (r != STORE_OK) {
        refuse_by(w, r, "lora_name", &e);
        return;
    }
    log_info("adapter %s is removed, by %s", w->name, w->by);
    write_json(w, json_pack("{s:s, s:b}", "name", shown_name(w, w->name), "removed", 1));
}

/* Does what a wish of any kind but WISH_ADD asks for. */
static void run_on_names(adapter_wish *w, const adapter_names *n)
{
    switch (w->kind) {
    case WISH_LIST: run_list(w, n); break;
    case WISH_SHOW: run_show(w, n); break;
    case WISH_ROLLBACK: run_rollback(w, n); break;
    case WISH_REMOVE: run_remove(w, n); break;
    case WISH_ADD:
    case WISH_BAD: break;
    }
}

static void run_task(task *t)
{
    adapter_wish *w = (adapter_wish *)t;
    const adapter_names n = {.disk = w->api->names};
    if (!n.disk)
        fetch_files(w);
    else if (w->kind != WISH_ADD)
        run_on_names(w, &n);
    else if (check_add(w, &n) == 0 && fetch_files(w) == 0)
        register_name(w, &n);
}

static adapter_wish *wish_of(account_task *t)
{
    return (adapter_wish *)((char *)t - offsetof(adapter_wish, at_store));
}

static void run_at_store(account_task *t, store *s)
{
    adapter_wish *w = wish_of(t);
    const adapter_names n = {.store = s};
    if (w->kind != WISH_ADD)
        run_on_names(w, &n);
    else if (w->stage == STAGE_BEFORE)
        check_add(w, &n);
    else
        register_name(w, &n);
}

/* On the loop: from stage to stage. */

static void ask_store(adapter_wish *w, wish_stage stage)
{
    w->stage = stage;
    w->is_out = true;
    accounts_ask(w->api->o.accounts, &w->at_store);
}

static void task_done(task *t)
{
    adapter_wish *w = (adapter_wish *)t;
    if (w->api->names || w->status >= 400)
        answer(w);
    else
        ask_store(w, STAGE_NAMES);
}

static void store_done(account_task *t)
{
    adapter_wish *w = wish_of(t);
    w->is_out = false;
    if (!w->tell)
        w->status = 499;
    if (w->kind != WISH_ADD || w->stage == STAGE_NAMES || w->status >= 400) {
        answer(w);
        return;
    }
    w->stage = STAGE_FETCH;
    background_start(w->api->threads, &w->task);
}

/* Called by accounts_free() only; the api is gone by then. */
static void store_drop(account_task *t)
{
    free_wish(wish_of(t));
}

/* Copies a member that must be a string and not empty: 0, or -1 with the wish refused. */
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

/* Sets the whole name. A tenant's names are its own, with OWNER/ before them or not. */
static void set_name(adapter_wish *w, const char *name)
{
    size_t n = w->owner ? strlen(w->owner) : 0;
    bool is_whole = !w->owner || (strncmp(name, w->owner, n) == 0 && name[n] == '/');
    w->name = is_whole ? xstrdup(name) : xasprintf("%s/%s", w->owner, name);
}

static int need_name(adapter_wish *w, const json_t *o)
{
    char *name = NULL;
    if (need(w, o, "lora_name", &name))
        return -1;
    set_name(w, name);
    free(name);
    return 0;
}

/* Completes a source that is a hub's OWNER/NAME alone, as vLLM's clients have it. */
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
    if (need_name(w, o) || need(w, o, "lora_path", &w->source))
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
    if (json_member(o, "version") && json_member(o, "source")) {
        refuse(w, 400, "version", NULL,
               "it is either \"source\", for the next version, or \"version\", for an earlier one");
    } else if (json_member(o, "version")) {
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
        w->kind = need_name(w, o) ? WISH_BAD : WISH_REMOVE;
    else
        read_put(w, o);
    json_decref(o);
}

/* Reads what a method asks for at /v1/adapters (GET only) or /v1/adapters/NAME (PUT and DELETE, too): the
 * route lets nothing else in. */
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
        set_name(w, name.data);
        if (is_get)
            w->kind = WISH_SHOW;
        else if (strcmp(h->method, "DELETE") == 0)
            w->kind = WISH_REMOVE;
        else
            read_body(w, h->path, body);
    }
    buf_free(&name);
}

static int check_load(adapter_wish *w)
{
    int n = 0, n_own = 0;
    if (!w->owner)
        return 0;
    for (const adapter_wish *o = w->api->loads; o; o = o->next_load, n++)
        n_own += strcmp(o->owner, w->owner) == 0;
    if (!fair_places_has(n, n_own, true))
        return n_own ? refuse(w, 429, NULL, "too_many_loads",
                              "other adapters of yours are being loaded; try again when they are")
                     : refuse(w, 503, NULL, "too_many_loads", "too many adapters are being loaded; try again later");
    w->next_load = w->api->loads;
    w->api->loads = w;
    return 0;
}

adapter_wish *adapter_api_ask(adapter_api *a, const http_head *head, const buf *body, const adapter_asker *who,
                              void (*tell)(void *ctx, int status, const buf *json), void *ctx)
{
    adapter_wish *w = XNEW(adapter_wish);
    *w = (adapter_wish){.task = {.turn.size = 1, .run = run_task, .done = task_done, .drop = drop_task},
                        .at_store = {.run = run_at_store, .done = store_done, .drop = store_drop},
                        .api = a,
                        .kind = WISH_BAD,
                        .room = INT64_MAX,
                        .owner = who->tenant ? xstrdup(who->tenant) : NULL,
                        .tell = tell,
                        .ctx = ctx};
    w->by = who->tenant ? xasprintf("tenant:%s %s", who->tenant, who->address)
                        : xasprintf(a->o.accounts ? "admin:%s" : "%s", who->address);
    if (strcmp(head->method, "POST") == 0 && strncmp(head->path, ADAPTERS_PATH, strlen(ADAPTERS_PATH)) != 0)
        read_body(w, head->path, body);
    else
        read_method(w, head, body);
    if (w->kind == WISH_ADD) {
        w->task.turn.size = FAIR_SHORT + 1; /* short wishes overtake it */
        if (check_load(w))
            w->kind = WISH_BAD;
    }
    if (a->o.accounts)
        ask_store(w, STAGE_BEFORE);
    else
        background_start(a->threads, &w->task);
    return w;
}

void adapter_api_forget(adapter_api *a, adapter_wish *w)
{
    w->tell = NULL;
    if (!w->is_out)
        background_abandon(a->threads, &w->task);
}

adapter_api *adapter_api_new(struct event_base *loop, const adapter_api_options *o, const catalog *models, err *e)
{
    adapter_api *a = XNEW(adapter_api);
    *a = (adapter_api){.o = *o, .models = models};
    if (!o->accounts && !(a->names = registry_open(o->dir, o->cache, e))) {
        free(a);
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
    free(a);
}
