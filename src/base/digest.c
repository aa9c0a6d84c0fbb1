/* digest.c - see digest.h */
#include "base/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { PIECE = 1 << 20 };       /* bytes read at a time */

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
    EVP_MD_CTX_free(c);
}

void digest_of_parts(digest *d, const digest_part *part, int n)
{
    EVP_MD_CTX *c = begin();
    for (int i = 0; i < n; i++)
        CHECK(EVP_DigestUpdate(c, part[i].data, part[i].size));
    finish(c, d);
}

static int add_file(EVP_MD_CTX *c, const char *path, char *piece, err *e)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_set(e, "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(piece, 1, PIECE, f)) > 0;)
        CHECK(EVP_DigestUpdate(c, piece, n));
    int status = ferror(f) ? err_set(e, "%s: %s", path, strerror(errno)) : 0;
    fclose(f);
    return status;
}

int digest_of_files(digest *d, const char *const *path, int n, err *e)
{
    EVP_MD_CTX *c = begin();
    char *piece = xmalloc(PIECE);
    int status = 0;
    for (int i = 0; i < n && status == 0; i++)
        status = add_file(c, path[i], piece, e);
    free(piece);
    finish(c, d);
    return status;
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
        d->byte[i] = (unsigned char)((strchr(digits, hex[2 * i]) - digits) << 4 | (strchr(digits, hex[2 * i + 1]) - digits));
    return 0;
}
