/* sql.h - one connection to a database, as far as the store needs it
 *
 * Statements with parameters $1, $2, ... and rows, all as text: what both databases take as it is. Two implementations,
 * sql_sqlite.c and sql_postgres.c; all that differs between the two is in these files. Calls block. One thread at a
 * time. */
#ifndef PUNICA_STORE_SQL_H
#define PUNICA_STORE_SQL_H

#include <stdint.h>

#include "base/err.h"

typedef struct sql sql;

enum { SQL_MAX_PARAMS = 12 };

typedef void sql_each(void *ctx, const char *const *column); /* [columns] borrowed: during the call; NULL is "" */

typedef struct {
    long (*run)(sql *, const char *statement, const char *const *param, int n, sql_each *each, void *ctx, err *e);
    void (*close)(sql *);
} sql_ops;

struct sql {
    const sql_ops *ops;
    const char *begin; /* the statement that begins a transaction which is going to write */
    const char *lock;  /* in a transaction: nobody else is at the tables; NULL: begin has done that */
};

/* NULL with e set. */
sql *sql_open_sqlite(const char *file, err *e);
sql *sql_open_postgres(const char *url, err *e);

/* One statement; each: told of every row, may be NULL. How many rows it gave or changed, or -1 with e set: the
 * transaction, if there is one, is void then, and the connection may be lost. */
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
