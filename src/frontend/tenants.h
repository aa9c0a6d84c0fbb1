/* tenants.h - who asks, what it may use, and how much: tenants as this frontend knows them
 *
 * In memory, and nothing here waits: what the store says comes by tenants_apply() and tenants_hear(), what it is to be
 * told goes by tenants_tell() (accounts.h does both). One thread.
 *
 * Limits hold for the cluster as well as frontends know of each other, which is once in a quarter of a second: each
 * counts what it takes in itself at once, and what others took in when the store tells of it. So, whichever frontend a
 * tenant asks, it gets all that its limits allow, and beyond them at most what the others let in within that time.
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
void tenants_free(tenants *all);        /* nobody may be kept */

/* Replaces all tenants and keys by those of the store's directory: who is not in it is gone, even one that has calls.
 */
void tenants_apply(tenants *all, const store_directory *d);
int tenants_count(const tenants *all);

/* Whose key it is, or NULL: nobody's, or one that has expired. wall: seconds since the epoch. Borrowed: until the next
 * tenants_apply(), unless kept. */
tenant *tenants_find(tenants *all, const char *key, double wall);
tenant *tenant_keep(tenant *t); /* t, which has one call more; NULL stays NULL */
void tenant_release(tenant *t); /* that call is over */

const char *tenant_name(const tenant *t);
int64_t tenant_weight(const tenant *t);
model_view *tenant_view(const tenant *t); /* borrowed, unless kept */

/* Whether a call that is kept may go on, where there can be `most` at once (0: any number): 0, or -1 with e, 429. The
 * last quarter of them is for tenants that have less than an equal part, one more tenant counted in, so that nobody
 * shuts others out. */
int tenant_check_calls(tenant *t, int most, api_error *e);

/* Whether a call of n requests (choices) and so many tokens of prompts may begin: 0, or -1 with e: 429, with the
 * seconds after which it may, or 400 where it never may. Nothing is counted. now: the loop's clock. */
int tenant_check(tenant *t, double now, int n, int64_t prompt, api_error *e);

/* Counts a call that begins, and what it uses as it goes on. */
void tenant_begin(tenant *t, double now, int n, int64_t prompt);
void tenant_use(tenant *t, double now, int64_t prompt,
                int64_t output);         /* for the metrics; output: for the limits too */
void tenant_first_token(tenant *t);      /* of one of the n */
void tenant_end(tenant *t, bool waited); /* of one of the n; waited: without a token */

/* The headers x-ratelimit-..., each told by add. */
void tenant_headers(tenant *t, double now, void (*add)(void *ctx, const char *name, const char *value), void *ctx);

/* What the store is to be told of those with limits, if it is not the same as last time; sorted, names borrowed: until
 * the next tenants_apply(). Owned by the caller: free(). */
store_load *tenants_tell(tenants *all, size_t *n);
bool tenants_have_limits(const tenants *all); /* any of them */
bool tenants_are_busy(const tenants *all);    /* some with limits have requests in hand */

/* What the store said: of one tenant, all that all have spent ever. own: of that, what was told by this frontend since
 * last time. */
void tenants_hear(tenants *all, double now, const store_load *l, int64_t own_requests, int64_t own_tokens);

/* Prometheus's lines: of those that have used most; all others are "other". */
void tenants_write_metrics(tenants *all, buf *out);

#endif
