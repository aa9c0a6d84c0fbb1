/* store.h - what outlives all processes: tenants, their keys and grants, the registry of adapters, usage, and who
 * changed what
 *
 * In SQLite (a file) or PostgreSQL; sql.h is the border between the two and everything else. A store's calls block, so
 * nobody calls them on an event loop; one thread at a time. A connection that is lost is made anew by the next call.
 *
 * Calls that change something return STORE_OK; STORE_BAD, STORE_ABSENT or STORE_TAKEN (nothing is changed, since what
 * was asked cannot be, or names what is not there, or what is there already: e says what), STORE_TOO_MANY or
 * STORE_TOO_LARGE (the same for a tenant's limits on adapters); STORE_FAILED (the database did not do it, or nobody
 * knows whether it did); or STORE_UNCHANGED (an edit of an adapter only looked). */
#ifndef PUNICA_STORE_STORE_H
#define PUNICA_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"

typedef struct store store;

typedef enum {
    STORE_OK,
    STORE_BAD,
    STORE_ABSENT,
    STORE_TAKEN,
    STORE_TOO_MANY,
    STORE_TOO_LARGE,
    STORE_FAILED,
    STORE_UNCHANGED
} store_result;

/* "postgres://..." or "postgresql://..." is PostgreSQL, "sqlite:FILE" or "FILE" SQLite, which is made if it is not
 * there. Tables are made or brought up to date. NULL with e set. */
store *store_open(const char *url, err *e);
void store_close(store *s); /* s may be NULL */

/* What tenants are. */

typedef struct {
    const char *name;           /* letters, digits, - _ and . */
    bool base;                  /* it may use the base model */
    int64_t weight;             /* of its share when the cluster is full: 1 to 1000 */
    int64_t in_flight, waiting; /* limits; 0: none */
    int64_t requests_per_minute, tokens_per_minute;
    int64_t max_adapters;      /* it may bring itself; 0: none */
    int64_t max_adapter_bytes; /* of all versions of these that are kept; 0: no limit */
    int64_t created;           /* seconds since the epoch */
} store_tenant;

/* A key itself is shown once, when it is made, and never stored: keys are 256 random bits, so nobody finds one by
 * trying, and SHA-256 without salt or repetition keeps them as well as anything slower would. */
typedef struct {
    const char *tenant, *name; /* the name is one of the tenant's keys */
    digest of;                 /* SHA-256 of the key as clients show it */
    int64_t created, expires;  /* seconds since the epoch; expires 0: never */
} store_key;

/* An adapter's name, or the beginning of names and a "*". */
typedef struct { const char *tenant, *adapter; } store_grant;

/* A name of the registry, and what is served by it. */
typedef struct {
    const char *owner, *name; /* owner "": the operators' */
    const char *id;           /* its folder in disk caches; the digest is its beginning */
    const char *source;       /* to fetch it from, secrets included */
    bool trusted;             /* with the cluster's own credentials, and from files */
    int64_t bytes;            /* of all its versions that are kept */
} store_adapter;

/* All of these as of one moment, sorted by tenant and name. Owned by the caller: store_directory_free(). */
typedef struct {
    int64_t change;         /* which moment: counts up with every change */
    store_tenant *tenant;   /* [n_tenants] */
    store_key *key;         /* [n_keys] */
    store_grant *grant;     /* [n_grants] */
    store_adapter *adapter; /* [n_adapters] */
    size_t n_tenants, n_keys, n_grants, n_adapters;
    arena text; /* what strings point into */
} store_directory;

int store_read_change(store *s, int64_t *change, err *e);
store_directory *store_read_directory(store *s, err *e); /* NULL with e set */
void store_directory_free(store_directory *d);

/* Changes, each with a line in the audit log. who: did it, for that line. */

store_result store_add_tenant(store *s, const char *who, const store_tenant *t, err *e);

/* Changes what a tenant is now, as one step: nothing that another changes at the same time is lost. edit gets it as it
 * is and may change all but its name: 0, or -1 with e, and nothing is changed. */
typedef int store_tenant_edit(void *ctx, store_tenant *t, err *e);
store_result store_change_tenant(store *s, const char *who, const char *name, store_tenant_edit *edit, void *ctx,
                                 err *e);
