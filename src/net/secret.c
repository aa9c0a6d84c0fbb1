/* secret.c - see secret.h */
#include "net/secret.h"

#include <math.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { MIN_LENGTH = 16, MAX_FILE = 4096 };
static const double MIN_BITS = 40;
#define MAKE_ONE "make one with: openssl rand -hex 32"

static char *of_environment; /* owned; NULL: there was none */

void secret_hide_environment(void)
{
    char *value = getenv("PUNICA_SECRET");
    if (!value)
        return;
    free(of_environment);
    of_environment = xstrdup(value);
    OPENSSL_cleanse(value, strlen(value)); /* this memory is what /proc/PID/environ shows */
    unsetenv("PUNICA_SECRET");
}

bool secret_was_in_environment(void)
{
    return of_environment;
}

/* Returns the Shannon entropy of n bytes, in bits, by the frequencies they have. */
static double bits_of(const unsigned char *value, size_t n)
{
    size_t count[256] = {0};
    double bits = 0;
    for (size_t i = 0; i < n; i++)
        count[value[i]]++;
    for (int v = 0; v < 256; v++)
        if (count[v])
            bits += (double)count[v] * log2((double)n / (double)count[v]);
    return bits;
}

/* Returns the entropy of the characters, or of the differences between neighbours if that is less: in "abcdefgh" these
 * are all the same. */
static double guess_bits(const char *secret)
{
    size_t n = strlen(secret);
    unsigned char *step = xmalloc(n + 1);
    for (size_t i = 1; i < n; i++)
        step[i - 1] = (unsigned char)(secret[i] - secret[i - 1]);
    double bits = bits_of((const unsigned char *)secret, n), of_steps = bits_of(step, n - 1);
    OPENSSL_cleanse(step, n);
    free(step);
    return of_steps < bits ? of_steps : bits;
}

int secret_check(const char *secret, const char *from, err *e)
{
    if (strlen(secret) < MIN_LENGTH)
        return err_set(e, "the secret of %s is shorter than %d characters; " MAKE_ONE, from, MIN_LENGTH);
    if (guess_bits(secret) < MIN_BITS)
        return err_set(e, "the secret of %s is too easy to guess; " MAKE_ONE, from);
    return 0;
}

static int check_mode(const char *file, err *e)
{
    struct stat is;
    if (stat(file, &is) == 0 && is.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
        return err_set(e,
                       "the secret in %s lies open: others may read or change it (mode %03o); chmod 600 it, and if "
                       "they are not to be "
                       "trusted " MAKE_ONE,
                       file, (unsigned)is.st_mode & 0777);
    return 0;
}

/* Splits text into its lines that are not empty, and checks each. */
static int split(char *text, const char *from, char *secret[MAX_SECRETS], err *e)
{
    char *rest = NULL;
    int n = 0, status = 0;
    for (char *line = strtok_r(text, "\r\n", &rest); line && status == 0; line = strtok_r(NULL, "\r\n", &rest)) {
        if (n == MAX_SECRETS)
            status = err_set(e, "%s has more than %d lines: the secret, and below it the one it is changed from or to",
                             from, MAX_SECRETS);
        else if ((status = secret_check(line, from, e)) == 0)
            secret[n++] = xstrdup(line);
    }
    return status || n ? status : secret_check("", from, e);
}

int secrets_read(const char *file, char *secret[MAX_SECRETS], err *e)
{
    buf text = {0};
    memset(secret, 0, MAX_SECRETS * sizeof *secret);
    if (!file && !of_environment)
        return err_set(e, "the cluster's secret is needed: --secret-file FILE, or environment PUNICA_SECRET");
    if (file && (check_mode(file, e) || file_read(&text, file, MAX_FILE, e)))
        return -1;
    buf_add_str(&text, file ? "" : of_environment);
    int status = split(text.data, file ? file : "environment PUNICA_SECRET", secret, e);
    OPENSSL_cleanse(text.data, text.len);
    buf_free(&text);
    for (int i = 0; status && i < MAX_SECRETS; i++) {
        free(secret[i]);
        secret[i] = NULL;
    }
    return status;
}
