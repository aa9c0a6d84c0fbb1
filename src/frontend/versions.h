/* versions.h - what an adapter is at present: the digest of its files
 *
 * A request is served with the weights its adapter had when it was taken in, wherever it goes; so its digest must be
 * known then. Reading the files takes a while, and is done once: a digest is remembered as long as the files are the
 * same by inode, size and times. Any thread may ask. */
#ifndef PUNICA_FRONTEND_VERSIONS_H
#define PUNICA_FRONTEND_VERSIONS_H

#include "base/digest.h"
#include "frontend/catalog.h"

typedef struct versions versions;

versions *versions_new(const catalog *models); /* borrowed: until versions_free() */
void versions_free(versions *v);

/* Without reading anything but times: whether the digest is known. */
bool versions_know(versions *v, const char *adapter, digest *d);

/* Finding it out by reading the files. One that takes long must not hold up others, so it is done in pieces. */
typedef struct version_reading version_reading;
version_reading *versions_begin(versions *v, const char *adapter);
void version_reading_free(version_reading *r);

/* Go on for at most so many bytes. 1: there is more to do; 0: *d is known now; -1: the files cannot be read. */
int versions_read(version_reading *r, size_t most, digest *d, err *e);

/* For simulations: the adapter is this from now on, whatever its files are. */
void versions_set(versions *v, const char *adapter, const digest *d);

#endif
