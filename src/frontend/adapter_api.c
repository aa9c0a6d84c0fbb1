/* adapter_api.c - see adapter_api.h
 *
 * An operation, one request, is read on the loop. With the disk's registry one thread does all of it; with the store's,
 * the store's thread checks it, a thread fetches the files, and the store's thread records the name. */
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
    adapter_op *loads; /* of tenants, under way */
};

typedef enum {
    ADAPTER_OP_LIST,
    ADAPTER_OP_SHOW,
    ADAPTER_OP_ADD,
    ADAPTER_OP_ROLLBACK,
    ADAPTER_OP_REMOVE,
    ADAPTER_OP_BAD
} adapter_op_kind;

/* Check it; fetch its files; record the name. */
typedef enum { STAGE_BEFORE, STAGE_FETCH, STAGE_NAMES } adapter_op_stage;

/* One request: made on the loop, carried out on a thread or the store's. */
struct adapter_op {
    task task; /* first */
    account_task at_store;
    adapter_api *api;
    adapter_op_kind kind;
    adapter_op_stage stage; /* where the registry is the store's */
    bool is_out;            /* at the store */
    char *owner;            /* the tenant that asks; NULL: an operator */
    char *name;             /* whole: OWNER/NAME of a tenant's */
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
    void (*done)(void *ctx, int status, const buf *json); /* NULL: forgotten */
    void *ctx;
    adapter_op *next_load; /* of api->loads */
};

/* Makes the answer an error. Always returns -1. */
static int refuse(adapter_op *op, int status, const char *param, const char *code, const char *why)
{
    op->status = status;
    return api_error_set(&op->why, status, param, code, "%s", why);
}

/* Makes the answer an error by what the registry said. Always returns -1. */
static int refuse_by(adapter_op *op, store_result r, const char *param, const err *e)
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
    bool hide = r == STORE_FAILED && op->owner; /* tenants are not told where the store is */
    return refuse(op, told[r].status, param, told[r].code,
                  hide ? "the store does not answer; try again later" : e->msg);
}

/* Makes the answer an error because the source could not be fetched. What is wrong with this host's disk is for its
 * operators: it is no fault of the source, and tenants are not told where files are. Always returns -1. */
static int refuse_source(adapter_op *op, const err *e)
{
    if (!e->is_local)
        return refuse(op, 400, "lora_path", "adapter_not_loaded", e->msg);
    return refuse(op, 503, NULL, "adapter_not_loaded",
                  op->owner ? "this host has no room for the adapter, or its disk fails; try again later" : e->msg);
}

static void end_load(adapter_op *op)
{
    for (adapter_op **at = &op->api->loads; *at; at = &(*at)->next_load)
        if (*at == op) {
            *at = op->next_load;
            return;
        }
}

/* Frees an operation, on the loop. The api may be gone, and with it the list of loads: nothing of it is touched. */
static void free_op(adapter_op *op)
{
    if (op->pin.dir)
        disk_cache_unpin(&op->pin);
    free(op->made.url);
    free(op->shown);
    free(op->owner);
    free(op->name);
    free(op->source);
    free(op->by);
    buf_free(&op->json);
    free(op);
}

static void drop_task(task *t)
{
    end_load((adapter_op *)t);
    free_op((adapter_op *)t);
}

static void answer(adapter_op *op)
{
    if (op->status >= 400)
        api_error_write(&op->why, &op->json);
    end_load(op);
    if (op->done)
        op->done(op->ctx, op->status, &op->json);
    free_op(op);
}

static void write_json(adapter_op *op, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    CHECK(text);
    buf_add_str(&op->json, text);
    free(text);
    json_decref(o);
    op->status = 200;
}

/* Returns the name as whoever asks knows it: a tenant's own without its owner. */
static const char *shown_name(const adapter_op *op, const char *full)
{
    char owner[ADAPTER_OWNER];
    return op->owner ? adapter_name_split(full, owner) : full;
}

/* Describes a name, with where its version is at present. */
static json_t *describe(const adapter_op *op, const char *full, const adapter_record *r)
{
    const adapter_api_options *opt = &op->api->o;
    json_t *o = adapter_record_to_json(r, false);
    const char *id = r->version[r->current].id;
    char *dir = path_join(opt->dir, id);
    json_object_set_new(o, "name", json_string(shown_name(op, full)));
    bool on_disk = file_is_dir(dir);
    json_object_set_new(o, "on_disk", json_boolean(on_disk));
    tiers_describe(opt->tiers, full, id, on_disk, o);
    free(dir);
    return o;
}

/* On a thread, or the store's: what is asked of the registry. */

