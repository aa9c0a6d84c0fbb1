/* store.h - the persistent data: tenants, their keys and grants, the registry of adapters, usage, and the audit log
 *
 * In SQLite (a file) or PostgreSQL; sql.h hides the difference. Calls block, so they must not be made on an event loop;
 * one thread at a time. After a lost connection the next call reconnects. Functions that return int return 0, or -1
 * with e set.
 *
 * Calls that change something return STORE_OK; STORE_BAD (the request is invalid), STORE_ABSENT (it names something
 * that does not exist), STORE_TAKEN (something that exists already), STORE_TOO_MANY or STORE_TOO_LARGE (a tenant's
 * limits on adapters): e says what, and nothing is changed; STORE_FAILED (the database failed, and perhaps made the
 * change all the same); or STORE_UNCHANGED (an edit of an adapter only looked). */
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

/* Opens a store, and makes its tables or brings them up to date. "postgres://..." or "postgresql://..." is PostgreSQL,
 * "sqlite:FILE" or "FILE" SQLite, which is created if it does not exist. NULL with e set on failure. */
store *store_open(const char *url, err *e);

/* Opens a store that is there already, and only brings its tables up to date if they are of an earlier release: so what
 * merely reads may be given a database that is read-only. NULL with e set on failure, also when there is no store. */
store *store_open_existing(const char *url, err *e);
void store_close(store *s); /* s may be NULL */

/* Tenants and what they have. */

#define STORE_WEIGHT 1 /* of a tenant for which none is given */
#define STORE_MAX_WEIGHT 1000

enum { STORE_MAX_NAME = 64 };                          /* bytes of a tenant's or a key's name */
enum { STORE_MAX_ADAPTER = STORE_MAX_NAME + 1 + 200 }; /* of an adapter's, TENANT/NAME */

typedef struct {
    const char *name;           /* letters, digits, - _ and . */
    bool base;                  /* it may use the base model */
    int64_t weight;             /* of its share of a full cluster: 1 to STORE_MAX_WEIGHT */
    int64_t in_flight, waiting; /* limits on its requests, as the next two; 0: no limit */
    int64_t requests_per_minute, tokens_per_minute;
    int64_t max_adapters;      /* that it may register itself; 0: none at all */
    int64_t max_adapter_bytes; /* of all their versions that are kept; 0: no limit */
    int64_t created;           /* seconds since the epoch */
} store_tenant;

/* An API key, stored as its digest only: the key itself is shown once, when it is made. Keys are 256 random bits, which
 * nobody can find by brute force, so plain SHA-256 is as good as a slow salted hash. */
typedef struct {
    const char *tenant, *name; /* the name is unique among the tenant's keys */
    digest of;                 /* SHA-256 of the key as clients show it */
    int64_t created, expires;  /* seconds since the epoch; expires 0: never */
} store_key;

/* A tenant may use an adapter: of this name, or of any that matches a prefix followed by "*". */
typedef struct { const char *tenant, *adapter; } store_grant;

/* A name in the registry, and the version that it serves. */
typedef struct {
    const char *owner, *name; /* owner "": the operators' */
    const char *id;           /* its folder in disk caches; begins with the digest */
    const char *source;       /* the URL to fetch it from, secrets included */
    bool trusted;             /* may be fetched with the cluster's own credentials, and from files */
    int64_t bytes;            /* of all its versions that are kept */
} store_adapter;

/* A snapshot of all of these, sorted by tenant and name. */
typedef struct {
    int64_t change;         /* its version: counts up with every change */
    store_tenant *tenant;   /* [n_tenants] */
    store_key *key;         /* [n_keys] */
    store_grant *grant;     /* [n_grants] */
    store_adapter *adapter; /* [n_adapters] */
    size_t n_tenants, n_keys, n_grants, n_adapters;
    arena text; /* holds the strings */
} store_directory;

int store_read_change(store *s, int64_t *change, err *e);
store_directory *store_read_directory(store *s, err *e); /* owned by the caller; NULL with e set */
void store_directory_free(store_directory *d);

/* Changes. Each adds a line to the audit log, and removes those older than a year; who: made the change, for that
 * line. */

store_result store_add_tenant(store *s, const char *who, const store_tenant *t, err *e);

/* Changes a tenant atomically, so that concurrent changes are not lost. edit gets the tenant as it is now and may
 * change everything but its name: 0, or -1 with e set to change nothing. */
typedef int store_tenant_edit(void *ctx, store_tenant *t, err *e);
store_result store_change_tenant(store *s, const char *who, const char *name, store_tenant_edit *edit, void *ctx,
                                 err *e);
