/* disk_cache.h - adapters on this host's disk, addressed by their content
 *
 *   DIR/<id>/              an adapter's files (adapter_files.h): complete when the folder appears, never changed
 *   DIR/.downloads/<key>/  what is being fetched, or was left by a fetch that broke off
 *   DIR/.trash/            what is being removed
 *   DIR/.lock              held (flock) by whoever adds or removes
 *
 * Any number of processes of one host share a folder, on a file system that has flock(). Changes that must survive are
 * renames, and what is in use is locked through its users' own descriptors, so a process may die at any point: its
 * locks go with it, and the next process that opens the folder removes its leftovers. The total size is kept under a
 * limit, if there is one, and what the disk has room for: the least recently used goes first (LRU), pinned adapters
 * stay. Any thread; calls may block on the disk. */
#ifndef PUNICA_REGISTRY_DISK_CACHE_H
#define PUNICA_REGISTRY_DISK_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/map.h"

typedef struct disk_cache disk_cache;

/* Opens the cache in dir, which is made if it is missing. max_bytes: of all in it; 0: no limit. NULL with e set on
 * failure. */
disk_cache *disk_cache_open(const char *dir, size_t max_bytes, err *e);
void disk_cache_close(disk_cache *c); /* c may be NULL */

/* Sets a callback that says what must stay although it is not in use: it returns the ids of all names' versions, as a
 * map that the cache frees. Called when something has to go, by the functions below, on their threads. NULL: none. */
void disk_cache_set_keeper(disk_cache *c, map *(*kept)(void *ctx), void *ctx);

/* A pin: its adapter stays while the pin is held. dir: the adapter's folder. All zero: none. */
typedef struct {
    char *dir;
    int fd;
} disk_pin;

/* Pins the adapter of this id, which counts as a use. False: it is not there. */
bool disk_cache_pin(const disk_cache *c, const char *id, disk_pin *p);
bool disk_cache_pin_digest(const disk_cache *c, const char *digest_hex,
                           disk_pin *p); /* with or without chat template */
void disk_cache_unpin(disk_pin *p);      /* does nothing if *p is all zero */

/* A folder to fetch into, for the caller alone. The same key always gets the same folder, even after a crash. */
typedef struct {
    char *dir;
    int fd;
} disk_work;

/* Begins work under a key. If another has its folder, waits for it, until the deadline (of clock_now()) or *stop; stop
 * may be NULL. 0, or -1 with e set. */
int disk_cache_begin(const disk_cache *c, const char *key, double deadline, const atomic_bool *stop, disk_work *w,
                     err *e);

/* Writes n bytes to a file of work. When the disk is full, evicts what may go, least recently used first, until they have
 * room. c NULL: nothing is evicted. -1 with e set. */
int disk_cache_write(const disk_cache *c, int fd, const void *data, size_t n, err *e);

/* Makes `tree`, a folder in the work's, the adapter `id`, pins that, and ends the work. An adapter of this id that is
 * there already, and sound, is pinned instead. -1 with e set, and the work goes on: it does not fit beside what must
 * stay, or the disk failed. */
int disk_cache_keep(const disk_cache *c, disk_work *w, const char *tree, const char *id, disk_pin *p, err *e);

/* Ends work. Removes its folder, or leaves it for whoever begins with its key within a day. */
void disk_cache_leave(const disk_cache *c, disk_work *w, bool remove);

/* Bytes of all adapters and all work, and how many adapters. */
typedef struct {
    size_t bytes, max_bytes;
    int n_adapters;
} disk_usage;
disk_usage disk_cache_usage(const disk_cache *c);

/* For processes that only read: returns the folder in dir of an adapter with this digest, with or without chat
 * template. Owned by the caller; NULL: there is none. */
char *disk_cache_find(const char *dir, const char *digest_hex);
void disk_cache_use(const char *adapter_dir); /* marks it as used now, as a pin does */

#endif
