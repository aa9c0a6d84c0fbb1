/* digest.h - SHA-256: what a thing is, by its content */
#ifndef PUNICA_BASE_DIGEST_H
#define PUNICA_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX = 2 * DIGEST_BYTES + 1 };

typedef struct { unsigned char byte[DIGEST_BYTES]; } digest;

/* Of n parts, one behind the other. */
typedef struct {
    const void *data;
    size_t size;
} digest_part;
void digest_of_parts(digest *d, const digest_part *part, int n);

/* Of n regular files, one behind the other, as `cat FILE... | sha256sum` gives it; read a piece at a time, since they
 * may be large. */
typedef struct digest_reader digest_reader;
digest_reader *digest_reader_new(const char *const *path, int n);
void digest_reader_free(digest_reader *r);

/* Read at most so many bytes more. 1: there are more to come; 0: that was all, and *d is their digest; -1: they cannot
 * be read. */
int digest_reader_go_on(digest_reader *r, size_t most, digest *d, err *e);

void digest_to_hex(const digest *d, char hex[DIGEST_HEX]);
int digest_from_hex(digest *d, const char *hex); /* -1: it is none */

#endif
