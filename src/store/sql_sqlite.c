/* sql_sqlite.c - SQLite: the store in one file
 *
 * In WAL mode several processes of one host can share it, and readers do not wait. Commits are durable. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/sql.h"

enum { BUSY_MS = 5000 };

typedef struct {
    sql base;
    sqlite3 *db;
    char *file;
} sqlite;

static int fail(const sqlite *s, err *e)
{
    return err_set(e, "store %s: %s", s->file, sqlite3_errmsg(s->db));
}

static void bind_all(sqlite3_stmt *st, const char *const *param, int n)
{
    char name[16];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "$%d", i + 1);
        int at = sqlite3_bind_parameter_index(st, name);
        CHECK(at > 0 && sqlite3_bind_text(st, at, param[i], -1, SQLITE_TRANSIENT) == SQLITE_OK);
    }
}

static void pass_row(sqlite3_stmt *st, sql_each *each, void *ctx)
{
    const char *column[SQL_MAX_COLUMNS];
    int n = sqlite3_column_count(st);
    CHECK(n <= SQL_MAX_COLUMNS);
    for (int i = 0; i < n; i++) {
        const char *text = (const char *)sqlite3_column_text(st, i);
        column[i] = text ? text : "";
    }
    each(ctx, column);
}

/* Returns whether the file is not under its name any more: in WAL mode SQLite would go on with one that nobody else
 * sees. */
static bool has_moved(const sqlite *s)
{
    int moved = 0;
    return sqlite3_file_control(s->db, NULL, SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved;
}

static long run(sql *base, const char *statement, const char *const *param, int n, sql_each *each, void *ctx, err *e)
{
    sqlite *s = (sqlite *)base;
    sqlite3_stmt *st;
    if (has_moved(s))
        return err_set(e, "store %s: the file was moved, replaced or deleted while it was in use", s->file);
    if (sqlite3_prepare_v2(s->db, statement, -1, &st, NULL) != SQLITE_OK)
        return fail(s, e);
    bind_all(st, param, n);
    long rows = 0;
    int before = sqlite3_total_changes(s->db), rc;
    for (; (rc = sqlite3_step(st)) == SQLITE_ROW; rows++)
        if (each)
            pass_row(st, each, ctx);
    if (rc != SQLITE_DONE)
        rows = fail(s, e);
    sqlite3_finalize(st);
    return rows ? rows : sqlite3_total_changes(s->db) - before;
}

static void close_it(sql *base)
{
    sqlite *s = (sqlite *)base;
    sqlite3_close(s->db);
    free(s->file);
    free(s);
}

sql *sql_open_sqlite(const char *file, bool make, err *e)
{
    static const sql_ops ops = {.run = run, .close = close_it};
    static const char *const setup[] = {"PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON",
                                        "PRAGMA journal_mode = WAL" /* the file keeps it */};
    const size_t n_setup = sizeof setup / sizeof *setup - (make ? 0 : 1);
    if (!file[0]) { /* SQLite would make a private temporary database */
        err_set(e, "a store needs a name: FILE, or postgres://...");
        return NULL;
    }
    if (!make && !file_exists(file)) {
        err_set(e, "there is no store %s", file);
        return NULL;
    }
    int new_one =
        !make ? -1 : open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* sources in it may hold passwords */
    if (new_one >= 0)
        close(new_one);
    sqlite *s = XNEW(sqlite);
    *s = (sqlite){.base = {.ops = &ops,
                           .begin = "BEGIN IMMEDIATE",
                           .look = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1"},
                  .file = xstrdup(file)};
    int rc = sqlite3_open_v2(file, &s->db,
                             SQLITE_OPEN_READWRITE | (make ? SQLITE_OPEN_CREATE : 0) | SQLITE_OPEN_NOMUTEX, NULL);
    bool good = rc == SQLITE_OK && sqlite3_busy_timeout(s->db, BUSY_MS) == SQLITE_OK;
    if (!good)
        fail(s, e);
    for (size_t i = 0; i < n_setup && good; i++)
        good = run(&s->base, setup[i], NULL, 0, NULL, NULL, e) >= 0;
    if (good)
        return &s->base;
    close_it(&s->base);
    return NULL;
}
