/* disk_cache.c - see disk_cache.h
 *
 * Lock order: .lock first, then a folder's own. A pin is a shared lock on the adapter's folder, work an exclusive one.
 * As a folder is opened before it is locked, it may have been moved in between: whoever has the lock checks that it is
 * still in its place. Functions that say "under .lock" are called with .lock held. */
#include "registry/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "registry/adapter_files.h"

enum { PATIENCE_S = 24 * 3600 }; /* for which work that was left is kept */

struct disk_cache {
    char *dir, *downloads, *trash;
    size_t max_bytes;
    int fd; /* of dir, for fsync() */
    map *(*kept)(void *ctx);
    void *keeper;
};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Takes .lock. Returns its descriptor; close() releases it. -1 with e set. */
static int lock_all(const disk_cache *c, err *e)
{
    char *path = path_join(c->dir, ".lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX)) {
        err_set_local(e, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

/* Returns whether the open folder is still what path names. */
static bool is_in_place(int fd, const char *path)
{
    struct stat open_one, there;
    return fstat(fd, &open_one) == 0 && stat(path, &there) == 0 && open_one.st_dev == there.st_dev &&
           open_one.st_ino == there.st_ino;
}

/* Opens a folder and takes a lock of this kind on it. -1: it is not there, or another process has it. */
static int lock_folder(const char *path, int kind)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    if (flock(fd, kind | LOCK_NB) == 0 && is_in_place(fd, path))
        return fd;
    close(fd);
    return -1;
}

/* Under .lock: removes a folder unless it is locked; renames it first, so that for others it goes at once. Returns
 * whether it is gone. */
static bool drop(const disk_cache *c, const char *path)
{
    int fd = lock_folder(path, LOCK_EX);
    if (fd < 0)
        return !file_exists(path);
    char *grave = xasprintf("%s/%s", c->trash, strrchr(path, '/') + 1);
    remove_tree(grave); /* left by a process that died here */
    bool gone = rename(path, grave) == 0;
    if (gone)
        remove_tree(grave);
    close(fd);
    free(grave);
    return gone;
}

/* Something that may be removed: an adapter, or work (id NULL; else it points into path). */
typedef struct {
    char *path;
    const char *id;
    size_t bytes;
    struct timespec used;
} item;
typedef struct {
    item *at;
    size_t n, cap, bytes;
} item_list;

static _Thread_local size_t tree_bytes; /* nftw() has no argument for it */

static int add_bytes(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)path;
    (void)ftw;
    tree_bytes += kind == FTW_F ? (size_t)st->st_size : 0;
    return 0;
}

static void add_item(item_list *l, char *path, bool is_adapter)
{
    struct stat st;
    tree_bytes = 0;
    if (stat(path, &st) || nftw(path, add_bytes, 16, FTW_PHYS)) {
        free(path);
        return;
    }
    l->at = xgrow(l->at, &l->cap, l->n + 1, sizeof *l->at);
    l->at[l->n++] =
        (item){.path = path, .id = is_adapter ? strrchr(path, '/') + 1 : NULL, .bytes = tree_bytes, .used = st.st_mtim};
    l->bytes += tree_bytes;
}

static void add_folder(item_list *l, const char *dir, bool is_adapter)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (const struct dirent *f; (f = readdir(d));)
        if (is_adapter ? adapter_id_is_valid(f->d_name) : f->d_name[0] != '.')
            add_item(l, path_join(dir, f->d_name), is_adapter);
    closedir(d);
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const item *)a)->used, *y = &((const item *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Lists all adapters and all work, least recently used first. */
static item_list list_items(const disk_cache *c)
{
    item_list l = {0};
    add_folder(&l, c->dir, true);
    add_folder(&l, c->downloads, false);
    if (l.n)
        qsort(l.at, l.n, sizeof *l.at, by_use);
    return l;
}

static void free_items(item_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->at[i].path);
    free(l->at);
}

/* Under .lock: evicts an item unless it must stay. Returns whether it is gone. */
static bool evict(const disk_cache *c, const item *x, const map *kept)
{
    if ((x->id && kept && map_get(kept, x->id, strlen(x->id), NULL)) || !drop(c, x->path))
        return false;
    if (x->id)
        log_info("adapter %.12s left the disk cache", x->id);
    return true;
}

/* Under .lock: evicts, least recently used first, until the limit is kept. -1 with e set when that is not enough. */
static int make_room(const disk_cache *c, err *e)
{
    item_list l = list_items(c);
    bool full = c->max_bytes && l.bytes > c->max_bytes;
    map *kept = full && c->kept ? c->kept(c->keeper) : NULL;
    for (size_t i = 0; i < l.n && full && l.bytes > c->max_bytes; i++)
        if (evict(c, &l.at[i], kept))
            l.bytes -= l.at[i].bytes;
    int status = c->max_bytes && l.bytes > c->max_bytes
                     ? err_set_local(e, "the disk cache is full: %zu bytes are in use, and its limit is %zu", l.bytes,
                                     c->max_bytes)
                     : 0;
    free_items(&l);
    map_free(kept);
    return status;
}

/* Evicts the least recently used of what may go. False: there is nothing. */
static bool evict_one(const disk_cache *c)
{
    err e;
    bool gone = false;
    int lock = lock_all(c, &e);
    if (lock < 0)
        return false;
    item_list l = list_items(c);
    map *kept = c->kept ? c->kept(c->keeper) : NULL;
    for (size_t i = 0; i < l.n && !gone; i++)
        gone = evict(c, &l.at[i], kept);
    free_items(&l);
    map_free(kept);
    close(lock);
    return gone;
}

/* Under .lock: removes what processes that died have left. */
static void clean(const disk_cache *c)
{
    item_list l = {0};
    remove_tree(c->trash);
    if (mkdir(c->trash, 0700) && errno != EEXIST)
        log_warn("%s: %s", c->trash, strerror(errno));
    add_folder(&l, c->downloads, false);
    for (size_t i = 0; i < l.n; i++)
        if (l.at[i].used.tv_sec < (time_t)clock_wall() - PATIENCE_S)
            drop(c, l.at[i].path);
    free_items(&l);
}

static int make_folder(const char *path, err *e)
{
    return mkdir(path, 0700) && errno != EEXIST ? err_set_local(e, "cannot make %s: %s", path, strerror(errno)) : 0;
}

disk_cache *disk_cache_open(const char *dir, size_t max_bytes, err *e)
{
    disk_cache *c = XNEW(disk_cache);
    *c = (disk_cache){.dir = xstrdup(dir),
                      .downloads = path_join(dir, ".downloads"),
                      .trash = path_join(dir, ".trash"),
                      .max_bytes = max_bytes,
                      .fd = -1};
    int lock = -1;
    if (make_folder(c->dir, e) == 0 && make_folder(c->downloads, e) == 0 && make_folder(c->trash, e) == 0)
        lock = lock_all(c, e);
    if (lock >= 0 && (c->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        err_set(e, "%s: %s", dir, strerror(errno));
    if (c->fd >= 0)
        clean(c);
    if (lock >= 0)
        close(lock);
    if (c->fd >= 0)
        return c;
    disk_cache_close(c);
    return NULL;
}

void disk_cache_close(disk_cache *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    free(c->dir);
    free(c->downloads);
    free(c->trash);
    free(c);
}

void disk_cache_set_keeper(disk_cache *c, map *(*kept)(void *ctx), void *ctx)
{
    c->kept = kept;
    c->keeper = ctx;
}

bool disk_cache_pin(const disk_cache *c, const char *id, disk_pin *p)
{
    *p = (disk_pin){.fd = -1};
    char *path = adapter_id_is_valid(id) ? path_join(c->dir, id) : NULL;
    int fd = path ? lock_folder(path, LOCK_SH) : -1;
    if (fd < 0) {
        free(path);
        *p = (disk_pin){0};
        return false;
    }
    futimens(fd, NULL);
    *p = (disk_pin){.dir = path, .fd = fd};
    return true;
}

bool disk_cache_pin_digest(const disk_cache *c, const char *digest_hex, disk_pin *p)
{
    char *dir = disk_cache_find(c->dir, digest_hex);
    bool pinned = dir && disk_cache_pin(c, strrchr(dir, '/') + 1, p);
    if (!pinned)
        *p = (disk_pin){0};
    free(dir);
    return pinned;
}

void disk_cache_unpin(disk_pin *p)
{
    if (p->dir)
        close(p->fd);
    free(p->dir);
    *p = (disk_pin){0};
}

static bool is_over(double deadline, const atomic_bool *stop)
{
    return clock_now() > deadline || (stop && atomic_load(stop));
}

int disk_cache_begin(const disk_cache *c, const char *key, double deadline, const atomic_bool *stop, disk_work *w,
                     err *e)
{
    char *path = path_join(c->downloads, key);
    int fd = -1, lock = lock_all(c, e), made = -1;
    if (lock < 0) {
        free(path);
        return -1;
    }
    err full;
    make_room(c, &full); /* best effort: whether ours fits is seen at its end */
    close(lock);
    while ((made = make_folder(path, e)) == 0 && (fd = lock_folder(path, LOCK_EX)) < 0 && !is_over(deadline, stop))
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (fd >= 0) {
        futimens(fd, NULL);
        *w = (disk_work){.dir = path, .fd = fd};
        return 0;
    }
    free(path);
    return made ? -1 : err_set(e, "another fetches it already, and was not done in time");
}

void disk_cache_leave(const disk_cache *c, disk_work *w, bool remove)
{
    err e;
    int lock = remove ? lock_all(c, &e) : -1;
    close(w->fd);
    if (lock >= 0) {
        drop(c, w->dir);
        close(lock);
    }
    free(w->dir);
    *w = (disk_work){0};
}

int disk_cache_write(const disk_cache *c, int fd, const void *data, size_t n, err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)data + done, n - done);
        if (k >= 0)
            done += (size_t)k;
        else if (errno == EINTR)
            continue;
        else if ((errno != ENOSPC && errno != EDQUOT) || !c)
            return err_set_local(e, "%s", strerror(errno));
        else if (!evict_one(c))
            return err_set_local(e, "the disk is full, and the disk cache has nothing that could go");
    }
    return 0;
}

