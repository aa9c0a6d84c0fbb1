/* store_admin.c - the store: changes of tenants, keys and grants, and the audit log
 *
 * Every change begins by incrementing the counter, whose row it thereby locks: so all changes are serialised, and the
 * count is the number of their line in the audit log. Frontends poll the counter to see that something has changed. */
#include <inttypes.h>
#include <jansson.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "store/transaction.h"

#define MAX_LIMIT INT64_C(1000000000000)
#define AUDIT_S ((int64_t)365 * 24 * 3600) /* for which a line of the audit log is kept */

/* A change, and its line in the audit log. */
typedef struct {
    const char *who, *action, *tenant;
    const char *name; /* of a key or an adapter */
    const store_tenant *settings;
    const store_key *key;
    int64_t at; /* of an expiry */
    buf detail;
} change;

static store_result refuse(store_result r, err *e, const char *why, const char *name)
{
    err_set(e, why, name);
    return r;
}

int begin_change(sql *db, int64_t *number, err *e)
{
    return sql_run(db, "UPDATE counter SET value = value + 1 WHERE name = 'change' RETURNING value", NULL, 0,
                   read_number_row, number, e) == 1
               ? 0
               : -1;
}

/* Removes the lines of the audit log that are too old: those before the first that is not, found in the order of their
 * numbers, so that nothing else is read. */
static int trim_audit(sql *db, int64_t now, err *e)
{
    sql_params p = {0};
    params_number(&p, now - AUDIT_S);
    return run_statement(
               db,
               "DELETE FROM audit WHERE number < (SELECT number FROM audit WHERE at >= CAST($1 AS BIGINT) ORDER BY "
               "number LIMIT 1)",
               &p, e) < 0
               ? -1
               : 0;
}

store_result end_change(sql *db, int64_t number, const char *who, const char *action, const char *tenant,
                        const char *detail, err *e)
{
    sql_params p = {0};
    const int64_t now = (int64_t)clock_wall();
    params_number(&p, number);
    params_number(&p, now);
    params_text(&p, who);
    params_text(&p, action);
    params_text(&p, tenant);
    params_text(&p, detail ? detail : "");
    return run_statement(db,
                         "INSERT INTO audit (number, at, who, action, tenant, detail) VALUES ($1, $2, $3, $4, $5, $6)",
                         &p, e) == 1 &&
                   trim_audit(db, now, e) == 0
               ? STORE_OK
               : STORE_FAILED;
}

static long count(sql *db, const char *statement, const sql_params *p, err *e)
{
    return sql_run(db, statement, p->at, p->n, NULL, NULL, e);
}

static long has_tenant(sql *db, const char *name, err *e)
{
    sql_params p = {0};
    params_text(&p, name);
    return count(db, "SELECT name FROM tenant WHERE name = $1", &p, e);
}

static sql_params pair(const char *a, const char *b)
{
    sql_params p = {0};
    params_text(&p, a);
    params_text(&p, b);
    return p;
}

/* Runs a statement that changes one row. If it changes none, returns `none`, with a message from the format what and
 * name. */
static store_result run_one(sql *db, const char *statement, const sql_params *p, store_result none, const char *what,
                            const char *name, err *e)
{
    long n = run_statement(db, statement, p, e);
    return n < 0 ? STORE_FAILED : n == 0 ? refuse(none, e, what, name) : STORE_OK;
}

/* The kinds of changes: what each does between begin_change() and end_change(). */