static void run_show(adapter_op *op, const adapter_names *n)
{
    adapter_record r;
    err e;
    store_result result = adapter_names_read(n, op->name, &r, &e);
    if (result != STORE_OK) {
        refuse_by(op, result, NULL, &e);
        return;
    }
    write_json(op, describe(op, op->name, &r));
    adapter_record_deinit(&r);
}

typedef struct {
    const adapter_op *op;
    json_t *all;
} listing;

static void add_name(void *ctx, const char *full, const adapter_record *r)
{
    listing *l = ctx;
    json_array_append_new(l->all, describe(l->op, full, r));
}

static void run_list(adapter_op *op, const adapter_names *n)
{
    listing l = {.op = op, .all = json_array()};
    err e;
    if (adapter_names_list(n, op->owner, add_name, &l, &e) == 0) {
        write_json(op, json_pack("{s:s, s:o}", "object", "list", "data", l.all));
        return;
    }
    json_decref(l.all);
    refuse_by(op, STORE_FAILED, NULL, &e);
}

/* Refuses a name of a model that is not of the registry. */
static int check_foreign(adapter_op *op, const adapter_names *n)
{
    const catalog *models = op->api->models;
    char owner[ADAPTER_OWNER];
    adapter_record r;
    err e;
    bool is_ours = adapter_names_read(n, op->name, &r, &e) == STORE_OK;
    if (is_ours)
        adapter_record_deinit(&r);
    bool is_base = strcmp(adapter_name_split(op->name, owner), catalog_base(models)) == 0;
    if (is_base ||
        (!is_ours && catalog_find(models, op->name) == CATALOG_ADAPTER && !catalog_is_registered(models, op->name)))
        return refuse(op, 400, "lora_name", "already_loaded",
                      "there is a model of this name that does not come from here");
    return 0;
}

/* Checks whether the name may be added, before anything is fetched: 0, or -1 with the operation refused. */
static int check_add(adapter_op *op, const adapter_names *n)
{
    err e;
    if (check_foreign(op, n))
        return -1;
    store_result r = adapter_names_may_add(n, op->name, op->replace, !op->owner, &op->room, &e);
    if (r == STORE_TAKEN)
        err_set(&e, "there is an adapter of this name already; load_inplace makes this its next version");
    return r == STORE_OK ? 0 : refuse_by(op, r, "lora_name", &e);
}

/* Fetches the files to this host's disk and pins them: 0, or -1 with the operation refused. */
static int fetch_files(adapter_op *op)
{
    const adapter_api *a = op->api;
    fetch_options o = op->owner ? fetch_options_of_strangers(a->o.fetch) : *a->o.fetch;
    source s;
    err e;
    o.stop = &op->task.abandoned;
    if ((size_t)op->room < o.max_bytes)
        o.max_bytes = (size_t)op->room;
    if (source_parse(&s, op->source, &e))
        return refuse(op, 400, "lora_path", NULL, e.msg);
    if (!op->owner && adapter_names_check_source(a->o.accounts, &s, &e)) {
        source_deinit(&s);
        return refuse(op, 400, "lora_path", NULL, e.msg);
    }
    if (fetch_adapter(a->o.cache, &s, &o, a->o.base, &op->got, &op->pin, &e)) {
        op->pin = (disk_pin){0};
        source_deinit(&s);
        log_warn("adapter %s: %s", op->name, e.msg);
        return refuse_source(op, &e);
    }
    op->made = adapter_names_version(&s, op->source, &op->got, op->by, !op->owner);
    op->made.source = op->shown = xstrdup(s.shown);
    source_deinit(&s);
    return 0;
}

static void register_name(adapter_op *op, const adapter_names *n)
{
    err e;
    store_result r = adapter_names_add(n, op->by, op->name, &op->made, op->replace, &e);
    if (r != STORE_OK) {
        refuse_by(op, r, r == STORE_TAKEN ? "lora_name" : "lora_path", &e);
        return;
    }
    log_info("adapter %s is %.12s, by %s", op->name, op->got.id, op->by);
    run_show(op, n);
}

static void run_rollback(adapter_op *op, const adapter_names *n)
{
    err e;
    store_result r = adapter_names_rollback(n, op->by, op->name, op->version, &e);
    if (r != STORE_OK) {
        refuse_by(op, r, "version", &e);
        return;
    }
    log_info("adapter %s is version %d again, by %s", op->name, op->version, op->by);
    run_show(op, n);
}