static int sync_path(const char *path, err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int status = fd < 0 || fsync(fd) ? err_set_local(e, "%s: %s", path, strerror(errno)) : 0;
    if (fd >= 0)
        close(fd);
    return status;
}

/* Syncs the adapter's files and their folders to the disk, before they become an adapter. */
static int sync_tree(const char *tree, err *e)
{
    int status = 0;
    for (int i = 0; i < N_ADAPTER_FILES && status == 0; i++) {
        char *path = path_join(tree, adapter_file_name[i]);
        char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
        if (file_exists(path))
            status = sync_path(path, e) || sync_path(folder, e) ? -1 : 0;
        free(folder);
        free(path);
    }
    return status ? status : sync_path(tree, e);
}

/* Returns whether the files there have the digest that their folder's name says: disks lose data, too. */
static bool is_sound(const char *dir, const char *id)
{
    char *path[N_NEEDED], hex[DIGEST_HEX];
    digest d;
    err e;
    for (int i = 0; i < N_NEEDED; i++)
        path[i] = path_join(dir, adapter_file_name[i]);
    digest_reader *r = digest_reader_new((const char *const *)path, N_NEEDED);
    int status = 1;
    while (status > 0)
        status = digest_reader_go_on(r, SIZE_MAX, &d, &e);
    digest_reader_free(r);
    for (int i = 0; i < N_NEEDED; i++)
        free(path[i]);
    if (status == 0)
        digest_to_hex(&d, hex);
    return status == 0 && strncmp(hex, id, DIGEST_HEX - 1) == 0;
}

