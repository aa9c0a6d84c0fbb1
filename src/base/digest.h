/* digest.h - SHA-256 digests of memory and of files */
#ifndef PUNICA_BASE_DIGEST_H
#define PUNICA_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX = 2 * DIGEST_BYTES + 1 };

typedef struct { unsigned char byte[DIGEST_BYTES]; } digest;

/* Computes the digest of n parts, one behind the other. */
typedef struct {
    const void *data;
    size_t size;
} digest_part;
void digest_of_parts(digest *d, const digest_part *part, int n);

/* Computes the digest of n regular files, as `cat FILE... | sha256sum` gives it; in pieces, since files may be large.
 * The paths are copied. */
typedef struct digest_reader digest_reader;
digest_reader *digest_reader_new(const char *const *path, int n);
void digest_reader_free(digest_reader *r);

/* Reads at most `most` bytes more. 1: there is more to read; 0: all is read, and *d is the digest; -1: a file cannot be
 * read. */
int digest_reader_go_on(digest_reader *r, size_t most, digest *d, err *e);

void digest_to_hex(const digest *d, char hex[DIGEST_HEX]);
int digest_from_hex(digest *d, const char *hex); /* -1: hex is not 64 lower-case hex digits */

#endif