static void run_remove(adapter_op *op, const adapter_names *n)
{
    err e;
    store_result r = adapter_names_remove(n, op->by, op->name, &e);
    if (r != STORE_OK) {
        refuse_by(op, r, "lora_name", &e);
        return;
    }
    log_info("adapter %s is removed, by %s", op->name, op->by);
    write_json(op, json_pack("{s:s, s:b}", "name", shown_name(op, op->name), "removed", 1));
}

/* Does an operation of any kind but ADAPTER_OP_ADD. */
static void run_on_names(adapter_op *op, const adapter_names *n)
{
    switch (op->kind) {
    case ADAPTER_OP_LIST: run_list(op, n); break;
    case ADAPTER_OP_SHOW: run_show(op, n); break;
    case ADAPTER_OP_ROLLBACK: run_rollback(op, n); break;
    case ADAPTER_OP_REMOVE: run_remove(op, n); break;
    case ADAPTER_OP_ADD:
    case ADAPTER_OP_BAD: break;
    }
}

static void run_task(task *t)
{
    adapter_op *op = (adapter_op *)t;
    const adapter_names n = {.disk = op->api->names};
    if (!n.disk)
        fetch_files(op);
    else if (op->kind != ADAPTER_OP_ADD)
        run_on_names(op, &n);
    else if (check_add(op, &n) == 0 && fetch_files(op) == 0)
        register_name(op, &n);
}

static adapter_op *op_of(account_task *t)
{
    return (adapter_op *)((char *)t - offsetof(adapter_op, at_store));
}

static void run_at_store(account_task *t, store *s)
{
    adapter_op *op = op_of(t);
    const adapter_names n = {.store = s};
    if (op->kind != ADAPTER_OP_ADD)
        run_on_names(op, &n);
    else if (op->stage == STAGE_BEFORE)
        check_add(op, &n);
    else
        register_name(op, &n);
}

/* On the loop: from stage to stage. */

static void ask_store(adapter_op *op, adapter_op_stage stage)
{
    op->stage = stage;
    op->is_out = true;
    accounts_ask(op->api->o.accounts, &op->at_store);
}

static void task_done(task *t)
{
    adapter_op *op = (adapter_op *)t;
    if (op->api->names || op->status >= 400)
        answer(op);
    else
        ask_store(op, STAGE_NAMES);
}

static void store_done(account_task *t)
{
    adapter_op *op = op_of(t);
    op->is_out = false;
    if (!op->done)
        op->status = 499;
    if (op->kind != ADAPTER_OP_ADD || op->stage == STAGE_NAMES || op->status >= 400) {
        answer(op);
        return;
    }
    op->stage = STAGE_FETCH;
    background_start(op->api->threads, &op->task);
}

/* Called by accounts_free() only; the api is gone by then. */
static void store_drop(account_task *t)
{
    free_op(op_of(t));
}

/* Copies a member that must be a string and not empty: 0, or -1 with the operation refused. */
static int need(adapter_op *op, const json_t *o, const char *key, char **out)
{
    const char *text = NULL;
    err e;
    if (json_get_string(o, key, &text, &e))
        return refuse(op, 400, NULL, NULL, e.msg);
    if (!text || !*text) {
        err_set(&e, "\"%s\" is needed", key);
        return refuse(op, 400, NULL, "missing_field", e.msg);
    }
    *out = xstrdup(text);
    return 0;
}

/* Sets the whole name. A tenant's names are its own, with OWNER/ before them or not. */
static void set_name(adapter_op *op, const char *name)
{
    size_t n = op->owner ? strlen(op->owner) : 0;
    bool is_whole = !op->owner || (strncmp(name, op->owner, n) == 0 && name[n] == '/');
    op->name = is_whole ? xstrdup(name) : xasprintf("%s/%s", op->owner, name);
}

static int need_name(adapter_op *op, const json_t *o)
{
    char *name = NULL;
    if (need(op, o, "lora_name", &name))
        return -1;
    set_name(op, name);
    free(name);
    return 0;
}

/* Completes a source that is a hub's OWNER/NAME alone, as vLLM's clients have it. */
static void complete_source(adapter_op *op)
{
    const char *slash = strchr(op->source, '/');
    if (!slash || slash == op->source || strchr(slash + 1, '/') || strchr(op->source, ':'))
        return;
    char *whole = xasprintf("hf://%s", op->source);
    free(op->source);
    op->source = whole;
}

static void read_load(adapter_op *op, const json_t *o)
{
    err e;
    if (need_name(op, o) || need(op, o, "lora_path", &op->source))
        return;
    if (json_get_bool(o, "load_inplace", &op->replace, &e)) {
        refuse(op, 400, "load_inplace", NULL, e.msg);
        return;
    }
    complete_source(op);
    op->kind = ADAPTER_OP_ADD;
}

