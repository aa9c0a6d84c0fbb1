/* held_versions.h - the weights that live requests began with stay in the disk cache
 *
 * A request may have to begin again on another worker after its adapter's name has come to mean something else. So each
 * live request holds the version it began with: it is pinned in the cache, if it is there. The loop's thread. */
#ifndef PUNICA_FRONTEND_HELD_VERSIONS_H
#define PUNICA_FRONTEND_HELD_VERSIONS_H

#include "base/digest.h"
#include "base/err.h"

typedef struct held_versions held_versions;

/* dir: the cache's folder. NULL with e set when it cannot be opened. */
held_versions *held_versions_new(const char *dir, err *e);
void held_versions_free(held_versions *h); /* h may be NULL */

/* Holds a version, to be released once for each time. h NULL: there is no cache, and nothing is done. */
void held_versions_hold(held_versions *h, const digest *d);
void held_versions_release(held_versions *h, const digest *d);

#endif
