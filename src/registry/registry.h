/* registry.h - the names of a host's adapters, beside its disk cache
 *
 *   DIR/versions/<name>.json   what the name is and was (adapter_record.h)
 *   DIR/names/<name>           a link to the folder of the version that is served
 *
 * Servers look into names/ as into any directory of adapters, so a name that is added, replaced, rolled back or removed
 * is so for the next request of every process on the host; what runs goes on with what it began. Each change is one
 * rename. The versions of a record stay in the cache. Any thread, any process; calls may block on the disk. */
#ifndef PUNICA_REGISTRY_REGISTRY_H
#define PUNICA_REGISTRY_REGISTRY_H

#include "registry/adapter_record.h"
#include "registry/disk_cache.h"

typedef struct registry registry;

/* dir: the cache's, where all is made that is not there. From now on the cache keeps what has a name. A change that was
 * interrupted is finished. c is borrowed: until registry_close(). NULL with e set. */
registry *registry_open(const char *dir, disk_cache *c, err *e);
void registry_close(registry *r); /* r may be NULL */

/* The name is this version from now on, which must be pinned in the cache. A name that is there: refused, unless it is
 * to be replaced. */
int registry_add(registry *r, const char *name, const adapter_version *v, bool replace, err *e);

/* To an earlier version, or a later one again; number 0: the one before the current. */
int registry_rollback(registry *r, const char *name, int number, err *e);
int registry_remove(registry *r, const char *name, err *e);

/* A name's record, to be deinited by the caller. -1: there is none, or it cannot be read. */
int registry_read(const registry *r, const char *name, adapter_record *out, err *e);

/* All names, sorted. Owned by the caller, as are the strings. */
char **registry_list(const registry *r, int *n);

/* The folder of links, for servers. Owned by the caller. */
char *registry_names_dir(const char *dir);

#endif