/* Under .lock: renames the tree to the adapter's folder, or removes it if a sound one is there already. */
static int put_in_place(const disk_cache *c, const char *tree, const char *id, err *e)
{
    char *path = path_join(c->dir, id);
    int status = 0;
    if (file_exists(path) && is_sound(path, id))
        remove_tree(tree);
    else if (file_exists(path) && !drop(c, path))
        status =
            err_set_local(e, "cannot put the adapter into the disk cache at %s: it is broken there, and in use", path);
    else if (rename(tree, path) || fsync(c->fd))
        status = err_set_local(e, "cannot put the adapter into the disk cache at %s: %s", path, strerror(errno));
    free(path);
    return status;
}

int disk_cache_keep(const disk_cache *c, disk_work *w, const char *tree, const char *id, disk_pin *p, err *e)
{
    size_t bytes = adapter_files_bytes(tree);
    if (c->max_bytes && bytes > c->max_bytes) /* evict nothing for what cannot fit anyway */
        return err_set(e, "it is %zu bytes, and the disk cache has %zu in all", bytes, c->max_bytes);
    if (sync_tree(tree, e))
        return -1;
    int lock = lock_all(c, e);
    if (lock < 0)
        return -1;
    int status = make_room(c, e) || put_in_place(c, tree, id, e) ? -1 : 0;
    if (status == 0 && !disk_cache_pin(c, id, p)) /* it is there: to remove it takes .lock */
        status = err_set_local(e, "cannot open %s/%s: %s", c->dir, id, strerror(errno));
    close(lock);
    if (status == 0)
        disk_cache_leave(c, w, true);
    return status;
}

disk_usage disk_cache_usage(const disk_cache *c)
{
    item_list l = list_items(c);
    disk_usage u = {.bytes = l.bytes, .max_bytes = c->max_bytes};
    for (size_t i = 0; i < l.n; i++)
        u.n_adapters += l.at[i].id != NULL;
    free_items(&l);
    return u;
}

char *disk_cache_find(const char *dir, const char *digest_hex)
{
    char *path = adapter_id_is_valid(digest_hex) ? path_join(dir, digest_hex) : NULL;
    if (path && file_is_dir(path))
        return path;
    free(path);
    path = NULL;
    DIR *d = opendir(dir);
    for (const struct dirent *f; d && !path && (f = readdir(d));)
        if (adapter_id_is_valid(f->d_name) && strncmp(f->d_name, digest_hex, DIGEST_HEX - 1) == 0)
            path = path_join(dir, f->d_name);
    if (d)
        closedir(d);
    return path;
}

void disk_cache_use(const char *adapter_dir)
{
    utimensat(AT_FDCWD, adapter_dir, NULL, 0); /* if we may not touch it, it only counts as older */
}
