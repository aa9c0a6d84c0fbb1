/* registry.c - see registry.h
 *
 * The record is authoritative, the link is derived: it is written after the record, and corrected by whoever opens the
 * registry. Functions that say "under the lock" need lock_registry()'s lock. */
#include "registry/registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sort.h"

#define MAX_RECORD ((size_t)1 << 20)

struct registry {
    char *dir, *names, *versions;
    disk_cache *cache;
};

char *registry_names_dir(const char *dir)
{
    return path_join(dir, "names");
}

/* Takes the lock that every change is made under. Returns its descriptor; close() releases it. -1 with e set. */
static int lock_registry(const registry *r, err *e)
{
    int fd = open(r->versions, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0)
        return fd;
    err_set(e, "%s: %s", r->versions, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static char *record_path(const registry *r, const char *name)
{
    return xasprintf("%s/%s.json", r->versions, name);
}

int registry_read(const registry *r, const char *name, adapter_record *out, err *e)
{
    if (adapter_name_check(name, e))
        return -1;
    char *path = record_path(r, name);
    int status = -1;
    if (!file_exists(path)) {
        err_set(e, "there is no adapter \"%s\"", name);
    } else {
        json_t *o = json_read_file(path, MAX_RECORD, e);
        status = o ? adapter_record_from_json(out, o, e) : -1;
        json_decref(o);
        if (status)
            err_wrap(e, "%s", path);
    }
    free(path);
    return status;
}

/* Under the lock: makes a name's link what its record says; record NULL: removes the link. */
static int set_link(const registry *r, const char *name, const adapter_record *record, err *e)
{
    char *path = path_join(r->names, name), *next = path_join(r->names, ".next");
    int status = 0;
    if (!record) {
        status = unlink(path) && errno != ENOENT ? err_set(e, "%s: %s", path, strerror(errno)) : 0;
    } else {
        char *to = xasprintf("../%s", record->version[record->current].id);
        unlink(next);
        if (symlink(to, next) || rename(next, path))
            status = err_set(e, "%s: %s", path, strerror(errno));
        free(to);
    }
    free(next);
    free(path);
    return status;
}

static int write_synced(const char *path, const char *text, err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && file_write_all(fd, text, strlen(text)) == 0 && fsync(fd) == 0;
    int status = good ? 0 : err_set(e, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return status;
}

/* Under the lock, of which `lock` is the descriptor: replaces a name's record, and sets its link. */
static int write_record(const registry *r, int lock, const char *name, const adapter_record *record, err *e)
{
    char *path = record_path(r, name), *next = path_join(r->versions, ".next");
    json_t *o = adapter_record_to_json(record, true);
    char *text = json_dumps(o, JSON_COMPACT);
    int status = text ? write_synced(next, text, e) : err_set(e, "what is said of \"%s\" is not UTF-8", name);
    if (status == 0 && (rename(next, path) || fsync(lock)))
        status = err_set(e, "%s: %s", path, strerror(errno));
    free(text);
    json_decref(o);
    free(next);
    free(path);
    return status ? status : set_link(r, name, record, e);
}

static bool is_linked(const registry *r, const char *name, const adapter_record *record)
{
    char *path = path_join(r->names, name), to[ADAPTER_ID + 4];
    ssize_t n = readlink(path, to, sizeof to - 1);
    free(path);
    if (n < 3)
        return false;
    to[n] = 0;
    return strcmp(to + 3, record->version[record->current].id) == 0;
}

/* Under the lock: corrects links that differ from their records. */
static void repair(const registry *r)
{
    int n;
    char **name = registry_list(r, &n);
    err e;
    for (int i = 0; i < n; i++) {
        adapter_record record;
        int status = registry_read(r, name[i], &record, &e);
        if (status == 0 && !is_linked(r, name[i], &record))
            status = set_link(r, name[i], &record, &e);
        if (status)
            log_warn("adapter %s: %s", name[i], e.msg);
        else
            adapter_record_deinit(&record);
        free(name[i]);
    }
    free(name);
    DIR *d = opendir(r->names);
    for (const struct dirent *f; d && (f = readdir(d));) {
        char *path = f->d_name[0] == '.' ? NULL : record_path(r, f->d_name);
        if (path && !file_exists(path) && set_link(r, f->d_name, NULL, &e))
            log_warn("adapter %s: %s", f->d_name, e.msg);
        free(path);
    }
    if (d)
        closedir(d);
}

static void add_ids(map *ids, const registry *r, const char *name)
{
    adapter_record record;
    err e;
    if (registry_read(r, name, &record, &e)) {
        log_warn("adapter %s: %s", name, e.msg);
        return;
    }
    for (size_t i = 0; i < record.n; i++)
        map_put(ids, record.version[i].id, strlen(record.version[i].id), 1);
    adapter_record_deinit(&record);
}

/* Returns the ids of all versions of all names: what the cache must keep. */
static map *named_ids(void *ctx)
{
    const registry *r = ctx;
    int n;
    char **name = registry_list(r, &n);
    map *ids = map_new((size_t)n * RECORD_VERSIONS + 1);
    for (int i = 0; i < n; i++) {
        add_ids(ids, r, name[i]);
        free(name[i]);
    }
    free(name);
    return ids;
}

registry *registry_open(const char *dir, disk_cache *c, err *e)
{
    registry *r = XNEW(registry);
    *r = (registry){
        .dir = xstrdup(dir), .names = registry_names_dir(dir), .versions = path_join(dir, "versions"), .cache = c};
    const char *const made[] = {r->names, r->versions};
    int lock = -1;
    bool good = true;
    for (int i = 0; i < 2 && good; i++)
        if (mkdir(made[i], 0700) && errno != EEXIST) {
            err_set(e, "cannot make %s: %s", made[i], strerror(errno));
            good = false;
        }
    if (good)
        lock = lock_registry(r, e);
    if (lock < 0) {
        registry_close(r);
        return NULL;
    }
    repair(r);
    close(lock);
    disk_cache_set_keeper(c, named_ids, r);
    return r;
}

void registry_close(registry *r)
{
    if (!r)
        return;
    disk_cache_set_keeper(r->cache, NULL, NULL);
    free(r->dir);
    free(r->names);
    free(r->versions);
    free(r);
}

int registry_add(registry *r, const char *name, const adapter_version *v, bool replace, err *e)
{
    adapter_record record = {0};
    if (adapter_name_check(name, e))
        return -1;
    int lock = lock_registry(r, e);
    if (lock < 0)
        return -1;
    char *path = record_path(r, name);
    int status = 0;
    if (file_exists(path))
        status = replace ? registry_read(r, name, &record, e) : err_set(e, "there is an adapter \"%s\" already", name);
    if (status == 0) {
        adapter_record_add(&record, v);
        status = write_record(r, lock, name, &record, e);
    }
    adapter_record_deinit(&record);
    free(path);
    close(lock);
    return status;
}

int registry_rollback(registry *r, const char *name, int number, err *e)
{
    adapter_record record = {0};
    int lock = lock_registry(r, e);
    if (lock < 0)
        return -1;
    int status = registry_read(r, name, &record, e);
    if (status == 0 && (status = adapter_record_rollback(&record, number, e)))
        err_wrap(e, "adapter %s", name);
    if (status == 0)
        status = write_record(r, lock, name, &record, e);
    adapter_record_deinit(&record);
    close(lock);
    return status;
}

int registry_remove(registry *r, const char *name, err *e)
{
    adapter_record record;
    int lock = lock_registry(r, e);
    if (lock < 0)
        return -1;
    int status = registry_read(r, name, &record, e);
    if (status == 0) {
        char *path = record_path(r, name);
        adapter_record_deinit(&record);
        if (unlink(path) || fsync(lock))
            status = err_set(e, "%s: %s", path, strerror(errno));
        free(path);
    }
    if (status == 0)
        status = set_link(r, name, NULL, e);
    close(lock);
    return status;
}

char **registry_list(const registry *r, int *n)
{
    char **name = NULL;
    size_t count = 0, cap = 0;
    DIR *d = opendir(r->versions);
    for (const struct dirent *f; d && (f = readdir(d));) {
        size_t len = strlen(f->d_name), end = strlen(".json");
        if (f->d_name[0] == '.' || len <= end || strcmp(f->d_name + len - end, ".json") != 0)
            continue;
        name = xgrow(name, &cap, count + 1, sizeof *name);
        name[count++] = xstrndup(f->d_name, len - end);
    }
    if (d)
        closedir(d);
    if (count)
        qsort(name, count, sizeof *name, sort_by_text);
    *n = (int)count;
    return name;
}