static void read_put(adapter_op *op, const json_t *o)
{
    long number = 0;
    err e;
    if (json_member(o, "version") && json_member(o, "source")) {
        refuse(op, 400, "version", NULL,
               "it is either \"source\", for the next version, or \"version\", for an earlier one");
    } else if (json_member(o, "version")) {
        if (json_get_int(o, "version", 1, 1000000000, &number, &e))
            refuse(op, 400, "version", NULL, e.msg);
        else
            op->kind = ADAPTER_OP_ROLLBACK;
        op->version = (int)number;
    } else if (need(op, o, "source", &op->source) == 0) {
        op->replace = true;
        op->kind = ADAPTER_OP_ADD;
    }
}

static void read_body(adapter_op *op, const char *path, const buf *body)
{
    err e;
    json_t *o = json_read_text(body->data ? body->data : "", body->len, &e);
    if (!json_is_object(o))
        refuse(op, 400, NULL, NULL, o ? "the body must be a JSON object" : e.msg);
    else if (strcmp(path, LOAD_PATH) == 0)
        read_load(op, o);
    else if (strcmp(path, UNLOAD_PATH) == 0)
        op->kind = need_name(op, o) ? ADAPTER_OP_BAD : ADAPTER_OP_REMOVE;
    else
        read_put(op, o);
    json_decref(o);
}

/* Reads what a method asks for at /v1/adapters (GET only) or /v1/adapters/NAME (PUT and DELETE, too): the
 * route lets nothing else in. */
static void read_method(adapter_op *op, const http_head *h, const buf *body)
{
    buf name = {0};
    const char *rest = h->path + strlen(ADAPTERS_PATH) - (strlen(h->path) < strlen(ADAPTERS_PATH));
    bool is_get = strcmp(h->method, "GET") == 0 || strcmp(h->method, "HEAD") == 0;
    if (http_decode_path(rest, &name)) {
        refuse(op, 404, NULL, "model_not_found", "there is no such adapter");
    } else if (!name.len) {
        op->kind = ADAPTER_OP_LIST;
    } else {
        set_name(op, name.data);
        if (is_get)
            op->kind = ADAPTER_OP_SHOW;
        else if (strcmp(h->method, "DELETE") == 0)
            op->kind = ADAPTER_OP_REMOVE;
        else
            read_body(op, h->path, body);
    }
    buf_free(&name);
}

static int check_load(adapter_op *op)
{
    int n = 0, n_own = 0;
    if (!op->owner)
        return 0;
    for (const adapter_op *o = op->api->loads; o; o = o->next_load, n++)
        n_own += strcmp(o->owner, op->owner) == 0;
    if (!fair_places_has(n, n_own, true))
        return n_own ? refuse(op, 429, NULL, "too_many_loads",
                              "other adapters of yours are being loaded; try again when they are")
                     : refuse(op, 503, NULL, "too_many_loads", "too many adapters are being loaded; try again later");
    op->next_load = op->api->loads;
    op->api->loads = op;
    return 0;
}

adapter_op *adapter_api_ask(adapter_api *a, const http_head *head, const buf *body, const adapter_asker *who,
                            void (*done)(void *ctx, int status, const buf *json), void *ctx)
{
    adapter_op *op = XNEW(adapter_op);
    *op = (adapter_op){.task = {.turn.size = 1, .run = run_task, .done = task_done, .drop = drop_task},
                       .at_store = {.run = run_at_store, .done = store_done, .drop = store_drop},
                       .api = a,
                       .kind = ADAPTER_OP_BAD,
                       .room = INT64_MAX,
                       .owner = who->tenant ? xstrdup(who->tenant) : NULL,
                       .done = done,
                       .ctx = ctx};
    op->by = who->tenant ? xasprintf("tenant:%s %s", who->tenant, who->address)
                         : xasprintf(a->o.accounts ? "admin:%s" : "%s", who->address);
    if (strcmp(head->method, "POST") == 0 && strncmp(head->path, ADAPTERS_PATH, strlen(ADAPTERS_PATH)) != 0)
        read_body(op, head->path, body);
    else
        read_method(op, head, body);
    if (op->kind == ADAPTER_OP_ADD) {
        op->task.turn.size = FAIR_SHORT + 1; /* short ones overtake it */
        if (check_load(op))
            op->kind = ADAPTER_OP_BAD;
    }
    if (a->o.accounts)
        ask_store(op, STAGE_BEFORE);
    else
        background_start(a->threads, &op->task);
    return op;
}

void adapter_api_forget(adapter_api *a, adapter_op *op)
{
    op->done = NULL;
    if (!op->is_out)
        background_abandon(a->threads, &op->task);
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
