/* unpack.h - unpacks an adapter from an archive: .tar, .tar.gz or .zip
 *
 * Only the adapter's files are written (adapter_files.h), each into its own place, whatever the archive says; the
 * adapter may lie in a folder of the archive. The unpacked size is bounded, however small the archive is. */
#ifndef PUNICA_REGISTRY_UNPACK_H
#define PUNICA_REGISTRY_UNPACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "registry/disk_cache.h"

typedef struct {
    size_t max_bytes;        /* of all that is in the archive, unpacked */
    double deadline;         /* of clock_now() */
    const atomic_bool *stop; /* or NULL */
    const disk_cache *cache; /* makes room when the disk is full; or NULL */
} unpack_limits;

/* Returns whether the name of a file, or the path of a URL, is that of an archive. */
bool unpack_is_archive(const char *name);

/* Unpacks into the folder dir, which exists. Refuses names that lead out of the archive, adapter's files that are
 * links, and two adapters in one archive. 0, or -1 with e set; then dir may have files. */
int unpack_adapter(const char *archive, const char *dir, const unpack_limits *l, err *e);

#endif