static store_result add_tenant(sql *db, const change *c, err *e)
{
    const store_tenant *t = c->settings;
    long there = has_tenant(db, t->name, e);
    if (there)
        return there < 0 ? STORE_FAILED : refuse(STORE_TAKEN, e, "there is a tenant \"%s\" already", t->name);
    sql_params p = {0};
    params_text(&p, t->name);
    const int64_t number[] = {t->base,
                              t->weight,
                              t->in_flight,
                              t->waiting,
                              t->requests_per_minute,
                              t->tokens_per_minute,
                              (int64_t)clock_wall(),
                              t->max_adapters,
                              t->max_adapter_bytes};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        params_number(&p, number[i]);
    return run_one(
        db,
        "INSERT INTO tenant (name, base, weight, in_flight, waiting, requests_per_minute, tokens_per_minute, created, "
        "max_adapters, max_adapter_bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &p, STORE_FAILED, "%s", "", e);
}

/* What others were granted of its adapters goes with them: the next of its name is somebody else. */
static store_result remove_tenant(sql *db, const change *c, err *e)
{
    sql_params p = {0}, its = {0};
    params_text(&p, c->tenant);
    params_text(&its, c->tenant);
    params_number(&its, (int64_t)strlen(c->tenant) + 1);
    if (run_statement(db, "DELETE FROM adapter WHERE owner = $1", &p, e) < 0 ||
        run_statement(
            db, "DELETE FROM adapter_grant WHERE substr(adapter, 1, CAST($2 AS INTEGER)) = CAST($1 AS TEXT) || '/'",
            &its, e) < 0)
        return STORE_FAILED;
    return run_one(db, "DELETE FROM tenant WHERE name = $1", &p, STORE_ABSENT, "there is no tenant \"%s\"", c->tenant,
                   e);
}

static store_result add_key(sql *db, const change *c, err *e)
{
    const store_key *k = c->key;
    char hex[DIGEST_HEX];
    digest_to_hex(&k->of, hex);
    sql_params same = pair(k->tenant, k->name), p = same;
    long tenant = has_tenant(db, k->tenant, e);
    if (tenant <= 0)
        return tenant < 0 ? STORE_FAILED : refuse(STORE_ABSENT, e, "there is no tenant \"%s\"", k->tenant);
    long there = count(db, "SELECT name FROM api_key WHERE tenant = $1 AND name = $2", &same, e);
    if (there)
        return there < 0 ? STORE_FAILED : refuse(STORE_TAKEN, e, "it has a key \"%s\" already", k->name);
    params_text(&p, hex);
    params_number(&p, (int64_t)clock_wall());
    params_number(&p, k->expires);
    return run_one(db, "INSERT INTO api_key (tenant, name, digest, created, expires) VALUES ($1, $2, $3, $4, $5)", &p,
                   STORE_FAILED, "%s", "", e);
}

static store_result expire_key(sql *db, const change *c, err *e)
{
    sql_params p = pair(c->tenant, c->name);
    params_number(&p, c->at);
    return run_one(db, "UPDATE api_key SET expires = $3 WHERE tenant = $1 AND name = $2", &p, STORE_ABSENT,
                   "there is no such key: \"%s\"", c->name, e);
}

static store_result remove_key(sql *db, const change *c, err *e)
{
    sql_params p = pair(c->tenant, c->name);
    return run_one(db, "DELETE FROM api_key WHERE tenant = $1 AND name = $2", &p, STORE_ABSENT,
                   "there is no such key: \"%s\"", c->name, e);
}

static store_result add_grant(sql *db, const change *c, err *e)
{
    sql_params p = pair(c->tenant, c->name);
    long tenant = has_tenant(db, c->tenant, e);
    if (tenant <= 0)
        return tenant < 0 ? STORE_FAILED : refuse(STORE_ABSENT, e, "there is no tenant \"%s\"", c->tenant);
    return run_one(
        db, "INSERT INTO adapter_grant (tenant, adapter) VALUES ($1, $2) ON CONFLICT (tenant, adapter) DO NOTHING", &p,
        STORE_TAKEN, "it has been granted \"%s\" already", c->name, e);
}

static store_result remove_grant(sql *db, const change *c, err *e)
{
    sql_params p = pair(c->tenant, c->name);
    return run_one(db, "DELETE FROM adapter_grant WHERE tenant = $1 AND adapter = $2", &p, STORE_ABSENT,
                   "it has not been granted \"%s\"", c->name, e);
}

/* The kinds by their names in the audit log. */
static const struct {
    const char *action;
    store_result (*make)(sql *db, const change *c, err *e);
} kinds[] = {
    {"tenant add", add_tenant},     {"tenant remove", remove_tenant}, {"key add", add_key},
    {"key expire", expire_key},     {"key remove", remove_key},       {"grant add", add_grant},
    {"grant remove", remove_grant},
};

static store_result make_change(sql *db, void *ctx, err *e)
{
    const change *c = ctx;
    int64_t number;
    if (begin_change(db, &number, e))
        return STORE_FAILED;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].action, c->action) == 0) {
            store_result r = kinds[i].make(db, c, e);
            return r == STORE_OK ? end_change(db, number, c->who, c->action, c->tenant, c->detail.data, e) : r;
        }
    CHECK(!"a kind of change that is in the table");
    return STORE_FAILED;
}

static store_result make(store *s, change *c, err *e)
{
    store_result r = transaction(s, make_change, c, e);
    buf_free(&c->detail);
    return r;
}

