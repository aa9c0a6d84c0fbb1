/* transaction.h - for the files of the store: statements in transactions, on a connection that may have to be made anew
 */
#ifndef PUNICA_STORE_TRANSACTION_H
#define PUNICA_STORE_TRANSACTION_H

#include "store/sql.h"
#include "store/store.h"

struct store {
    char *url;
    sql *db;       /* NULL: lost, or not opened yet */
    bool was_open; /* ever: a file that is gone now is not made anew, without any tenants */
};

/* Parameters of one statement: text is borrowed, numbers are kept here. Zero-initialise. */
typedef struct {
    const char *at[SQL_MAX_PARAMS];
    char number[SQL_MAX_PARAMS][24];
    int n;
} params;
void params_text(params *p, const char *text);
void params_number(params *p, int64_t x);

/* What is done in one transaction. */
typedef store_result work(sql *db, void *ctx, err *e);

/* Do it and commit. After anything but STORE_OK nothing is changed, as far as is known. */
store_result transaction(store *s, work *w, void *ctx, err *e);

/* A single statement that reads. */
int read_rows(store *s, const char *statement, const params *p, sql_each *each, void *ctx, err *e);

/* In a transaction. p may be NULL. */
long run(sql *db, const char *statement, const params *p, err *e);

/* A row of a tenant; the name is borrowed from it. */
#define TENANT_COLUMNS                                                                                        \
    "name, base, weight, in_flight, waiting, requests_per_minute, tokens_per_minute, created, max_adapters, " \
    "max_adapter_bytes"
store_tenant tenant_of_row(const char *const *column);

/* A change begins with its number, and ends with its line in the audit log. */
int begin_change(sql *db, int64_t *number, err *e);
store_result end_change(sql *db, int64_t number, const char *who, const char *action, const char *tenant,
                        const char *detail, err *e);

#endif
