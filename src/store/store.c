/* store.c - see store.h: opening, transactions, and the directory of tenants */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/schema.h"
#include "store/transaction.h"

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static int connect_to(store *s, err *e)
{
    if (s->db)
        return 0;
    const char *file = begins(s->url, "sqlite:") ? s->url + 7 : s->url;
    bool postgres = begins(s->url, "postgres://") || begins(s->url, "postgresql://");
    if (s->was_open && !postgres && !file_exists(file))
        return err_set(e, "store %s: the file is gone; put it back", file);
    s->db = postgres ? sql_open_postgres(s->url, e) : sql_open_sqlite(file, s->may_make, e);
    if (s->db && schema_migrate(s->db, s->may_make, e)) {
        sql_close(s->db);
        s->db = NULL;
    }
    s->was_open |= s->db != NULL;
    return s->db ? 0 : -1;
}

/* Closes the connection after any failure; the next call opens a new one. */
static void disconnect(store *s)
{
    sql_close(s->db);
    s->db = NULL;
}

static store *open_it(const char *url, bool may_make, err *e)
{
    store *s = XNEW(store);
    *s = (store){.url = xstrdup(url), .may_make = may_make};
    if (connect_to(s, e) == 0)
        return s;
    store_close(s);
    return NULL;
}

store *store_open(const char *url, err *e)
{
    return open_it(url, true, e);
}

store *store_open_existing(const char *url, err *e)
{
    return open_it(url, false, e);
}

void store_close(store *s)
{
    if (!s)
        return;
    disconnect(s);
    free(s->url);
    free(s);
}

/* Statements. */

void params_text(sql_params *p, const char *text)
{
    CHECK(p->n < SQL_MAX_PARAMS);
    p->at[p->n++] = text;
}

void params_number(sql_params *p, int64_t x)
{
    CHECK(p->n < SQL_MAX_PARAMS);
    snprintf(p->number[p->n], sizeof p->number[0], "%" PRId64, x);
    p->at[p->n] = p->number[p->n];
    p->n++;
}

long run_statement(sql *db, const char *statement, const sql_params *p, err *e)
{
    return sql_run(db, statement, p ? p->at : NULL, p ? p->n : 0, NULL, NULL, e);
}

store_result transaction(store *s, transaction_work *w, void *ctx, err *e)
{
    if (connect_to(s, e))
        return STORE_FAILED;
    store_result r = run_statement(s->db, s->db->begin, NULL, e) < 0 ? STORE_FAILED : w(s->db, ctx, e);
    if (r == STORE_OK && run_statement(s->db, "COMMIT", NULL, e) < 0)
        r = STORE_FAILED;
    err unused;
    if (r == STORE_FAILED || (r != STORE_OK && run_statement(s->db, "ROLLBACK", NULL, &unused) < 0))
        disconnect(s);
    return r;
}

int read_rows(store *s, const char *statement, const sql_params *p, sql_each *each, void *ctx, err *e)
{
    if (connect_to(s, e))
        return -1;
    if (sql_run(s->db, statement, p ? p->at : NULL, p ? p->n : 0, each, ctx, e) >= 0)
        return 0;
    disconnect(s);
    return -1;
}

/* The directory. */

static int64_t number(const char *text)
{
    return strtoll(text, NULL, 10);
}

static const char *keep(store_directory *d, const char *text)
{
    size_t n = strlen(text) + 1;
    char *kept = arena_alloc(&d->text, n);
    CHECK(kept);
    return memcpy(kept, text, n);
}

typedef struct {
    store_directory *d;
    size_t tenant_cap, key_cap, grant_cap, adapter_cap;
} directory_reading;

void read_number_row(void *ctx, const char *const *c)
{
    *(int64_t *)ctx = number(c[0]);
}

store_tenant tenant_of_row(const char *const *c)
{
    return (store_tenant){.name = c[0],
                          .base = number(c[1]),
                          .weight = number(c[2]),
                          .in_flight = number(c[3]),
                          .waiting = number(c[4]),
                          .requests_per_minute = number(c[5]),
                          .tokens_per_minute = number(c[6]),
                          .created = number(c[7]),
                          .max_adapters = number(c[8]),
                          .max_adapter_bytes = number(c[9])};
}