/* Checks of what callers ask for. */

static bool is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n = strlen(text);
    return n > 0 && n <= STORE_MAX_NAME && strspn(text, allowed) == n && text[0] != '.' && text[0] != '-';
}

static store_result check_name(const char *what, const char *text, err *e)
{
    if (is_name(text))
        return STORE_OK;
    err_set(e, "a %s's name is 1 to %d letters, digits, - _ and ., and does not begin with - or .", what,
            STORE_MAX_NAME);
    return STORE_BAD;
}

static store_result check_tenant(const store_tenant *t, err *e)
{
    const int64_t limit[] = {t->in_flight,         t->waiting,      t->requests_per_minute,
                             t->tokens_per_minute, t->max_adapters, t->max_adapter_bytes};
    if (check_name("tenant", t->name, e))
        return STORE_BAD;
    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++)
        if (limit[i] < 0 || limit[i] > MAX_LIMIT)
            return refuse(STORE_BAD, e, "a limit is 0 (none) or more, up to 10^12%s", "");
    if (t->weight >= 1 && t->weight <= STORE_MAX_WEIGHT)
        return STORE_OK;
    err_set(e, "a weight is 1 to %d", STORE_MAX_WEIGHT);
    return STORE_BAD;
}

static store_result check_pattern(const char *text, err *e)
{
    size_t n = strlen(text);
    const char *star = strchr(text, '*');
    json_t *utf8 = json_string(text); /* NULL unless text is UTF-8 */
    bool plain = utf8 && n > 0 && n <= STORE_MAX_ADAPTER && (!star || star[1] == '\0');
    for (size_t i = 0; i < n; i++)
        plain &= (unsigned char)text[i] >= ' ' && text[i] != 127;
    json_decref(utf8);
    if (plain)
        return STORE_OK;
    return refuse(
        STORE_BAD, e,
        "an adapter is granted by its name, or by the beginning of names and a * behind it, not by \"%.100s\"", text);
}

static void describe(buf *out, const store_tenant *t)
{
    buf_printf(out,
               "base %s, weight %" PRId64 ", in_flight %" PRId64 ", waiting %" PRId64 ", requests_per_minute %" PRId64
               ", tokens_per_minute %" PRId64 ", max_adapters %" PRId64 ", max_adapter_bytes %" PRId64,
               t->base ? "yes" : "no", t->weight, t->in_flight, t->waiting, t->requests_per_minute,
               t->tokens_per_minute, t->max_adapters, t->max_adapter_bytes);
}

/* The interface. */

store_result store_add_tenant(store *s, const char *who, const store_tenant *t, err *e)
{
    if (check_tenant(t, e))
        return STORE_BAD;
    change c = {.who = who, .action = "tenant add", .tenant = t->name, .settings = t};
    describe(&c.detail, t);
    return make(s, &c, e);
}

/* A change of an existing tenant. */
typedef struct {
    const char *who, *name;
    store_tenant_edit *edit;
    void *ctx;
} tenant_change;

typedef struct {
    store_tenant is; /* without its name */
    bool there;
} tenant_now;

static void read_tenant_row(void *ctx, const char *const *c)
{
    tenant_now *now = ctx;
    *now = (tenant_now){.is = tenant_of_row(c), .there = true};
    now->is.name = NULL;
}

static store_result write_tenant(sql *db, const store_tenant *t, err *e)
{
    sql_params p = {0};
    params_text(&p, t->name);
    const int64_t number[] = {
        t->base,         t->weight,           t->in_flight, t->waiting, t->requests_per_minute, t->tokens_per_minute,
        t->max_adapters, t->max_adapter_bytes};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        params_number(&p, number[i]);
    return run_one(db,
                   "UPDATE tenant SET base = $2, weight = $3, in_flight = $4, waiting = $5, requests_per_minute = $6, "
                   "tokens_per_minute = $7, max_adapters = $8, max_adapter_bytes = $9 WHERE name = $1",
                   &p, STORE_ABSENT, "there is no tenant \"%s\"", t->name, e);
}

