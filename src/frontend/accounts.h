/* accounts.h - a frontend and its store: tenants are read from it, usage is written to it
 *
 * The store's calls block, so one thread makes them, four times a second: it writes what has been used since the last
 * time, all in one transaction, and reads what has changed. Nothing that serves requests waits for it: while the store
 * does not answer, known tenants keep the limits they had, and what they use is kept here (ledger.h) until it can be
 * written. A batch whose commit was not confirmed is written again, and applied once (store.h).
 *
 * One loop, one thread, apart from the store's. */
#ifndef PUNICA_FRONTEND_ACCOUNTS_H
#define PUNICA_FRONTEND_ACCOUNTS_H

#include "frontend/ledger.h"
#include "frontend/tenants.h"
#include "net/loop.h"

typedef struct accounts accounts;

/* Called with the store's directory: once by accounts_new(), then whenever it has changed. changed may be NULL. */
typedef struct {
    void (*changed)(void *ctx, const store_directory *d);
    void *ctx;
} accounts_news;

/* Opens the store and reads its directory; blocks meanwhile. NULL with e set on failure. base: what clients call the
 * base model. */
accounts *accounts_new(net_loop *on, const char *url, const char *base, accounts_news news, err *e);

/* Writes the usage that is left; blocks meanwhile. What cannot be written is logged. No tenant may be kept any more. */
void accounts_free(accounts *a);

tenants *accounts_tenants(accounts *a); /* borrowed */

/* Who is billed for a call, and for which model. */
typedef struct {
    tenant *who;
    const char *model;     /* adapter or base; borrowed */
    const digest *version; /* NULL: the base */
    ledger_place place;
} account_entry;

/* Counts usage, for the bill and the tenant's limits. cached: how many of the prompt's tokens were in the prefix cache.
 * requests: how many choices have got their first token with this. */
void accounts_count(accounts *a, account_entry *of, int64_t requests, int64_t prompt, int64_t cached, int64_t output);

/* Work on the store that an operator asked for. run is called on the store's thread; then done on the loop, which owns
 * the task again, and has read what run changed. drop is called in place of done by accounts_free(), whether run was
 * called or not. */
typedef struct account_task account_task;
struct account_task {
    void (*run)(account_task *t, store *s);
    void (*done)(account_task *t);
    void (*drop)(account_task *t);
    account_task *next;
};
void accounts_ask(accounts *a, account_task *t);

void accounts_write_metrics(accounts *a, buf *out); /* of the store; they name no tenant */

#endif
