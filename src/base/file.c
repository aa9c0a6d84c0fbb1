/* file.c - see file.h */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* A descriptor of a regular file and its size, or -1. */
static int open_regular(const char *path, size_t *size, err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);     /* a FIFO must not keep us waiting */
    if (fd < 0)
        return err_set(e, "cannot open %s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = (size_t)st.st_size;
        return fd;
    }
    close(fd);
    return err_set(e, "%s is not a regular file", path);
}

int file_map_open(file_map *m, const char *path, err *e)
{
    *m = (file_map){0};
    size_t size;
    int fd = open_regular(path, &size, e);
    if (fd < 0)
        return -1;
    void *p = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    int saved = errno;
    close(fd);
    if (p == MAP_FAILED)
        return err_set(e, "cannot map %s: %s", path, strerror(saved));
    *m = (file_map){.data = p, .size = size};
    return 0;
}

void file_map_close(file_map *m)
{
    if (m->data)
        munmap((void *)m->data, m->size);
    *m = (file_map){0};
}

int file_read(buf *out, const char *path, size_t max_size, err *e)
{
    size_t size;
    int fd = open_regular(path, &size, e);
    if (fd < 0)
        return -1;
    if (size > max_size) {
        close(fd);
        return err_set(e, "%s is %zu bytes; at most %zu are accepted", path, size, max_size);
    }
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0)
        buf_add(out, chunk, (size_t)n);
    int saved = errno;
    close(fd);
    return n < 0 ? err_set(e, "cannot read %s: %s", path, strerror(saved)) : 0;
}

file_stamp file_stamp_of(const char *path)
{
    struct stat st;
    file_stamp is;
    memset(&is, 0, sizeof is);
    if (stat(path, &st) == 0)
        is = (file_stamp){.device = st.st_dev, .inode = st.st_ino, .size = (uint64_t)st.st_size, .modified = st.st_mtim, .changed = st.st_ctim};
    return is;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return xasprintf("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

char *path_child(const char *dir, const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') ? path_join(dir, name) : NULL;
}
