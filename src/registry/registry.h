/* registry.h - the names of a host's adapters, beside its disk cache
 *
 *   DIR/versions/<name>.json   what the name is and was (adapter_record.h)
 *   DIR/names/<name>           a link to the folder of the version that is served
 *
 * Servers read names/ like any directory of adapters, so a name that is added, replaced, rolled back or removed has
 * changed for the next request of every process on the host; requests that run keep the version they began with. Each
 * change is one rename. The cache keeps all versions of a record. Any thread, any process; calls may block on the disk.
 */
#ifndef PUNICA_REGISTRY_REGISTRY_H
#define PUNICA_REGISTRY_REGISTRY_H

#include "registry/adapter_record.h"
#include "registry/disk_cache.h"

typedef struct registry registry;

/* Opens the registry of the cache c in dir, c's folder, and makes what is missing there. Finishes a change that was
 * interrupted. Until registry_close(), c is borrowed and evicts nothing that has a name. NULL with e set on failure. */
registry *registry_open(const char *dir, disk_cache *c, err *e);
void registry_close(registry *r); /* r may be NULL */

/* Makes v the current version of a name; v must be pinned in the cache. A name that is there already is refused, unless
 * replace is set. 0, or -1 with e set. */
int registry_add(registry *r, const char *name, const adapter_version *v, bool replace, err *e);

/* Makes another version of a name the current one; number 0: the one before it. */
int registry_rollback(registry *r, const char *name, int number, err *e);
int registry_remove(registry *r, const char *name, err *e);

/* Reads a name's record, which the caller deinits. -1 with e set: there is none, or it cannot be read. */
int registry_read(const registry *r, const char *name, adapter_record *out, err *e);

/* Returns all names, sorted, [*n]. The caller owns the array and the strings; NULL if there are none. */
char **registry_list(const registry *r, int *n);

/* Returns the folder of links, for servers. Owned by the caller. */
char *registry_names_dir(const char *dir);

#endif