store_result store_remove_tenant(store *s, const char *who, const char *name, err *e); /* its usage stays */

/* A new key "pk-..." of k's tenant and name, into text. */
enum { STORE_KEY_TEXT = 3 + 2 * 32 + 1 };
store_result store_add_key(store *s, const char *who, const store_key *k, char text[STORE_KEY_TEXT], err *e);
store_result store_expire_key(store *s, const char *who, const char *tenant, const char *name, int64_t at,
                              err *e); /* 0: never */
store_result store_remove_key(store *s, const char *who, const char *tenant, const char *name, err *e);

store_result store_add_grant(store *s, const char *who, const store_grant *g, err *e);
store_result store_remove_grant(store *s, const char *who, const store_grant *g, err *e);

/* Whether a grant's name or pattern covers the adapter. A star stands for no slash: what tenants own is granted by whom
 * it belongs to. */
bool store_grant_covers(const char *pattern, const char *adapter);

/* The registry. A name's versions are a document that the store keeps without reading it. */

/* What there is before a change: strings are borrowed during the call. */
typedef struct {
    const char *record; /* NULL: there is no such name */
    bool may_add;       /* its owner's limit has room for one more name, and for so many bytes of this one: */
    int64_t room;
} store_adapter_now;

/* What there is to be. Owned strings, freed by the store; record NULL: nothing. detail: for the audit log. */
typedef struct {
    char *record, *id, *source, *detail;
    bool trusted;
    int64_t bytes;
} store_adapter_next;

/* Makes the next of what there is now; called within the transaction. STORE_OK; else the change returns what it
 * returns, and nothing is changed: STORE_UNCHANGED if it only looked, or why it cannot be, with e set. */
typedef store_result store_adapter_edit(void *ctx, const store_adapter_now *now, store_adapter_next *next, err *e);

/* owner "": the operators'; else a tenant that is there. */
store_result store_change_adapter(store *s, const char *who, const char *action, const char *owner, const char *name,
                                  store_adapter_edit *edit, void *ctx, err *e);

/* Records of one name (name not NULL) or of all names of an owner (NULL: of all owners), sorted. Strings: borrowed,
 * during the call. */
int store_read_records(store *s, const char *owner, const char *name,
                       void (*each)(void *ctx, const store_adapter *a, const char *record), void *ctx, err *e);

typedef struct {
    int64_t number, at;
    const char *who, *action, *tenant, *detail;
} store_audit;

/* The last n lines, the newest first; tenant NULL: of all. Strings: borrowed, during the call. */
int store_read_audit(store *s, const char *tenant, int n, void (*each)(void *ctx, const store_audit *a), void *ctx,
                     err *e);

/* Usage. */

typedef struct {
    const char *tenant, *adapter;             /* adapter: or the base */
    const char *digest;                       /* of its files, hex; "": the base */
    int64_t hour;                             /* since the epoch */
    int64_t requests, prompt, cached, output; /* cached: a part of prompt */
} store_usage;

/* What a tenant has spent since the last flush, for limits per minute, and what it has in hand. */
typedef struct {
    const char *tenant;
    int64_t requests, tokens, in_flight, waiting;
} store_load;

/* What one frontend has to tell. number counts up from 1; the batch of a number is applied once, however often it is
 * sent: who does not know whether it was sends it again, unchanged. */
typedef struct {
    const char *frontend; /* an id that no other process has or had */
    int64_t number;
    int64_t now;              /* seconds since the epoch */
    const store_usage *usage; /* [n_usage] sorted by tenant, adapter, digest and hour, each once */
    size_t n_usage;
    const store_load *load; /* [n_load] sorted by tenant, each once */
    size_t n_load;
} store_batch;

int store_flush(store *s, const store_batch *b, err *e);

/* What all frontends together have spent ever, and what those but `frontend` that were heard of lately have in hand. */
int store_read_load(store *s, const char *frontend, int64_t now, void (*each)(void *ctx, const store_load *l),
                    void *ctx, err *e);

/* Which usage; tenant NULL: of all. Hours from `from` on, before `to`. */
typedef struct {
    const char *tenant;
    int64_t from, to;
} store_period;
int store_read_usage(store *s, const store_period *p, void (*each)(void *ctx, const store_usage *u), void *ctx, err *e);

#endif
