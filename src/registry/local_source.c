/* local_source.c - see local_source.h */
#include "registry/local_source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "registry/adapter_files.h"

/* Returns whether a path, which has no links, lies under a folder. */
static bool is_under(const char *path, const char *under)
{
    char *root = path_resolve(under);
    size_t k = root && strcmp(root, "/") != 0 ? strlen(root) : 0;
    bool is = root && strncmp(path, root, k) == 0 && path[k] == '/';
    free(root);
    return is;
}

/* Returns whether an open file lies under a folder: unlike a path's, the answer cannot be changed by others. */
static bool lies_under(int fd, const char *under)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return n > 0 && is_under(path, under);
}

/* Says why a file was not found, but only within the folder that files may be taken from. Returns -1. */
static int tell_missing(const char *path, const char *under, int why, err *e)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup("."), *folder = path_resolve(parent);
    char *inside = folder ? path_join(folder, "x") : NULL;
    bool may = strcmp(under, "/") == 0 || (inside && is_under(inside, under));
    free(inside);
    free(folder);
    free(parent);
    return may ? err_set(e, "cannot open file:%s: %s", path, strerror(why))
               : err_set(e, "file:%s is not in the folder that adapters may be taken from", path);
}

/* Opens a plain file under the folder. -1 with e set; *absent: there is no file of this name. */
static int open_under(const char *path, const char *under, bool *absent, err *e)
{
    struct stat st;
    char *real = path_resolve(path);
    int why = errno, fd = -1;
    *absent = !real && (why == ENOENT || why == ENOTDIR);
    if (!real)
        return tell_missing(path, under, why, e);
    if (!is_under(real, under))
        err_set(e, "file:%s is not in the folder that adapters may be taken from", path);
    else if ((fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)) < 0)
        err_set(e, "cannot open file:%s: %s", path, strerror(errno));
    else if (!lies_under(fd, under))
        err_set(e, "file:%s is not in the folder that adapters may be taken from", path);
    else if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        err_set(e, "file:%s is not a plain file", path);
    else {
        free(real);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    free(real);
    return -1;
}

static int copy_bytes(int from, int to, size_t max_bytes, const disk_cache *cache, err *e)
{
    char piece[1 << 16];
    size_t sum = 0;
    ssize_t n;
    while ((n = read(from, piece, sizeof piece)) > 0) {
        sum += (size_t)n;
        if (sum > max_bytes)
            return err_set(e, "it is larger than the %zu bytes that are accepted", max_bytes);
        if (disk_cache_write(cache, to, piece, (size_t)n, e))
            return err_wrap(e, "cannot write its copy");
    }
    return n < 0 ? err_set(e, "%s", strerror(errno)) : 0;
}

static int copy_file(int from, const char *path, size_t max_bytes, const disk_cache *cache, err *e)
{
    if (adapter_file_make_folder(path, e))
        return -1;
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int status = to < 0 ? err_set_local(e, "%s: %s", path, strerror(errno)) : copy_bytes(from, to, max_bytes, cache, e);
    if (to >= 0 && close(to) && status == 0)
        status = err_set_local(e, "%s: %s", path, strerror(errno));
    return status;
}

/* Copies one of a directory's files; one that is not needed may be missing. */
static int copy_one(const char *from_dir, const char *under, int file, const char *dir, const unpack_limits *l, err *e)
{
    char *from = path_join(from_dir, adapter_file_name[file]), *to = path_join(dir, adapter_file_name[file]);
    bool absent;
    int fd = open_under(from, under, &absent, e), status = -1;
    if (fd >= 0) {
        status = copy_file(fd, to, adapter_file_limit(file, l->max_bytes), l->cache, e);
        if (status)
            err_wrap(e, "file:%s", from);
        close(fd);
    } else if (absent && file >= N_NEEDED) {
        status = 0;
    }
    free(from);
    free(to);
    return status;
}

/* Unpacks the archive through the descriptor that was judged. */
static int unpack_under(const source *s, const char *under, const char *dir, const unpack_limits *l, err *e)
{
    bool absent;
    int fd = open_under(s->url, under, &absent, e);
    if (fd < 0)
        return -1;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int status = unpack_adapter(path, dir, l, e);
    if (status)
        err_wrap(e, "%s", s->shown);
    close(fd);
    return status;
}

int local_source_copy(const source *s, const char *under, const char *dir, const unpack_limits *l, err *e)
{
    if (!under)
        return err_set(e, "%s: adapters are not taken from files of this host", s->shown);
    if (s->is_archive && !file_is_dir(s->url))
        return unpack_under(s, under, dir, l, e);
    int status = 0;
    for (int i = 0; i < N_ADAPTER_FILES && status == 0; i++)
        status = copy_one(s->url, under, i, dir, l, e);
    return status;
}
