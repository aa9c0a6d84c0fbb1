/* store_adapters.c - the store: the registry of adapters, and tenants' limits on it
 *
 * A change reads the name's row, lets the caller make the next one from it, and writes that, all in one transaction
 * that holds the lock on the counter's row: so two frontends' changes of a name are serialised. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/transaction.h"

typedef struct {
    const char *who, *action, *owner, *name;
    store_adapter_edit *edit;
    void *ctx;
} adapter_change;

static int64_t number(const char *text)
{
    return strtoll(text, NULL, 10);
}

static void copy_record_row(void *ctx, const char *const *c)
{
    char **record = ctx;
    free(*record);
    *record = xstrdup(c[0]);
}

/* A tenant's limits, and what it has apart from the name that is changed. */
typedef struct {
    bool is_there;
    int64_t max_n, max_bytes, n, bytes;
} holdings;

static void read_limits_row(void *ctx, const char *const *c)
{
    holdings *h = ctx;
    h->is_there = true;
    h->max_n = number(c[0]);
    h->max_bytes = number(c[1]);
}

static void read_counts_row(void *ctx, const char *const *c)
{
    holdings *h = ctx;
    h->n = number(c[0]);
    h->bytes = number(c[1]);
}

static store_result read_holdings(sql *db, const adapter_change *c, holdings *h, err *e)
{
    sql_params p = {0};
    params_text(&p, c->owner);
    if (sql_run(db, "SELECT max_adapters, max_adapter_bytes FROM tenant WHERE name = $1", p.at, p.n, read_limits_row, h,
                e) < 0)
        return STORE_FAILED;
    if (!h->is_there) {
        err_set(e, "there is no tenant \"%s\"", c->owner);
        return STORE_ABSENT;
    }
    params_text(&p, c->name);
    bool good = sql_run(db, "SELECT count(*), coalesce(sum(bytes), 0) FROM adapter WHERE owner = $1 AND name <> $2",
                        p.at, p.n, read_counts_row, h, e) >= 0;
    return good ? STORE_OK : STORE_FAILED;
}

static store_result find_now(sql *db, const adapter_change *c, char **record, store_adapter_now *now, err *e)
{
    holdings h = {0};
    sql_params p = {0};
    params_text(&p, c->owner);
    params_text(&p, c->name);
    if (sql_run(db, "SELECT record FROM adapter WHERE owner = $1 AND name = $2", p.at, p.n, copy_record_row, record,
                e) < 0)
        return STORE_FAILED;
    *now = (store_adapter_now){.record = *record, .may_add = true, .room = INT64_MAX};
    if (!*c->owner)
        return STORE_OK;
    store_result r = read_holdings(db, c, &h, e);
    now->may_add = h.n < h.max_n;
    if (h.max_bytes)
        now->room = h.max_bytes > h.bytes ? h.max_bytes - h.bytes : 0;
    return r;
}

static store_result write_next(sql *db, const adapter_change *c, const store_adapter_next *next, err *e)
{
    sql_params p = {0};
    params_text(&p, c->owner);
    params_text(&p, c->name);
    if (!next->record)
        return run_statement(db, "DELETE FROM adapter WHERE owner = $1 AND name = $2", &p, e) == 1 ? STORE_OK
                                                                                                   : STORE_FAILED;
    params_text(&p, next->id);
    params_text(&p, next->source);
    params_number(&p, next->trusted);
    params_number(&p, next->bytes);
    params_text(&p, next->record);
    return run_statement(
               db,
               "INSERT INTO adapter (owner, name, id, source, trusted, bytes, record) VALUES ($1, $2, $3, $4, $5, $6, "
               "$7) "
               "ON CONFLICT (owner, name) DO UPDATE SET id = excluded.id, source = excluded.source, trusted = "
               "excluded.trusted, "
               "bytes = excluded.bytes, record = excluded.record",
               &p, e) == 1
               ? STORE_OK
               : STORE_FAILED;
}

static store_result change_one(sql *db, void *ctx, err *e)
{
    const adapter_change *c = ctx;
    store_adapter_now now;
    store_adapter_next next = {0};
    char *record = NULL;
    int64_t change;
    store_result r = begin_change(db, &change, e) ? STORE_FAILED : find_now(db, c, &record, &now, e);
    if (r == STORE_OK)
        r = c->edit(c->ctx, &now, &next, e);
    if (r == STORE_OK)
        r = write_next(db, c, &next, e);
    if (r == STORE_OK)
        r = end_change(db, change, c->who, c->action, c->owner, next.detail, e);
    free(record);
    free(next.record);
    free(next.id);
    free(next.source);
    free(next.detail);
    return r;
}

store_result store_change_adapter(store *s, const char *who, const char *action, const char *owner, const char *name,
                                  store_adapter_edit *edit, void *ctx, err *e)
{
    adapter_change c = {.who = who, .action = action, .owner = owner, .name = name, .edit = edit, .ctx = ctx};
    return transaction(s, change_one, &c, e);
}

typedef struct {
    void (*each)(void *ctx, const store_adapter *a, const char *record);
    void *ctx;
} record_reader;

static void read_record_row(void *ctx, const char *const *c)
{
    const record_reader *r = ctx;
    const store_adapter a = {
        .owner = c[0], .name = c[1], .id = c[2], .source = c[3], .trusted = number(c[4]), .bytes = number(c[5])};
    r->each(r->ctx, &a, c[6]);
}

int store_read_records(store *s, const char *owner, const char *name,
                       void (*each)(void *ctx, const store_adapter *a, const char *record), void *ctx, err *e)
{
    record_reader r = {each, ctx};
    sql_params p = {0};
    if (owner)
        params_text(&p, owner);
    if (name)
        params_text(&p, name);
    const char *statement =
        name    ? "SELECT owner, name, id, source, trusted, bytes, record FROM adapter WHERE owner = $1 AND name = $2"
        : owner ? "SELECT owner, name, id, source, trusted, bytes, record FROM adapter WHERE owner = $1 ORDER BY name"
                : "SELECT owner, name, id, source, trusted, bytes, record FROM adapter ORDER BY owner, name";
    return read_rows(s, statement, &p, read_record_row, &r, e);
}
