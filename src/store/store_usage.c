/* store_usage.c - the store: what tenants have used, and what frontends tell each other of it
 *
 * A frontend's row has the number of its last batch; the transaction that applies a batch also sets that number. So
 * flushing is idempotent: a batch whose commit was not confirmed can be sent again. */
#include <stdlib.h>
#include <string.h>

#include "store/transaction.h"

enum { SILENT_S = 10, FORGOTTEN_S = 7 * 24 * 3600 }; /* after which a silent frontend's load is ignored; its row goes */

static store_result known(long rows)
{
    return rows < 0 ? STORE_FAILED : STORE_OK;
}

/* Claims the batch's number and sets *fresh if the batch is still to be applied. The frontend's row is locked from then
 * on; it is inserted if missing: the frontend is new, or was silent for so long that it was forgotten. Missing batches
 * before this one are lost: the database was restored from a copy, and frontends that had written them go on. */
static store_result claim(sql *db, const store_batch *b, bool *fresh, err *e)
{
    sql_params id = {0}, next = {0};
    params_text(&id, b->frontend);
    params_number(&id, b->number - 1);
    params_number(&id, b->now);
    params_text(&next, b->frontend);
    params_number(&next, b->number);
    params_number(&next, b->now);
    int64_t flushed = -1;
    if (run_statement(db, "INSERT INTO frontend (id, flushed, seen) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING",
                      &id, e) < 0)
        return STORE_FAILED;
    long n = run_statement(
        db, "UPDATE frontend SET flushed = $2, seen = $3 WHERE id = $1 AND flushed < CAST($2 AS BIGINT)", &next, e);
    *fresh = n == 1;
    if (n)
        return known(n);
    if (sql_run(db, "SELECT flushed FROM frontend WHERE id = $1", id.at, 1, read_number_row, &flushed, e) < 0)
        return STORE_FAILED;
    if (flushed == b->number)
        return STORE_OK;
    err_set(e, "store: batch %lld of a frontend came behind its batch %lld", (long long)b->number, (long long)flushed);
    return STORE_BAD;
}

static store_result add_usage(sql *db, const store_usage *u, err *e)
{
    sql_params p = {0};
    params_text(&p, u->tenant);
    params_text(&p, u->adapter);
    params_text(&p, u->digest);
    const int64_t number[] = {u->hour, u->requests, u->prompt, u->cached, u->output};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        params_number(&p, number[i]);
    return known(run_statement(
        db,
        "INSERT INTO usage (tenant, adapter, digest, hour, requests, prompt, cached, output) VALUES ($1, $2, $3, "
        "CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($8 AS BIGINT)) "
        "ON CONFLICT (tenant, adapter, digest, hour) DO UPDATE SET requests = usage.requests + excluded.requests, "
        "prompt = usage.prompt + excluded.prompt, cached = usage.cached + excluded.cached, output = usage.output + "
        "excluded.output",
        &p, e));
}

static store_result add_load(sql *db, const char *frontend, const store_load *l, err *e)
{
    sql_params spent = {0}, live = {0};
    params_text(&spent, l->tenant);
    params_number(&spent, l->requests);
    params_number(&spent, l->tokens);
    params_text(&live, frontend);
    params_text(&live, l->tenant);
    params_number(&live, l->in_flight);
    params_number(&live, l->waiting);
    if (run_statement(
            db,
            "INSERT INTO spent (tenant, requests, tokens) VALUES ($1, CAST($2 AS BIGINT), CAST($3 AS BIGINT)) ON "
            "CONFLICT (tenant) "
            "DO UPDATE SET requests = spent.requests + excluded.requests, tokens = spent.tokens + excluded.tokens",
            &spent, e) < 0)
        return STORE_FAILED;
    return known(run_statement(
        db,
        "INSERT INTO live (frontend, tenant, in_flight, waiting) VALUES ($1, $2, CAST($3 AS BIGINT), CAST($4 AS "
        "BIGINT)) "
        "ON CONFLICT (frontend, tenant) DO UPDATE SET in_flight = excluded.in_flight, waiting = excluded.waiting",
        &live, e));
}

