/* disk_cache.h - adapters on this host's disk, by what they are
 *
 *   DIR/<id>/              an adapter's files (adapter_files.h); whole from the moment it is there, and never changed
 *   DIR/.downloads/<key>/  what is being fetched, or was and broke off
 *   DIR/.trash/            what is being removed
 *   DIR/.lock              held (flock) by whoever adds or removes
 *
 * Any number of processes of one host share a folder, on a file system that has flock(). All that must survive is done
 * by rename, and what is in use is locked by its users' own descriptors, so a process may die anywhere: its locks are
 * gone, and its leftovers are removed by the next that opens the folder. All together is kept under a limit: what was
 * used longest ago goes first, and what is pinned stays. Any thread; calls may block on the disk. */
#ifndef PUNICA_REGISTRY_DISK_CACHE_H
#define PUNICA_REGISTRY_DISK_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/map.h"

typedef struct disk_cache disk_cache;

/* dir is made if it is not there. max_bytes: of all in it; 0: no limit. NULL with e set. */
disk_cache *disk_cache_open(const char *dir, size_t max_bytes, err *e);
void disk_cache_close(disk_cache *c); /* c may be NULL */

/* Who knows what must stay although nobody has it in use at present: the ids of all names' versions, as a map that is
 * freed here. Asked when something has to go, from calls below, on their threads. */
void disk_cache_set_keeper(disk_cache *c, map *(*kept)(void *ctx), void *ctx);

/* An adapter that stays while the pin is held. */
typedef struct {
    char *dir;
    int fd;
} disk_pin;

/* Pin the adapter of this id; that is a use of it. False: it is not there. */
bool disk_cache_pin(const disk_cache *c, const char *id, disk_pin *p);
bool disk_cache_pin_digest(const disk_cache *c, const char *digest_hex,
                           disk_pin *p); /* with or without chat template */
void disk_cache_unpin(disk_pin *p);      /* one that is all zero is none */

/* A folder to fetch into, the caller's alone; the same key, even after a crash, gets the same folder. */
typedef struct {
    char *dir;
    int fd;
} disk_work;

/* Waits until the deadline (of clock_now()) for another who has it. */
int disk_cache_begin(const disk_cache *c, const char *key, double deadline, const atomic_bool *stop, disk_work *w,
                     err *e);

/* The work's folder `tree` becomes the adapter `id`, which is pinned; the work ends. When id is there already, that one
 * is as good and is pinned. -1: it does not fit beside what must stay, or the disk failed; the work goes on. */
int disk_cache_keep(const disk_cache *c, disk_work *w, const char *tree, const char *id, disk_pin *p, err *e);

/* Ends work: what is in its folder waits for the next that begins with its key, a day long; or is removed. */
void disk_cache_leave(const disk_cache *c, disk_work *w, bool remove);

/* Remove an adapter unless somebody has it pinned. True: it is not there any more. */
bool disk_cache_remove(const disk_cache *c, const char *id);

/* Bytes of all there is, and of adapters how many. */
typedef struct {
    size_t bytes, max_bytes;
    int n_adapters;
} disk_usage;
disk_usage disk_cache_usage(const disk_cache *c);

/* For those who only read: the folder in dir of an adapter with this digest, with or without chat template. Owned by
 * the caller; NULL: there is none. */
char *disk_cache_find(const char *dir, const char *digest_hex);
void disk_cache_use(const char *adapter_dir); /* it was used now, as pins say it too */

#endif
