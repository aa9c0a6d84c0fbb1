/* tenants.h - who asks, what it may use, and how much: tenants as this frontend knows them
 *
 * In memory, and nothing here blocks: what was read from the store comes by tenants_apply() and tenants_apply_load(),
 * what is to be written to it goes by tenants_report_loads() (accounts.h does both). One thread.
 *
 * Limits hold for the cluster, as far as frontends know of each other, which they do every quarter of a second: each
 * counts at once what it takes in itself, and what the others took in when the store tells of it. So a tenant gets all
 * that its limits allow, whichever frontend it asks, and beyond them at most what the others let in within that time.
 * While the store is down each frontend holds the limits by itself. */
#ifndef PUNICA_FRONTEND_TENANTS_H
#define PUNICA_FRONTEND_TENANTS_H

#include "base/buf.h"
#include "frontend/api_error.h"
#include "frontend/model_view.h"
#include "store/store.h"

typedef struct tenants tenants;
typedef struct tenant tenant;

tenants *tenants_new(const char *base); /* what clients call the base model */
void tenants_free(tenants *all);        /* no tenant may be kept any more */

/* Replaces all tenants and keys by those of the store's directory. A tenant that is not in it is gone, even with
 * calls. */
void tenants_apply(tenants *all, const store_directory *d);
int tenants_count(const tenants *all);

/* Returns whose key it is; NULL: nobody's, or it has expired. wall: seconds since the epoch. Borrowed: until the next
 * tenants_apply(), unless kept. */
tenant *tenants_find(tenants *all, const char *key, double wall);
tenant *tenant_keep(tenant *t); /* returns t, which has one call more; NULL stays NULL */
void tenant_release(tenant *t); /* one of its calls is over */

const char *tenant_name(const tenant *t);
int64_t tenant_weight(const tenant *t);
model_view *tenant_view(const tenant *t); /* borrowed, unless kept */

/* Checks whether a call whose tenant was kept for it may go on, where there can be `most` at once (0: any number): 0,
 * or -1 with e set, a 429. The last quarter of them is for tenants that have no more than an equal part, one more
 * tenant counted in, so that nobody shuts others out. */
int tenant_check_calls(tenant *t, int most, api_error *e);

/* Checks whether a call of n requests (choices) and so many tokens of prompts may begin: 0, or -1 with e set: a 429,
 * with the seconds after which it may, or a 400 where it never may. Nothing is counted. now: the loop's clock. */
int tenant_check(tenant *t, double now, int n, int64_t prompt, api_error *e);

/* Counts a call without tokens, such as a change of an adapter, among the requests per minute: 0, or -1 with e set, as
 * tenant_check() does, and nothing is counted. */
int tenant_count_call(tenant *t, double now, api_error *e);

/* Counts a call that begins, and what it uses as it goes on: for the metrics, and output for the limits too. */
void tenant_begin(tenant *t, double now, int n, int64_t prompt);
void tenant_use(tenant *t, double now, int64_t prompt, int64_t output);
void tenant_first_token(tenant *t);      /* of one of the n */
void tenant_end(tenant *t, bool waited); /* of one of the n; waited: without a token */

/* Calls add for each of the headers x-ratelimit-... */
void tenant_headers(tenant *t, double now, void (*add)(void *ctx, const char *name, const char *value), void *ctx);

/* Returns what is to be written to the store: the load of each tenant with limits, if it has changed since last time;
 * sorted, names borrowed: until the next tenants_apply(). Owned by the caller: free(). */
store_load *tenants_report_loads(tenants *all, size_t *n);
bool tenants_have_limits(const tenants *all); /* any of them has */
bool tenants_are_busy(const tenants *all);    /* some with limits have requests in flight */

/* Applies what the store has of one tenant: all that it ever spent at all frontends. own_...: how much of that this
 * frontend has reported since last time. */
void tenants_apply_load(tenants *all, double now, const store_load *l, int64_t own_requests, int64_t own_tokens);

/* Appends metrics by tenant: those that have used most by their names, all others as "other". */
void tenants_write_metrics(tenants *all, buf *out);

#endif