/* Removes frontends that have not flushed for days, when a new one flushes for the first time. */
static store_result forget_old(sql *db, const store_batch *b, err *e)
{
    sql_params p = {0};
    params_number(&p, b->now - FORGOTTEN_S);
    return b->number != 1 ? STORE_OK
                          : known(run_statement(db, "DELETE FROM frontend WHERE seen < CAST($1 AS BIGINT)", &p, e));
}

static store_result apply(sql *db, void *ctx, err *e)
{
    const store_batch *b = ctx;
    bool fresh;
    store_result r = claim(db, b, &fresh, e);
    if (r || !fresh)
        return r;
    for (size_t i = 0; i < b->n_usage && r == STORE_OK; i++)
        r = add_usage(db, &b->usage[i], e);
    for (size_t i = 0; i < b->n_load && r == STORE_OK; i++)
        r = add_load(db, b->frontend, &b->load[i], e);
    return r ? r : forget_old(db, b, e);
}

int store_flush(store *s, const store_batch *b, err *e)
{
    return transaction(s, apply, (void *)b, e) == STORE_OK ? 0 : -1;
}

typedef struct {
    void (*each)(void *ctx, const store_load *l);
    void *ctx;
} load_reader;

static void read_load_row(void *ctx, const char *const *c)
{
    const load_reader *r = ctx;
    const store_load l = {.tenant = c[0],
                          .requests = strtoll(c[1], NULL, 10),
                          .tokens = strtoll(c[2], NULL, 10),
                          .in_flight = strtoll(c[3], NULL, 10),
                          .waiting = strtoll(c[4], NULL, 10)};
    r->each(r->ctx, &l);
}

int store_read_load(store *s, const char *frontend, int64_t now, void (*each)(void *ctx, const store_load *l),
                    void *ctx, err *e)
{
    load_reader r = {each, ctx};
    sql_params p = {0};
    params_text(&p, frontend);
    params_number(&p, now - SILENT_S);
    return read_rows(s,
                     "SELECT spent.tenant, max(spent.requests), max(spent.tokens), coalesce(sum(others.in_flight), 0), "
                     "coalesce(sum(others.waiting), 0) FROM spent LEFT JOIN (SELECT live.tenant, live.in_flight, "
                     "live.waiting FROM live "
                     "JOIN frontend ON frontend.id = live.frontend WHERE live.frontend <> $1 AND frontend.seen >= "
                     "CAST($2 AS BIGINT)) AS others "
                     "ON others.tenant = spent.tenant GROUP BY spent.tenant ORDER BY spent.tenant",
                     &p, read_load_row, &r, e);
}

typedef struct {
    void (*each)(void *ctx, const store_usage *u);
    void *ctx;
} usage_reader;

static void read_usage_row(void *ctx, const char *const *c)
{
    const usage_reader *r = ctx;
    const store_usage u = {.tenant = c[0],
                           .adapter = c[1],
                           .digest = c[2],
                           .hour = strtoll(c[3], NULL, 10),
                           .requests = strtoll(c[4], NULL, 10),
                           .prompt = strtoll(c[5], NULL, 10),
                           .cached = strtoll(c[6], NULL, 10),
                           .output = strtoll(c[7], NULL, 10)};
    r->each(r->ctx, &u);
}

#define READ_USAGE                                                                                                \
    "SELECT tenant, adapter, digest, hour, requests, prompt, cached, output FROM usage WHERE hour >= CAST($1 AS " \
    "BIGINT) "                                                                                                    \
    "AND hour < CAST($2 AS BIGINT)"
#define USAGE_ORDER " ORDER BY tenant, hour, adapter, digest"

int store_read_usage(store *s, const store_period *period, void (*each)(void *ctx, const store_usage *u), void *ctx,
                     err *e)
{
    usage_reader r = {each, ctx};
    sql_params p = {0};
    params_number(&p, period->from);
    params_number(&p, period->to);
    if (period->tenant)
        params_text(&p, period->tenant);
    return read_rows(s, period->tenant ? READ_USAGE " AND tenant = $3 " USAGE_ORDER : READ_USAGE USAGE_ORDER, &p,
                     read_usage_row, &r, e);
}
