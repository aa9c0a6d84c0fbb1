/* held_versions.h - the weights that live requests began with stay in the disk cache
 *
 * A request may have to be begun anew on another worker when its adapter's name is long something else. So each live
 * request holds the version it began with: it is pinned in the cache, if it is there. The loop's thread. */
#ifndef PUNICA_FRONTEND_HELD_VERSIONS_H
#define PUNICA_FRONTEND_HELD_VERSIONS_H

#include "base/digest.h"
#include "base/err.h"

typedef struct held_versions held_versions;

/* dir: the cache's. NULL with e set. */
held_versions *held_versions_new(const char *dir, err *e);
void held_versions_free(held_versions *h); /* h may be NULL */

/* As often as held, it must be released. h NULL: there is no cache. */
void held_versions_hold(held_versions *h, const digest *d);
void held_versions_release(held_versions *h, const digest *d);

#endif