static void read_tenant_row(void *ctx, const char *const *c)
{
    directory_reading *r = ctx;
    store_directory *d = r->d;
    d->tenant = xgrow(d->tenant, &r->tenant_cap, d->n_tenants + 1, sizeof *d->tenant);
    d->tenant[d->n_tenants] = tenant_of_row(c);
    d->tenant[d->n_tenants++].name = keep(d, c[0]);
}

static void read_key_row(void *ctx, const char *const *c)
{
    directory_reading *r = ctx;
    store_directory *d = r->d;
    store_key k = {.tenant = keep(d, c[0]), .name = keep(d, c[1]), .created = number(c[3]), .expires = number(c[4])};
    if (digest_from_hex(&k.of, c[2]))
        return; /* not written by us: no key can match it */
    d->key = xgrow(d->key, &r->key_cap, d->n_keys + 1, sizeof *d->key);
    d->key[d->n_keys++] = k;
}

static void read_grant_row(void *ctx, const char *const *c)
{
    directory_reading *r = ctx;
    store_directory *d = r->d;
    d->grant = xgrow(d->grant, &r->grant_cap, d->n_grants + 1, sizeof *d->grant);
    d->grant[d->n_grants++] = (store_grant){.tenant = keep(d, c[0]), .adapter = keep(d, c[1])};
}

static void read_adapter_row(void *ctx, const char *const *c)
{
    directory_reading *r = ctx;
    store_directory *d = r->d;
    d->adapter = xgrow(d->adapter, &r->adapter_cap, d->n_adapters + 1, sizeof *d->adapter);
    d->adapter[d->n_adapters++] = (store_adapter){.owner = keep(d, c[0]),
                                                  .name = keep(d, c[1]),
                                                  .id = keep(d, c[2]),
                                                  .source = keep(d, c[3]),
                                                  .trusted = number(c[4]),
                                                  .bytes = number(c[5])};
}

static const char read_change[] = "SELECT value FROM counter WHERE name = 'change'";

/* Reads the directory. In PostgreSQL each statement sees what was committed before it (READ COMMITTED), so the change
 * number is read first: it is never newer than the data, and a later change makes us read again. */
static store_result read_all(sql *db, void *ctx, err *e)
{
    directory_reading *r = ctx;
    bool good =
        sql_run(db, read_change, NULL, 0, read_number_row, &r->d->change, e) >= 0 &&
        sql_run(db, "SELECT " TENANT_COLUMNS " FROM tenant ORDER BY name", NULL, 0, read_tenant_row, r, e) >= 0 &&
        sql_run(db, "SELECT tenant, name, digest, created, expires FROM api_key ORDER BY tenant, name", NULL, 0,
                read_key_row, r, e) >= 0 &&
        sql_run(db, "SELECT tenant, adapter FROM adapter_grant ORDER BY tenant, adapter", NULL, 0, read_grant_row, r,
                e) >= 0 &&
        sql_run(db, "SELECT owner, name, id, source, trusted, bytes FROM adapter ORDER BY owner, name", NULL, 0,
                read_adapter_row, r, e) >= 0;
    return good ? STORE_OK : STORE_FAILED;
}

int store_read_change(store *s, int64_t *change, err *e)
{
    return read_rows(s, read_change, NULL, read_number_row, change, e);
}

store_directory *store_read_directory(store *s, err *e)
{
    directory_reading r = {.d = XNEW(store_directory)};
    r.d->text.limit = SIZE_MAX;
    if (transaction(s, read_all, &r, e) == STORE_OK)
        return r.d;
    store_directory_free(r.d);
    return NULL;
}

void store_directory_free(store_directory *d)
{
    if (!d)
        return;
    free(d->tenant);
    free(d->key);
    free(d->grant);
    free(d->adapter);
    arena_free(&d->text);
    free(d);
}
