/* file.c - see file.h */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

int file_open_regular(const char *path, size_t *size, err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not block */
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

/* Mapped files, for the signal handler, which may only read plain memory. It does not name files mapped beyond
 * MAX_GUARDED. */
enum { MAX_GUARDED = 1024 };
static struct {
    const unsigned char *data;
    size_t size;
    char path[512];
} guarded[MAX_GUARDED];
static pthread_mutex_t guarded_lock = PTHREAD_MUTEX_INITIALIZER;

/* Enters a mapping in a free place, or removes it (path NULL). */
static void set_guarded(const file_map *m, const char *path)
{
    const unsigned char *wanted = path ? NULL : m->data;
    int i = 0;
    pthread_mutex_lock(&guarded_lock);
    while (i < MAX_GUARDED && guarded[i].data != wanted)
        i++;
    if (i < MAX_GUARDED) {
        snprintf(guarded[i].path, sizeof guarded[i].path, "%s", path ? path : "");
        guarded[i].size = m->size;
        guarded[i].data = path ? m->data : NULL;
    }
    pthread_mutex_unlock(&guarded_lock);
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* there is nowhere else to report to */
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    const unsigned char *at = info->si_addr;
    const char *path = "a file";
    for (int i = 0; i < MAX_GUARDED; i++)
        if (guarded[i].data && at >= guarded[i].data && at < guarded[i].data + guarded[i].size)
            path = guarded[i].path;
    say("punica: ");
    say(path);
    say(" was cut off while it was in use; put it back whole\n");
    _exit(2);
}

void file_map_guard(void)
{
    struct sigaction on = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &on, NULL);
}

int file_map_open(file_map *m, const char *path, err *e)
{
    *m = (file_map){0};
    size_t size;
    int fd = file_open_regular(path, &size, e);
    if (fd < 0)
        return -1;
    void *p = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    int saved = errno;
    close(fd);
    if (p == MAP_FAILED)
        return err_set(e, "cannot map %s: %s", path, strerror(saved));
    *m = (file_map){.data = p, .size = size};
    if (p)
        set_guarded(m, path);
    return 0;
}

void file_map_close(file_map *m)
{
    if (m->data) {
        set_guarded(m, NULL);
        munmap((void *)m->data, m->size);
    }
    *m = (file_map){0};
}

/* Reads size bytes. On -1 errno is set, or 0 when the file ended early. */
static int read_all(int fd, unsigned char *to, size_t size)
{
    errno = 0;
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, to + done, size - done);
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

unsigned char *file_load_head(const char *path, size_t n, size_t max_size, size_t *size, err *e)
{
    int fd = file_open_regular(path, size, e);
    if (fd < 0)
        return NULL;
    unsigned char *data = *size > max_size ? NULL : n < *size ? malloc(*size + 1) : mem_alloc_block(*size + 1);
    if (*size > max_size)
        err_set(e, "%s is %zu bytes; at most %zu are accepted", path, *size, max_size);
    else if (!data)
        err_set(e, "%s: there is no memory for its %zu bytes", path, *size);
    else if (read_all(fd, data, n < *size ? n : *size)) {
        err_set(e, "cannot read %s: %s", path, errno ? strerror(errno) : "it was cut off meanwhile");
        free(data);
        data = NULL;
    }
    close(fd);
    return data;
}

unsigned char *file_load(const char *path, size_t max_size, size_t *size, err *e)
{
    return file_load_head(path, SIZE_MAX, max_size, size, e);
}

int file_read(buf *out, const char *path, size_t max_size, err *e)
{
    size_t size;
    int fd = file_open_regular(path, &size, e);
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

int file_write_all(int fd, const void *bytes, size_t n)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t done = write(fd, from, n);
        if (done < 0 && errno != EINTR)
            return -1;
        if (done > 0) {
            from += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

file_stamp file_stamp_of(const char *path)
{
    struct stat st;
    file_stamp is;
    memset(&is, 0, sizeof is);
    if (stat(path, &st) == 0)
        is = (file_stamp){.device = st.st_dev,
                          .inode = st.st_ino,
                          .size = (uint64_t)st.st_size,
                          .modified = st.st_mtim,
                          .changed = st.st_ctim};
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

char *path_resolve(const char *path)
{
    return realpath(path, NULL);
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
