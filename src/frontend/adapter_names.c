/* adapter_names.c - see adapter_names.h */
#include "frontend/adapter_names.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

_Static_assert(STORE_MAX_ADAPTER == STORE_MAX_NAME + 1 + ADAPTER_MAX_NAME, "the store takes every adapter's name");

const char *adapter_name_split(const char *full, char owner[ADAPTER_OWNER])
{
    const char *slash = strchr(full, '/');
    size_t n = slash ? (size_t)(slash - full) : 0;
    owner[0] = 0;
    if (n == 0 || n >= ADAPTER_OWNER)
        return full;
    memcpy(owner, full, n);
    owner[n] = 0;
    return slash + 1;
}

/* Checks the form of a name. */
static int check_name(const adapter_names *n, const char *full, err *e)
{
    char owner[ADAPTER_OWNER];
    json_t *utf8 = json_string(full); /* NULL unless it is that */
    json_decref(utf8);
    if (!utf8)
        return err_set(e, "an adapter's name is UTF-8");
    return adapter_name_check(n->store ? adapter_name_split(full, owner) : full, e);
}

int adapter_names_check_source(bool is_in_store, const source *s, err *e)
{
    if (!is_in_store || s->kind != SOURCE_FILE || s->url[0] == '/')
        return 0;
    return err_set(e, "%s: all hosts read it, wherever their processes run; give its whole path", s->shown);
}

/* Reads a record from the document that the store has of it. */
static int read_record(const char *text, adapter_record *out, err *e)
{
    json_t *o = json_read_text(text, strlen(text), e);
    int status = o ? adapter_record_from_json(out, o, e) : -1;
    json_decref(o);
    return status ? err_wrap(e, "store: the record of an adapter") : 0;
}

/* A change of a record in the store. */
typedef struct {
    const char *full;
    const adapter_version *add; /* NULL: none is added */
    bool replace, remove;
    bool asks; /* only whether it could be done */
    bool trusted;
    int64_t room;
    int number; /* of a rollback */
} edit;

static store_result absent(const edit *d, err *e)
{
    err_set(e, "there is no adapter \"%s\"", d->full);
    return STORE_ABSENT;
}

static store_result taken(const char *full, err *e)
{
    err_set(e, "there is an adapter \"%s\" already", full);
    return STORE_TAKEN;
}

/* Fits the record into its owner's limit on bytes, by dropping older versions of the name. */
static store_result fit(const store_adapter_now *now, adapter_record *r, err *e)
{
    while (adapter_record_bytes(r) > now->room && adapter_record_forget(r))
        continue;
    if (adapter_record_bytes(r) <= now->room)
        return STORE_OK;
    err_set(e, "it has %lld bytes, and the limit on bytes of adapters leaves room for %lld",
            (long long)adapter_record_bytes(r), (long long)now->room);
    return STORE_TOO_LARGE;
}

static store_result add_version(edit *d, const store_adapter_now *now, adapter_record *r, err *e)
{
    if (now->record && !d->replace)
        return taken(d->full, e);
    if (!now->record && !now->may_add && !d->trusted) {
        err_set(e, "the limit on the number of adapters is reached");
        return STORE_TOO_MANY;
    }
    if (d->asks) {
        d->room = d->trusted ? INT64_MAX : now->room;
        return STORE_UNCHANGED;
    }
    adapter_record_add(r, d->add);
    return d->trusted ? STORE_OK : fit(now, r, e);
}

static void fill(const adapter_record *r, store_adapter_next *next)
{
    const adapter_version *v = &r->version[r->current];
    json_t *o = adapter_record_to_json(r, true);
    next->record = json_dumps(o, JSON_COMPACT);
    CHECK(next->record);
    json_decref(o);
    next->id = xstrdup(v->id);
    next->source = xstrdup(v->url);
    next->trusted = v->trusted;
    next->bytes = adapter_record_bytes(r);
}

static store_result edit_record(void *ctx, const store_adapter_now *now, store_adapter_next *next, err *e)
{
    edit *d = ctx;
    adapter_record r = {0};
    store_result result = STORE_OK;
    bool adds = d->add || d->asks;
    if (!now->record && !adds)
        return absent(d, e);
    if (now->record && read_record(now->record, &r, e))
        return STORE_FAILED;
    if (adds)
        result = add_version(d, now, &r, e);
    else if (!d->remove && adapter_record_rollback(&r, d->number, e))
        result = STORE_ABSENT;
    if (result == STORE_OK && !d->remove)
        fill(&r, next);
    if (result == STORE_OK)
        next->detail = d->remove ? xstrdup(d->full)
                                 : xasprintf("%s, version %d, %.12s, %s", d->full, r.version[r.current].number,
                                             r.version[r.current].id, r.version[r.current].source);
    adapter_record_deinit(&r);
    return result;
}

static store_result change(const adapter_names *n, const char *who, const char *action, edit *d, err *e)
{
    char owner[ADAPTER_OWNER];
    const char *name = adapter_name_split(d->full, owner);
    if (check_name(n, d->full, e))
        return d->add || d->asks ? STORE_BAD : absent(d, e);
    return store_change_adapter(n->store, who, action, owner, name, edit_record, d, e);
}

