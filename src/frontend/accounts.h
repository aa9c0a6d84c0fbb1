/* accounts.h - a frontend and its store: tenants come from there, usage goes there
 *
 * The store's calls block, so one thread does them, four times a second: it writes what has been used since the last
 * time, all in one transaction, and reads what has changed. Nothing that serves requests waits for it: while a store
 * does not answer, those who are known go on with the limits they had, and what they use is kept here (ledger.h) until
 * it can be written. A batch whose commit was not confirmed is written again, and applied once (store.h).
 *
 * One loop, one thread, but for that of the store. */
#ifndef PUNICA_FRONTEND_ACCOUNTS_H
#define PUNICA_FRONTEND_ACCOUNTS_H

#include "frontend/ledger.h"
#include "frontend/tenants.h"
#include "net/loop.h"

typedef struct accounts accounts;

/* Who is told what the store has, at once and whenever it has changed; may be NULL. */
typedef struct {
    void (*tell)(void *ctx, const store_directory *d);
    void *ctx;
} accounts_news;

/* Waits for the store once. NULL with e set when it cannot be opened. base: what clients call the base model. */
accounts *accounts_new(net_loop *on, const char *url, const char *base, accounts_news news, err *e);

/* Waits for the store: what was used is written. What cannot be is told in the log. No tenant may be kept. */
void accounts_free(accounts *a);

tenants *accounts_tenants(accounts *a); /* borrowed */

/* Whose bill a call is on, for what. */
typedef struct {
    tenant *who;
    const char *model;     /* adapter or base; borrowed */
    const digest *version; /* NULL: the base */
    ledger_place place;
} account_entry;

/* Tokens that were computed for it, or were in the cache (cached: of the prompt). requests: choices of which these are
 * the first. */
void accounts_count(accounts *a, account_entry *of, int64_t requests, int64_t prompt, int64_t cached, int64_t output);

/* What an operator asks of the store: run is called on the store's thread, then done on the loop, which owns it again,
 * and knows by then what run has changed. drop: instead of both, at the end. */
typedef struct account_task account_task;
struct account_task {
    void (*run)(account_task *t, store *s);
    void (*done)(account_task *t);
    void (*drop)(account_task *t);
    account_task *next;
};
void accounts_ask(accounts *a, account_task *t);

void accounts_write_metrics(accounts *a, buf *out); /* of the store; no tenants in it */

#endif
