/* digest.c - see digest.h */
#include "base/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static EVP_MD_CTX *begin(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    CHECK(c && EVP_DigestInit_ex(c, EVP_sha256(), NULL));
    return c;
}

static void finish(EVP_MD_CTX *c, digest *d)
{
    unsigned n = 0;
    CHECK(EVP_DigestFinal_ex(c, d->byte, &n) && n == DIGEST_BYTES);
}

void digest_of_parts(digest *d, const digest_part *part, int n)
{
    EVP_MD_CTX *c = begin();
    for (int i = 0; i < n; i++)
        CHECK(EVP_DigestUpdate(c, part[i].data, part[i].size));
    finish(c, d);
    EVP_MD_CTX_free(c);
}

struct digest_reader {
    char **path; /* [n] */
    int n, at;   /* at: the file that is being read */
    int fd;      /* of that file; -1: it is not open yet */
    size_t left; /* bytes of that file still to be read */
    EVP_MD_CTX *sum;
};

digest_reader *digest_reader_new(const char *const *path, int n)
{
    digest_reader *r = XNEW(digest_reader);
    *r = (digest_reader){.path = XNEW_ARRAY(char *, (size_t)n), .n = n, .fd = -1, .sum = begin()};
    for (int i = 0; i < n; i++)
        r->path[i] = xstrdup(path[i]);
    return r;
}

static void close_file(digest_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

void digest_reader_free(digest_reader *r)
{
    if (!r)
        return;
    close_file(r);
    for (int i = 0; i < r->n; i++)
        free(r->path[i]);
    free(r->path);
    EVP_MD_CTX_free(r->sum);
    free(r);
}

/* Reads at most `most` bytes of the open file into the digest. Returns how many, or -1. */
static ssize_t add_piece(digest_reader *r, size_t most, err *e)
{
    char piece[65536];
    size_t want = most < sizeof piece ? most : sizeof piece;
    ssize_t n = read(r->fd, piece, want < r->left ? want : r->left);
    if (n <= 0)
        return err_set(e, "cannot read %s: %s", r->path[r->at], n < 0 ? strerror(errno) : "it was cut off meanwhile");
    CHECK(EVP_DigestUpdate(r->sum, piece, (size_t)n));
    r->left -= (size_t)n;
    return n;
}

int digest_reader_go_on(digest_reader *r, size_t most, digest *d, err *e)
{
    while (r->at < r->n) {
        if (r->fd < 0 && (r->fd = file_open_regular(r->path[r->at], &r->left, e)) < 0)
            return -1;
        for (ssize_t n; r->left > 0; most -= (size_t)n) {
            if (most == 0)
                return 1;
            if ((n = add_piece(r, most, e)) < 0)
                return -1;
        }
        close_file(r);
        r->at++;
    }
    finish(r->sum, d);
    return 0;
}

void digest_to_hex(const digest *d, char hex[DIGEST_HEX])
{
    for (int i = 0; i < DIGEST_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", d->byte[i]);
}

int digest_from_hex(digest *d, const char *hex)
{
    static const char digits[] = "0123456789abcdef";
    if (strspn(hex, digits) != DIGEST_HEX - 1 || strlen(hex) != DIGEST_HEX - 1)
        return -1;
    for (int i = 0; i < DIGEST_BYTES; i++)
        d->byte[i] =
            (unsigned char)((strchr(digits, hex[2 * i]) - digits) << 4 | (strchr(digits, hex[2 * i + 1]) - digits));
    return 0;
}
