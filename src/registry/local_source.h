/* local_source.h - an adapter that is on this host: a directory's files are copied, an archive is unpacked */
#ifndef PUNICA_REGISTRY_LOCAL_SOURCE_H
#define PUNICA_REGISTRY_LOCAL_SOURCE_H

#include "registry/source.h"
#include "registry/unpack.h"

/* Into the folder dir, which is there. Whatever is read must lie under `under`, wherever links lead. */
int local_source_copy(const source *s, const char *under, const char *dir, const unpack_limits *l, err *e);

#endif
