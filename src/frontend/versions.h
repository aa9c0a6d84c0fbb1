/* versions.h - what an adapter is at present: the digest of its files
 *
 * A request is served with the weights its adapter had when it was taken in, wherever it goes; so its digest must be
 * known then. Reading the files takes a while, and is done once: a digest is remembered as long as inode, size and
 * times of the files stay the same. Any thread may ask. */
#ifndef PUNICA_FRONTEND_VERSIONS_H
#define PUNICA_FRONTEND_VERSIONS_H

#include "base/digest.h"
#include "frontend/catalog.h"

typedef struct versions versions;

versions *versions_new(const catalog *models); /* borrowed: until versions_free() */
void versions_free(versions *v);

/* Returns whether the digest is known, and what it is, reading nothing but the files' times. */
bool versions_know(versions *v, const char *adapter, digest *d);

/* Finds out a digest by reading the files, piece by piece, so that a large adapter does not hold up others. */
typedef struct version_reading version_reading;
version_reading *versions_begin(versions *v, const char *adapter);
void version_reading_free(version_reading *r);

/* Reads at most so many bytes more. 1: there is more to do; 0: *d is known now; -1 with e set: the files cannot be
 * read. */
int versions_read(version_reading *r, size_t most, digest *d, err *e);

/* Makes d the adapter's digest from now on, whatever its files are (for simulations). */
void versions_set(versions *v, const char *adapter, const digest *d);

#endif