static store_result change_tenant(sql *db, void *ctx, err *e)
{
    const tenant_change *c = ctx;
    tenant_now now = {0};
    int64_t number;
    sql_params p = {0};
    params_text(&p, c->name);
    if (begin_change(db, &number, e) ||
        sql_run(db, "SELECT " TENANT_COLUMNS " FROM tenant WHERE name = $1", p.at, p.n, read_tenant_row, &now, e) < 0)
        return STORE_FAILED;
    if (!now.there)
        return refuse(STORE_ABSENT, e, "there is no tenant \"%s\"", c->name);
    now.is.name = c->name;
    if (c->edit(c->ctx, &now.is, e) || check_tenant(&now.is, e))
        return STORE_BAD;
    buf detail = {0};
    describe(&detail, &now.is);
    store_result r = write_tenant(db, &now.is, e);
    r = r ? r : end_change(db, number, c->who, "tenant change", c->name, detail.data, e);
    buf_free(&detail);
    return r;
}

store_result store_change_tenant(store *s, const char *who, const char *name, store_tenant_edit *edit, void *ctx,
                                 err *e)
{
    return transaction(s, change_tenant, &(tenant_change){who, name, edit, ctx}, e);
}

store_result store_remove_tenant(store *s, const char *who, const char *name, err *e)
{
    change c = {.who = who, .action = "tenant remove", .tenant = name};
    return make(s, &c, e);
}

store_result store_add_key(store *s, const char *who, const store_key *k, char text[STORE_KEY_TEXT], err *e)
{
    digest secret; /* not a digest: 32 random bytes, for their hex form */
    CHECK(RAND_bytes(secret.byte, sizeof secret.byte) == 1);
    memcpy(text, "pk-", sizeof "pk-");
    digest_to_hex(&secret, text + 3);
    store_key made = *k;
    digest_of_parts(&made.of, &(digest_part){text, strlen(text)}, 1);
    if (check_name("key", k->name, e))
        return STORE_BAD;
    change c = {.who = who, .action = "key add", .tenant = k->tenant, .name = k->name, .key = &made};
    buf_printf(&c.detail, "%s, expires %" PRId64, k->name, k->expires);
    return make(s, &c, e);
}

store_result store_expire_key(store *s, const char *who, const char *tenant, const char *name, int64_t at, err *e)
{
    change c = {.who = who, .action = "key expire", .tenant = tenant, .name = name, .at = at};
    buf_printf(&c.detail, "%s, expires %" PRId64, name, at);
    return make(s, &c, e);
}

static store_result set_name(store *s, const char *who, const char *action, const char *tenant, const char *name,
                             err *e)
{
    change c = {.who = who, .action = action, .tenant = tenant, .name = name};
    buf_add_str(&c.detail, name);
    return make(s, &c, e);
}

store_result store_remove_key(store *s, const char *who, const char *tenant, const char *name, err *e)
{
    return set_name(s, who, "key remove", tenant, name, e);
}

store_result store_add_grant(store *s, const char *who, const store_grant *g, err *e)
{
    return check_pattern(g->adapter, e) ? STORE_BAD : set_name(s, who, "grant add", g->tenant, g->adapter, e);
}

store_result store_remove_grant(store *s, const char *who, const store_grant *g, err *e)
{
    return set_name(s, who, "grant remove", g->tenant, g->adapter, e);
}

bool store_grant_covers(const char *pattern, const char *adapter)
{
    size_t n = strlen(pattern);
    if (!n || pattern[n - 1] != '*')
        return strcmp(adapter, pattern) == 0;
    return strncmp(adapter, pattern, n - 1) == 0 && !strchr(adapter + n - 1, '/');
}

/* The audit log. */

typedef struct {
    void (*each)(void *ctx, const store_audit *a);
    void *ctx;
} audit_reader;

static void read_audit_row(void *ctx, const char *const *c)
{
    const audit_reader *r = ctx;
    const store_audit a = {.number = strtoll(c[0], NULL, 10),
                           .at = strtoll(c[1], NULL, 10),
                           .who = c[2],
                           .action = c[3],
                           .tenant = c[4],
                           .detail = c[5]};
    r->each(r->ctx, &a);
}

int store_read_audit(store *s, const char *tenant, int n, void (*each)(void *ctx, const store_audit *a), void *ctx,
                     err *e)
{
    audit_reader r = {each, ctx};
    sql_params p = {0};
    params_number(&p, n);
    if (tenant)
        params_text(&p, tenant);
    return read_rows(
        s,
        tenant
            ? "SELECT number, at, who, action, tenant, detail FROM audit WHERE tenant = $2 ORDER BY number DESC LIMIT "
              "CAST($1 AS BIGINT)"
            : "SELECT number, at, who, action, tenant, detail FROM audit ORDER BY number DESC LIMIT CAST($1 AS BIGINT)",
        &p, read_audit_row, &r, e);
}