store_result store_remove_tenant(store *s, const char *who, const char *name, err *e); /* its usage stays */

/* Makes a new key, "pk-...", with k's tenant, name and expiry, and writes it into text. */
enum { STORE_KEY_TEXT = 3 + 2 * 32 + 1 };
store_result store_add_key(store *s, const char *who, const store_key *k, char text[STORE_KEY_TEXT], err *e);
store_result store_expire_key(store *s, const char *who, const char *tenant, const char *name, int64_t at,
                              err *e); /* 0: never */
store_result store_remove_key(store *s, const char *who, const char *tenant, const char *name, err *e);

store_result store_add_grant(store *s, const char *who, const store_grant *g, err *e);
store_result store_remove_grant(store *s, const char *who, const store_grant *g, err *e);

/* Returns whether a grant's name or pattern covers the adapter. A star does not match a slash: a pattern does not cover
 * adapters that tenants own (OWNER/NAME). */
bool store_grant_covers(const char *pattern, const char *adapter);

/* The registry. The versions of a name are a document (record), which the store does not interpret. */

/* A name before a change: strings are borrowed during the call. */
typedef struct {
    const char *record; /* NULL: there is no such name */
    bool may_add;       /* its owner's limit has room for one more name */
    int64_t room;       /* bytes that its owner's limit leaves for all versions of this name */
} store_adapter_now;

/* A name after the change. Strings are allocated by the callback and freed by the store; record NULL: the name is
 * removed. detail: for the audit log. */
typedef struct {
    char *record, *id, *source, *detail;
    bool trusted;
    int64_t bytes;
} store_adapter_next;

/* Makes *next from *now, within the transaction. Anything but STORE_OK changes nothing and is the result of the whole
 * change: STORE_UNCHANGED if the edit only looked, else with e set. */
typedef store_result store_adapter_edit(void *ctx, const store_adapter_now *now, store_adapter_next *next, err *e);

/* Changes a name atomically by way of edit. owner "": the operators; else an existing tenant. */
store_result store_change_adapter(store *s, const char *who, const char *action, const char *owner, const char *name,
                                  store_adapter_edit *edit, void *ctx, err *e);

/* Reads the records of one name (name not NULL) or of all names of an owner (owner NULL: of all owners), sorted.
 * Strings are borrowed during the call of each. */
int store_read_records(store *s, const char *owner, const char *name,
                       void (*each)(void *ctx, const store_adapter *a, const char *record), void *ctx, err *e);

typedef struct {
    int64_t number, at;
    const char *who, *action, *tenant, *detail;
} store_audit;

/* Reads the last n lines, newest first; tenant NULL: of all tenants. Strings are borrowed during the call of each. */
int store_read_audit(store *s, const char *tenant, int n, void (*each)(void *ctx, const store_audit *a), void *ctx,
                     err *e);

/* Usage. */

typedef struct {
    const char *tenant, *adapter;             /* adapter: its name, or the base model's */
    const char *digest;                       /* of the adapter's files, hex; "": the base model */
    int64_t hour;                             /* since the epoch */
    int64_t requests, prompt, cached, output; /* cached: a part of prompt */
} store_usage;

/* What a tenant has spent (requests, tokens: since the last flush in a batch), for limits per minute, and how
 * many are with it now (in_flight, waiting). */
typedef struct {
    const char *tenant;
    int64_t requests, tokens, in_flight, waiting;
} store_load;

/* What one frontend reports at a time. number counts up from 1. Flushing is idempotent: each number is applied once, so
 * a batch whose outcome is unknown is sent again, unchanged. */
typedef struct {
    const char *frontend; /* an id that no other process has or ever had */
    int64_t number;
    int64_t now;              /* seconds since the epoch */
    const store_usage *usage; /* [n_usage] sorted by tenant, adapter, digest and hour, each once */
    size_t n_usage;
    const store_load *load; /* [n_load] sorted by tenant, each once */
    size_t n_load;
} store_batch;

/* Applies a batch, unless it has been applied before. */
int store_flush(store *s, const store_batch *b, err *e);

/* Reads what all frontends together have ever spent, and how many requests those other than `frontend` that have flushed
 * lately have now. */
int store_read_load(store *s, const char *frontend, int64_t now, void (*each)(void *ctx, const store_load *l),
                    void *ctx, err *e);

/* Selects usage: of a tenant (NULL: of all), in hours from `from` (included) to `to` (excluded). */
typedef struct {
    const char *tenant;
    int64_t from, to;
} store_period;
int store_read_usage(store *s, const store_period *p, void (*each)(void *ctx, const store_usage *u), void *ctx, err *e);

#endif
