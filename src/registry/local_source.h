/* local_source.h - takes an adapter from this host: copies a directory's files, or unpacks an archive */
#ifndef PUNICA_REGISTRY_LOCAL_SOURCE_H
#define PUNICA_REGISTRY_LOCAL_SOURCE_H

#include "registry/source.h"
#include "registry/unpack.h"

/* Copies into the folder dir, which exists. Every file that is read must lie under the folder `under`, links resolved;
 * NULL: nothing may be read. 0, or -1 with e set. */
int local_source_copy(const source *s, const char *under, const char *dir, const unpack_limits *l, err *e);

#endif
