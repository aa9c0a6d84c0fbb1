/* file.h - whole files: read into memory, or mapped */
#ifndef PUNICA_BASE_FILE_H
#define PUNICA_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"

/* A read-only mapping. size 0 has data NULL. */
typedef struct {
    const unsigned char *data;
    size_t size;
} file_map;

int file_map_open(file_map *m, const char *path, err *e);
void file_map_close(file_map *m);

/* A mapped file that is cut off behind our back is SIGBUS for whoever reads on: from now on that ends the process with
 * one line that names the file, and exit code 2. */
void file_map_guard(void);

/* A descriptor for reading, owned by the caller, and the size; -1 for whatever is no regular file: a FIFO keeps nobody
 * waiting, and no device is read without end. */
int file_open_regular(const char *path, size_t *size, err *e);

/* A file's bytes in memory of their own, on a 64-byte boundary: whatever happens to the file later. Free with free().
 * NULL with e set when it is larger than max_size, does not fit into memory, or is cut off while it is read. */
unsigned char *file_load(const char *path, size_t max_size, size_t *size, err *e);

/* Append the whole file to out; refuses more than max_size bytes. */
int file_read(buf *out, const char *path, size_t max_size, err *e);

/* What tells whether a file is still the same; to be compared as bytes. All zero: there is none. */
typedef struct {
    uint64_t device, inode, size;
    struct timespec modified, changed;
} file_stamp;
file_stamp file_stamp_of(const char *path);

/* Room for all of a file as file_load() makes it, of which only the first n bytes are read; the others are not touched.
 */
unsigned char *file_load_head(const char *path, size_t n, size_t max_size, size_t *size, err *e);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Where a path leads when all links are followed, owned by the caller; NULL: nowhere. */
char *path_resolve(const char *path);

char *path_join(const char *dir, const char *name); /* owned by the caller */

/* The same for a name that a stranger gave: NULL where it would lead out of dir, or to a hidden file. */
char *path_child(const char *dir, const char *name);

#endif
