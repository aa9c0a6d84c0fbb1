/* unpack.c - see unpack.h; libarchive reads the formats, in two passes: where the adapter is, then its files */
#include "registry/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "registry/adapter_files.h"

enum { MAX_ENTRIES = 10000, READ_BYTES = 1 << 16 };

typedef struct {
    struct archive *in;
    const unpack_limits *limits;
    size_t bytes; /* unpacked so far, all entries together */
    int n_entries;
} unpacking;

bool unpack_is_archive(const char *name)
{
    static const char *const ends[] = {".tar", ".tar.gz", ".tgz", ".zip"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcasecmp(name + n - k, ends[i]) == 0)
            return true;
    }
    return false;
}

static int open_archive(unpacking *r, const char *path, const unpack_limits *l, err *e)
{
    *r = (unpacking){.in = archive_read_new(), .limits = l};
    CHECK(r->in);
    archive_read_support_format_tar(r->in);
    archive_read_support_format_zip(r->in);
    archive_read_support_filter_gzip(r->in);
    if (archive_read_open_filename(r->in, path, READ_BYTES) == ARCHIVE_OK)
        return 0;
    err_set(e, "the archive cannot be read: %s", archive_error_string(r->in));
    archive_read_free(r->in);
    return -1;
}

static int check_limits(const unpacking *r, err *e)
{
    const unpack_limits *l = r->limits;
    if (r->bytes > l->max_bytes)
        return err_set(e, "the archive unpacks to more than the %zu bytes that are accepted", l->max_bytes);
    if (r->n_entries > MAX_ENTRIES)
        return err_set(e, "the archive has more than %d entries", MAX_ENTRIES);
    if (l->stop && atomic_load(l->stop))
        return err_set(e, "stopped");
    if (clock_now() > l->deadline)
        return err_set(e, "the time allowed for it was over while the archive was unpacked");
    return 0;
}

/* Returns whether a path stays in the archive: relative, and nowhere "..". */
static bool stays_inside(const char *path)
{
    if (*path == '/')
        return false;
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, "..", 2) == 0 && (!p[2] || p[2] == '/'))
            return false;
    }
    return true;
}

/* Reads the next entry and its path, "" if its name cannot be read, without "./". 1; 0: no more; -1 with e set. */
static int next_entry(unpacking *r, struct archive_entry **entry, const char **path, err *e)
{
    int status = archive_read_next_header(r->in, entry);
    if (status == ARCHIVE_EOF)
        return 0;
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
        return err_set(e, "the archive is broken: %s", archive_error_string(r->in));
    r->n_entries++;
    const char *name = archive_entry_pathname(*entry);
    name = name ? name : "";
    if (!stays_inside(name))
        return err_set(e, "the archive has \"%.200s\", a path that leads out of it", name);
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    *path = name;
    return check_limits(r, e) ? -1 : 1;
}

/* Reads an entry's content, into fd unless that is -1. limit: bytes of this entry, if it is written. */
static int read_content(unpacking *r, int fd, size_t limit, err *e)
{
    const void *block;
    size_t n, written = 0;
    la_int64_t at;
    int status;
    while ((status = archive_read_data_block(r->in, &block, &n, &at)) == ARCHIVE_OK) {
        r->bytes += n;
        if (check_limits(r, e))
            return -1;
        if (fd < 0)
            continue;
        if ((size_t)at != written)
            return err_set(e, "it is stored with holes");
        if (n > limit - written)
            return err_set(e, "it is larger than the %zu bytes that are accepted", limit);
        if (disk_cache_write(r->limits->cache, fd, block, n, e))
            return err_wrap(e, "cannot write it");
        written += n;
    }
    return status == ARCHIVE_EOF ? 0 : err_set(e, "the archive is broken: %s", archive_error_string(r->in));
}

static int depth_of(const char *path)
{
    int n = 0;
    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* Notes the folder of an adapter's configuration if none is known that is less deep. *again: there are two as deep. */
static void note_folder(char **folder, bool *again, const char *path)
{
    const char *config = adapter_file_name[FILE_CONFIG];
    size_t n = strlen(path), k = strlen(config);
    if (n < k || strcmp(path + n - k, config) != 0 || (n > k && path[n - k - 1] != '/'))
        return;
    int depth = depth_of(path), known = *folder ? depth_of(*folder) : depth + 1;
    if (depth > known)
        return;
    *again = depth == known;
    free(*folder);
    *folder = xstrndup(path, n - k);
}

/* Returns the folder of the archive that the adapter is in, with its slash, or "". Owned by the caller; NULL with e set
 * on failure. */
static char *find_folder(const char *archive, const unpack_limits *l, err *e)
{
    unpacking r;
    struct archive_entry *entry;
    const char *path;
    char *folder = NULL;
    bool again = false;
    int more = -1;
    if (open_archive(&r, archive, l, e))
        return NULL;
    while ((more = next_entry(&r, &entry, &path, e)) > 0) {
        note_folder(&folder, &again, path);
        if (read_content(&r, -1, 0, e)) {
            more = -1;
            break;
        }
    }
    archive_read_free(r.in);
    if (more == 0 && !folder)
        err_set(e, "the archive has no %s", adapter_file_name[FILE_CONFIG]);
    else if (more == 0 && again)
        err_set(e, "the archive has more than one adapter: \"%s\" is only one of them", *folder ? folder : ".");
    else if (more == 0)
        return folder;
    free(folder);
    return NULL;
}

/* Writes one of the adapter's files. */
static int write_file(unpacking *r, struct archive_entry *entry, int file, const char *dir, err *e)
{
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
        return err_set(e, "the archive's %s is not a plain file", adapter_file_name[file]);
    char *path = path_join(dir, adapter_file_name[file]);
    int status = adapter_file_make_folder(path, e), fd = -1;
    if (status == 0 && (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
        status = errno == EEXIST ? err_set(e, "the archive has it twice") : err_set_local(e, "%s", strerror(errno));
    if (status == 0)
        status = read_content(r, fd, adapter_file_limit(file, r->limits->max_bytes), e);
    if (fd >= 0 && close(fd) && status == 0)
        status = err_set_local(e, "%s", strerror(errno));
    if (status)
        err_wrap(e, "%s", adapter_file_name[file]);
    free(path);
    return status;
}

int unpack_adapter(const char *archive, const char *dir, const unpack_limits *l, err *e)
{
    unpacking r;
    struct archive_entry *entry;
    const char *path;
    char *folder = find_folder(archive, l, e);
    int more = -1;
    if (!folder)
        return -1;
    size_t n = strlen(folder);
    if (open_archive(&r, archive, l, e) == 0) {
        while ((more = next_entry(&r, &entry, &path, e)) > 0) {
            int file = strncmp(path, folder, n) == 0 ? adapter_file_find(path + n) : -1;
            if (file >= 0 ? write_file(&r, entry, file, dir, e) : read_content(&r, -1, 0, e)) {
                more = -1;
                break;
            }
        }
        archive_read_free(r.in);
    }
    free(folder);
    return more;
}