store_result adapter_names_may_add(const adapter_names *n, const char *full, bool replace, bool trusted, int64_t *room,
                                   err *e)
{
    edit d = {.full = full, .replace = replace, .asks = true, .trusted = trusted};
    adapter_record record;
    err none;
    *room = INT64_MAX;
    if (check_name(n, full, e))
        return STORE_BAD;
    if (!n->store) {
        if (replace || registry_read(n->disk, full, &record, &none))
            return STORE_OK;
        adapter_record_deinit(&record);
        return taken(full, e);
    }
    store_result r = change(n, "", "", &d, e);
    *room = d.room;
    return r == STORE_UNCHANGED ? STORE_OK : r;
}

store_result adapter_names_add(const adapter_names *n, const char *who, const char *full, const adapter_version *v,
                               bool replace, err *e)
{
    edit d = {.full = full, .add = v, .replace = replace, .trusted = v->trusted};
    if (n->store)
        return change(n, who, replace ? "adapter replace" : "adapter add", &d, e);
    adapter_version here = *v;
    here.url = NULL; /* no other host reads it */
    return registry_add(n->disk, full, &here, replace, e) ? STORE_BAD : STORE_OK;
}

store_result adapter_names_rollback(const adapter_names *n, const char *who, const char *full, int number, err *e)
{
    edit d = {.full = full, .number = number};
    if (n->store)
        return change(n, who, "adapter rollback", &d, e);
    return registry_rollback(n->disk, full, number, e) ? STORE_ABSENT : STORE_OK;
}

store_result adapter_names_remove(const adapter_names *n, const char *who, const char *full, err *e)
{
    edit d = {.full = full, .remove = true};
    if (n->store)
        return change(n, who, "adapter remove", &d, e);
    return registry_remove(n->disk, full, e) ? STORE_ABSENT : STORE_OK;
}

typedef struct {
    adapter_record *out; /* where one is read; NULL: each is called for all */
    void (*each)(void *ctx, const char *full, const adapter_record *r);
    void *ctx;
    bool found, bad;
    err *e;
} record_reading;

static void take_record(void *ctx, const store_adapter *a, const char *text)
{
    record_reading *r = ctx;
    adapter_record record;
    if (r->bad || (r->bad = read_record(text, &record, r->e) != 0))
        return;
    r->found = true;
    if (r->out) {
        *r->out = record;
        return;
    }
    char *full = *a->owner ? xasprintf("%s/%s", a->owner, a->name) : xstrdup(a->name);
    r->each(r->ctx, full, &record);
    free(full);
    adapter_record_deinit(&record);
}

store_result adapter_names_read(const adapter_names *n, const char *full, adapter_record *out, err *e)
{
    char owner[ADAPTER_OWNER];
    record_reading r = {.out = out, .e = e};
    if (!n->store)
        return registry_read(n->disk, full, out, e) ? STORE_ABSENT : STORE_OK;
    const char *name = adapter_name_split(full, owner);
    if (check_name(n, full, e))
        return STORE_ABSENT;
    if (store_read_records(n->store, owner, name, take_record, &r, e) || r.bad)
        return STORE_FAILED;
    return r.found ? STORE_OK : absent(&(edit){.full = full}, e);
}

static int list_disk(const adapter_names *n, const record_reading *r)
{
    int n_names, status = 0;
    char **name = registry_list(n->disk, &n_names);
    for (int i = 0; i < n_names; i++) {
        adapter_record record;
        if (status == 0 && (status = registry_read(n->disk, name[i], &record, r->e)) == 0) {
            r->each(r->ctx, name[i], &record);
            adapter_record_deinit(&record);
        }
        free(name[i]);
    }
    free(name);
    return status;
}

int adapter_names_list(const adapter_names *n, const char *owner,
                       void (*each)(void *ctx, const char *full, const adapter_record *r), void *ctx, err *e)
{
    record_reading r = {.each = each, .ctx = ctx, .e = e};
    if (!n->store)
        return list_disk(n, &r);
    return store_read_records(n->store, owner, NULL, take_record, &r, e) || r.bad ? -1 : 0;
}

/* The url of a hub's repository names the very commit, whatever becomes of its branch. */
adapter_version adapter_names_version(const source *s, const char *text, const fetched *got, const char *by,
                                      bool trusted)
{
    adapter_version v = {.source = s->shown,
                         .revision = (char *)got->revision,
                         .by = (char *)by,
                         .at = (time_t)clock_wall(),
                         .bytes = (int64_t)got->bytes,
                         .rank = got->rank,
                         .trusted = trusted};
    memcpy(v.id, got->id, sizeof v.id);
    v.url = s->kind == SOURCE_HUB ? xasprintf("hf://%s@%s", s->repository, got->revision)
                                  : xstrndup(text, strcspn(text, "#"));
    return v;
}
