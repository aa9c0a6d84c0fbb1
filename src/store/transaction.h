/* transaction.h - transactions, on a connection that is reopened when it was lost; internal to the store's files */
#ifndef PUNICA_STORE_TRANSACTION_H
#define PUNICA_STORE_TRANSACTION_H

#include "store/sql.h"
#include "store/store.h"

struct store {
    char *url;
    sql *db;       /* NULL: lost, or not opened yet */
    bool may_make; /* if there is no store */
    bool was_open; /* ever: a file that is gone now is not made anew, without any tenants */
};

/* Parameters of one statement: text is borrowed, numbers are kept here. Zero-initialise; do not copy with numbers. */
typedef struct {
    const char *at[SQL_MAX_PARAMS];
    char number[SQL_MAX_PARAMS][24];
    int n;
} sql_params;
void params_text(sql_params *p, const char *text);
void params_number(sql_params *p, int64_t x);

/* The statements of one transaction; anything but STORE_OK rolls it back. */
typedef store_result transaction_work(sql *db, void *ctx, err *e);

/* Runs w in a transaction and commits. Returns w's result, or STORE_FAILED. After anything but STORE_OK nothing is
 * changed, except that after a lost connection the commit may have happened. */
store_result transaction(store *s, transaction_work *w, void *ctx, err *e);

/* Runs a single statement that reads. 0, or -1 with e set. */
int read_rows(store *s, const char *statement, const sql_params *p, sql_each *each, void *ctx, err *e);

/* Runs a statement within a transaction; result as sql_run(). p may be NULL. */
long run_statement(sql *db, const char *statement, const sql_params *p, err *e);

/* For sql_run(): reads a row's first column into *ctx, an int64_t. */
void read_number_row(void *ctx, const char *const *column);

/* Converts a row with these columns to a tenant; its name is borrowed from the row. */
#define TENANT_COLUMNS                                                                                        \
    "name, base, weight, in_flight, waiting, requests_per_minute, tokens_per_minute, created, max_adapters, " \
    "max_adapter_bytes"
store_tenant tenant_of_row(const char *const *column);

/* Begin a change by taking its number, and end it by writing its line of the audit log. */
int begin_change(sql *db, int64_t *number, err *e);
store_result end_change(sql *db, int64_t number, const char *who, const char *action, const char *tenant,
                        const char *detail, err *e);

#endif
