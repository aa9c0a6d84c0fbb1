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

/* Whether the open file lies under a folder; asked of the file that is open, nobody can change the answer any more. */
static bool lies_under(int fd, const char *under)
{
    char link[64], path[PATH_MAX], root[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0 || !realpath(under, root))
        return false;
    path[n] = 0;
    size_t k = strcmp(root, "/") == 0 ? 0 : strlen(root);
    return strncmp(path, root, k) == 0 && path[k] == '/';
}

/* A plain file under the folder, or -1. *absent: there is none of this name. */
static int open_under(const char *path, const char *under, bool *absent, err *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *absent = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (fd < 0)
        return err_set(e, "cannot open file:%s: %s", path, strerror(errno));
    if (!lies_under(fd, under))
        err_set(e, "file:%s is not in the folder that adapters may be taken from", path);
    else if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        err_set(e, "file:%s is not a plain file", path);
    else
        return fd;
    close(fd);
    return -1;
}

static int copy_bytes(int from, int to, size_t max_bytes, err *e)
{
    char piece[1 << 16];
    size_t sum = 0;
    ssize_t n;
    while ((n = read(from, piece, sizeof piece)) > 0) {
        sum += (size_t)n;
        if (sum > max_bytes)
            return err_set(e, "it is larger than the %zu bytes that are accepted", max_bytes);
        if (write(to, piece, (size_t)n) != n)
            return err_set(e, "cannot write its copy: %s", strerror(errno));
    }
    return n < 0 ? err_set(e, "%s", strerror(errno)) : 0;
}

static int copy_file(int from, const char *path, size_t max_bytes, err *e)
{
    if (adapter_file_make_folder(path, e))
        return -1;
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int status = to < 0 ? err_set(e, "%s: %s", path, strerror(errno)) : copy_bytes(from, to, max_bytes, e);
    if (to >= 0 && close(to) && status == 0)
        status = err_set(e, "%s: %s", path, strerror(errno));
    return status;
}

/* One of a directory's files, if it is there. */
static int copy_one(const char *from_dir, const char *under, int file, const char *dir, const unpack_limits *l, err *e)
{
    char *from = path_join(from_dir, adapter_file_name[file]), *to = path_join(dir, adapter_file_name[file]);
    bool absent;
    int fd = open_under(from, under, &absent, e), status = -1;
    if (fd >= 0) {
        status = copy_file(fd, to, adapter_file_limit(file, l->max_bytes), e);
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

/* The archive is read through the descriptor that was judged. */
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
