/* sql_postgres.c - PostgreSQL: the store of a cluster, over libpq
 *
 * Passwords come in any way libpq supports: in the URL, PGPASSWORD, PGPASSFILE, a service file. Connections and
 * statements time out after 10 s. */
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/sql.h"

#define MAX_SECONDS 10.0

typedef struct {
    sql base;
    PGconn *db;
} postgres;

/* Sets e to a message of libpq, whose lines and tabs become one line. */
static int fail(const char *message, err *e)
{
    char *text = xstrdup(message), *end = text + strlen(text);
    while (end > text && end[-1] == '\n')
        *--end = '\0';
    for (char *c = text; (c = strpbrk(c, "\n\t")); c++)
        *c = ' ';
    err_set(e, "store: PostgreSQL: %s", text);
    free(text);
    return -1;
}

static void pass_row(const PGresult *r, int row, sql_each *each, void *ctx)
{
    const char *column[SQL_MAX_COLUMNS];
    int n = PQnfields(r);
    CHECK(n <= SQL_MAX_COLUMNS);
    for (int i = 0; i < n; i++)
        column[i] = PQgetvalue(r, row, i);
    each(ctx, column);
}

/* Waits until PQgetResult() will not block. False: that took too long, or the connection is lost. */
static bool wait_for_result(PGconn *db, double until)
{
    while (PQisBusy(db)) {
        double left = until - clock_now();
        struct pollfd on = {.fd = PQsocket(db), .events = POLLIN};
        int n = left > 0 ? poll(&on, 1, (int)(left * 1000) + 1) : 0;
        if ((n < 0 && errno != EINTR) || (n == 0 && clock_now() >= until) || (n > 0 && !PQconsumeInput(db)))
            return false;
    }
    return true;
}

/* PQexecParams() with a timeout: that would wait for ever for a server that hangs or is stopped. Free the result with
 * PQclear(). NULL: no answer came in time, and the connection is of no use any more. */
static PGresult *ask(PGconn *db, const char *statement, const char *const *param, int n)
{
    double until = clock_now() + MAX_SECONDS;
    PGresult *last = NULL;
    if (!PQsendQueryParams(db, statement, n, NULL, param, NULL, NULL, 0))
        return NULL;
    for (PGresult *r;; last = r) {
        bool there = wait_for_result(db, until);
        r = there ? PQgetResult(db) : NULL;
        if (there && !r)
            return last;
        PQclear(last);
        if (!r)
            return NULL;
    }
}

static long run(sql *base, const char *statement, const char *const *param, int n, sql_each *each, void *ctx, err *e)
{
    postgres *p = (postgres *)base;
    PGresult *r = ask(p->db, statement, param, n);
    ExecStatusType status = PQresultStatus(r);
    long rows = -1;
    if (!r)
        return fail(PQerrorMessage(p->db)[0] ? PQerrorMessage(p->db) : "it does not answer", e);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail(PQresultErrorMessage(r)[0] ? PQresultErrorMessage(r) : PQerrorMessage(p->db), e);
    else
        rows = strtol(PQcmdTuples(r), NULL, 10);
    for (int i = 0; i < PQntuples(r) && each; i++)
        pass_row(r, i, each, ctx);
    PQclear(r);
    return rows;
}

static void close_it(sql *base)
{
    postgres *p = (postgres *)base;
    PQfinish(p->db);
    free(p);
}

static void hear_nothing(void *ctx, const char *notice)
{
    (void)ctx;
    (void)notice;
}

sql *sql_open_postgres(const char *url, err *e)
{
    static const sql_ops ops = {.run = run, .close = close_it};
    static const char *const key[] = {"connect_timeout", "tcp_user_timeout", "application_name", "dbname", NULL};
    const char *const value[] = {"10", "10000", "punica", url, NULL};
    postgres *p = XNEW(postgres);
    *p = (postgres){.base = {.ops = &ops,
                             .begin = "BEGIN",
                             .lock = "SELECT pg_advisory_xact_lock(7215301)",
                             .look = "SELECT 1 WHERE to_regclass($1) IS NOT NULL"},
                    .db = PQconnectdbParams(key, value, 1)};
    PQsetNoticeProcessor(p->db, hear_nothing, NULL);
    if (PQstatus(p->db) != CONNECTION_OK)
        fail(PQerrorMessage(p->db), e);
    else if (run(&p->base, "SET statement_timeout = 10000", NULL, 0, NULL, NULL, e) >= 0)
        return &p->base;
    close_it(&p->base);
    return NULL;
}
