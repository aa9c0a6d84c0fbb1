/* adapter_names.h - the registry of adapters, wherever it is: on a host's disk, or in the store
 *
 * Of a store's names each belongs to somebody: NAME is the operators', TENANT/NAME a tenant's own. On a disk all are
 * the operators'. Calls block, so nobody makes them on an event loop. */
#ifndef PUNICA_FRONTEND_ADAPTER_NAMES_H
#define PUNICA_FRONTEND_ADAPTER_NAMES_H

#include "registry/fetch.h"
#include "registry/registry.h"
#include "store/store.h"

/* Borrowed; one of them, the other is NULL. */
typedef struct {
    registry *disk;
    store *store;
} adapter_names;

/* Whose a name is: of "acme/sql" the owner is "acme" and the rest "sql"; owner "": the operators'. */
enum { ADAPTER_OWNER = 65 };
const char *adapter_name_split(const char *full, char owner[ADAPTER_OWNER]);

/* Whether a name can be one at all. */
int adapter_names_check(const adapter_names *n, const char *full, err *e);

/* Whether a source is one for all hosts, as those in a store have to be: a path that depends on where a process runs is
 * not. */
int adapter_names_check_source(bool is_in_store, const source *s, err *e);

/* Whether its owner might add it now, before anything is fetched; *room: how many bytes it may have. */
store_result adapter_names_may_add(const adapter_names *n, const char *full, bool replace, bool trusted, int64_t *room,
                                   err *e);

/* who: for the audit log. Where v is trusted its owner's limits do not hold. */
store_result adapter_names_add(const adapter_names *n, const char *who, const char *full, const adapter_version *v,
                               bool replace, err *e);
store_result adapter_names_rollback(const adapter_names *n, const char *who, const char *full, int number,
                                    err *e); /* 0: to the one before */
store_result adapter_names_remove(const adapter_names *n, const char *who, const char *full, err *e);

/* To be deinited by the caller. */
store_result adapter_names_read(const adapter_names *n, const char *full, adapter_record *out, err *e);

/* All names, sorted; owner NULL: of all. */
int adapter_names_list(const adapter_names *n, const char *owner,
                       void (*each)(void *ctx, const char *full, const adapter_record *r), void *ctx, err *e);

/* What is to be said of a version that was fetched; strings are borrowed from the arguments, but for url, which the
 * caller frees. */
adapter_version adapter_names_version(const source *s, const char *text, const fetched *got, const char *by,
                                      bool trusted);

#endif
