/* schema.c - see schema.h
 *
 * A migration is never changed once it has been released; changes are further migrations. Both databases accept every
 * statement unchanged: numbers are BIGINT, digests are text in hex, times are seconds since the epoch. */
#include "store/schema.h"

#include <stdio.h>
#include <stdlib.h>

/* A limit of 0 is no limit. expires 0: never. usage: cached is a part of prompt, hour counts from the epoch. spent: the
 * total of all frontends, which only grows. live: how many requests each frontend has now. */
static const char *const first[] = {
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
    "INSERT INTO counter (name, value) VALUES ('change', 0)",
    "CREATE TABLE tenant (name TEXT PRIMARY KEY, base BIGINT NOT NULL, weight BIGINT NOT NULL, "
    "in_flight BIGINT NOT NULL, waiting BIGINT NOT NULL, requests_per_minute BIGINT NOT NULL, tokens_per_minute BIGINT "
    "NOT NULL, "
    "created BIGINT NOT NULL)",
    "CREATE TABLE api_key (tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE, name TEXT NOT NULL, "
    "digest TEXT NOT NULL UNIQUE, created BIGINT NOT NULL, expires BIGINT NOT NULL, PRIMARY KEY (tenant, name))",
    "CREATE TABLE adapter_grant (tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE, adapter TEXT NOT "
    "NULL, "
    "PRIMARY KEY (tenant, adapter))",
    "CREATE TABLE frontend (id TEXT PRIMARY KEY, flushed BIGINT NOT NULL, seen BIGINT NOT NULL)",
    "CREATE TABLE usage (tenant TEXT NOT NULL, adapter TEXT NOT NULL, digest TEXT NOT NULL, hour BIGINT NOT NULL, "
    "requests BIGINT NOT NULL, prompt BIGINT NOT NULL, cached BIGINT NOT NULL, output BIGINT NOT NULL, "
    "PRIMARY KEY (tenant, adapter, digest, hour))",
    "CREATE TABLE spent (tenant TEXT PRIMARY KEY, requests BIGINT NOT NULL, tokens BIGINT NOT NULL)",
    "CREATE TABLE live (frontend TEXT NOT NULL REFERENCES frontend (id) ON DELETE CASCADE, tenant TEXT NOT NULL, "
    "in_flight BIGINT NOT NULL, waiting BIGINT NOT NULL, PRIMARY KEY (frontend, tenant))",
    "CREATE TABLE audit (number BIGINT PRIMARY KEY, at BIGINT NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL, "
    "tenant TEXT NOT NULL, detail TEXT NOT NULL)",
    NULL};

/* The registry of adapters. owner "": the operators'. record: a document of the name's versions, written by
 * registry/adapter_record.h; id, source and trusted: of the version that is served; bytes: of all versions that are
 * kept. trusted: brought by an operator, and fetched with the cluster's credentials. */
static const char *const adapters[] = {"ALTER TABLE tenant ADD COLUMN max_adapters BIGINT NOT NULL DEFAULT 0",
                                       "ALTER TABLE tenant ADD COLUMN max_adapter_bytes BIGINT NOT NULL DEFAULT 0",
                                       "CREATE TABLE adapter (owner TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT "
                                       "NULL, source TEXT NOT NULL, trusted BIGINT NOT NULL, "
                                       "bytes BIGINT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (owner, name))",
                                       NULL};

static const char *const *const migrations[] = {first, adapters};

enum { N_MIGRATIONS = sizeof migrations / sizeof *migrations };

static void read_version_row(void *ctx, const char *const *column)
{
    *(long *)ctx = atol(column[0]);
}

static int run_all(sql *db, const char *const *statement, err *e)
{
    for (; *statement; statement++)
        if (sql_run(db, *statement, NULL, 0, NULL, NULL, e) < 0)
            return -1;
    return 0;
}

static int bring_up(sql *db, err *e)
{
    long version = 0;
    char number[24];
    const char *param[] = {number};
    if (sql_run(db, "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)", NULL, 0, NULL, NULL, e) <
            0 ||
        sql_run(db, "SELECT coalesce(max(version), 0) FROM schema_version", NULL, 0, read_version_row, &version, e) < 0)
        return -1;
    if (version > N_MIGRATIONS)
        return err_set(e, "the store's tables are of version %ld; this release knows up to %d: run a later one",
                       version, N_MIGRATIONS);
    for (; version < N_MIGRATIONS; version++) {
        snprintf(number, sizeof number, "%ld", version + 1);
        if (run_all(db, migrations[version], e) ||
            sql_run(db, "INSERT INTO schema_version (version) VALUES ($1)", param, 1, NULL, NULL, e) < 0)
            return -1;
    }
    return 0;
}

/* Reads the version of the tables; 0: there are none. */
static int read_version(sql *db, long *version, err *e)
{
    const char *const table = "schema_version";
    *version = 0;
    long n = sql_run(db, db->look, &table, 1, NULL, NULL, e);
    if (n == 1)
        n = sql_run(db, "SELECT coalesce(max(version), 0) FROM schema_version", NULL, 0, read_version_row, version, e);
    return n < 0 ? -1 : 0;
}

int schema_migrate(sql *db, bool make, err *e)
{
    err unused;
    long version;
    if (read_version(db, &version, e))
        return -1;
    if (version == N_MIGRATIONS)
        return 0;
    if (version == 0 && !make)
        return err_set(e, "there is no store in this database: it has none of its tables");
    if (sql_run(db, db->begin, NULL, 0, NULL, NULL, e) < 0)
        return -1;
    if ((!db->lock || sql_run(db, db->lock, NULL, 0, NULL, NULL, e) >= 0) && bring_up(db, e) == 0 &&
        sql_run(db, "COMMIT", NULL, 0, NULL, NULL, e) >= 0)
        return 0;
    sql_run(db, "ROLLBACK", NULL, 0, NULL, NULL, &unused);
    return -1;
}
