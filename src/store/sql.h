/* sql.h - a connection to a database: the store's interface to SQLite and PostgreSQL
 *
 * Statements with parameters $1, $2, ... and rows, all as text, such that both databases accept them. Two
 * implementations, sql_sqlite.c and sql_postgres.c; all differences between the databases are in these files. Calls
 * block. One thread at a time. */
#ifndef PUNICA_STORE_SQL_H
#define PUNICA_STORE_SQL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct sql sql;

enum { SQL_MAX_PARAMS = 12, SQL_MAX_COLUMNS = 16 };

typedef void sql_each(void *ctx, const char *const *column); /* one row, borrowed during the call; NULL becomes "" */

typedef struct {
    long (*run)(sql *, const char *statement, const char *const *param, int n, sql_each *each, void *ctx, err *e);
    void (*close)(sql *);
} sql_ops;

struct sql {
    const sql_ops *ops;
    const char *begin; /* the statement that begins a transaction which will write */
    const char *lock;  /* the statement that locks out other writers in a transaction; NULL: begin has done that */
    const char *look;  /* the statement that gives a row if there is a table of this name, $1 */
};

/* Open a connection; close it with sql_close(). NULL with e set on failure. make: a file that is not there is made. */
sql *sql_open_sqlite(const char *file, bool make, err *e);
sql *sql_open_postgres(const char *url, err *e);

/* Runs one statement and calls each, if not NULL, for every row. Returns how many rows it gave or changed; -1 with e
 * set: the transaction, if there is one, has failed then, and the connection may be lost. */
static inline long sql_run(sql *db, const char *statement, const char *const *param, int n, sql_each *each, void *ctx,
                           err *e)
{
    return db->ops->run(db, statement, param, n, each, ctx, e);
}

static inline void sql_close(sql *db)
{
    if (db)
        db->ops->close(db);
}

#endif
