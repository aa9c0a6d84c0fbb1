/* file.h - whole files: read into memory, mapped, or written */
#ifndef PUNICA_BASE_FILE_H
#define PUNICA_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"

/* A read-only mapping. data is NULL when size is 0. */
typedef struct {
    const unsigned char *data;
    size_t size;
} file_map;

int file_map_open(file_map *m, const char *path, err *e);
void file_map_close(file_map *m);

/* Installs a handler of SIGBUS, which reading a mapped file raises when it was truncated meanwhile: the process then
 * ends with one line that names the file, and exit code 2. */
void file_map_guard(void);

/* Opens a regular file for reading. Returns a descriptor, owned by the caller, and the size; -1 with e set, also for
 * anything but a regular file: opening a FIFO would block, and a device might never end. */
int file_open_regular(const char *path, size_t *size, err *e);

/* Reads a file into memory on a 64-byte boundary, independent of what happens to the file later. Free with free(). NULL
 * with e set when it is larger than max_size, does not fit into memory, or is truncated while it is read. */
unsigned char *file_load(const char *path, size_t max_size, size_t *size, err *e);

/* Appends the whole file to out. -1 with e set, also when it is larger than max_size. */
int file_read(buf *out, const char *path, size_t max_size, err *e);

/* Writes all n bytes to a descriptor that blocks, however many calls that takes. -1 with errno set. */
int file_write_all(int fd, const void *bytes, size_t n);

/* Identifies a state of a file; to be compared as bytes. All zero: there is no such file. */
typedef struct {
    uint64_t device, inode, size;
    struct timespec modified, changed;
} file_stamp;
file_stamp file_stamp_of(const char *path);

/* As file_load(), but reads only the first n bytes: there is room for the whole file, and the rest of it is left
 * uninitialised. Not aligned to 64 bytes when n is less than the file's size. */
unsigned char *file_load_head(const char *path, size_t n, size_t max_size, size_t *size, err *e);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Resolves all links of a path. Returns the real path, owned by the caller; NULL when there is none. */
char *path_resolve(const char *path);

char *path_join(const char *dir, const char *name); /* owned by the caller */

/* As path_join(), for a name from outside: NULL when it would lead out of dir, or to a hidden file. */
char *path_child(const char *dir, const char *name);

#endif
