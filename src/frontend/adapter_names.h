/* adapter_names.h - the registry of adapters, wherever it is: on a host's disk, or in the store
 *
 * In a store each name has an owner: NAME belongs to the operators, TENANT/NAME to a tenant. On a disk all belong to
 * the operators. Calls block, so nobody makes them on an event loop. */
#ifndef PUNICA_FRONTEND_ADAPTER_NAMES_H
#define PUNICA_FRONTEND_ADAPTER_NAMES_H

#include "registry/fetch.h"
#include "registry/registry.h"
#include "store/store.h"

/* Where the registry is: one of these, borrowed; the other is NULL. */
typedef struct {
    registry *disk;
    store *store;
} adapter_names;

/* Splits a name: of "acme/sql" the owner is "acme", and "sql" is returned; owner "": the operators. */
enum { ADAPTER_OWNER = STORE_MAX_NAME + 1 };
const char *adapter_name_split(const char *full, char owner[ADAPTER_OWNER]);

/* Checks that all hosts can read a source, as they must if it is in a store: a path that depends on where a process runs
 * is refused. 0, or -1 with e set. */
int adapter_names_check_source(bool is_in_store, const source *s, err *e);

/* Checks whether the name could be added now, before anything is fetched. *room: how many bytes it may have. */
store_result adapter_names_may_add(const adapter_names *n, const char *full, bool replace, bool trusted, int64_t *room,
                                   err *e);

/* Add a version (replace: the name may have others), roll a name back to an earlier one, or remove it. who: for the
 * audit log. The owner's limits do not apply to a trusted v. Rollback: number 0 is the one before. */
store_result adapter_names_add(const adapter_names *n, const char *who, const char *full, const adapter_version *v,
                               bool replace, err *e);
store_result adapter_names_rollback(const adapter_names *n, const char *who, const char *full, int number, err *e);
store_result adapter_names_remove(const adapter_names *n, const char *who, const char *full, err *e);

/* Reads the record of a name. *out: deinited by the caller. */
store_result adapter_names_read(const adapter_names *n, const char *full, adapter_record *out, err *e);

/* Calls each for all names of an owner (NULL: of all), sorted. -1 with e set. */
int adapter_names_list(const adapter_names *n, const char *owner,
                       void (*each)(void *ctx, const char *full, const adapter_record *r), void *ctx, err *e);

/* Returns the registry's description of a version that was fetched. Its strings are borrowed from the arguments, apart
 * from url, which the caller frees. */
adapter_version adapter_names_version(const source *s, const char *text, const fetched *got, const char *by,
                                      bool trusted);

#endif
