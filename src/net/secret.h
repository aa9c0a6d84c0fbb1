/* secret.h - where the cluster's shared secret is read from
 *
 * From a file with one line, or two: then we use the first and accept both, so that a secret can be changed without
 * stopping anything (docs/OPERATIONS.md). Or from the environment, PUNICA_SECRET. A secret that is weak, or in a file
 * that others can read, is refused. */
#ifndef PUNICA_NET_SECRET_H
#define PUNICA_NET_SECRET_H

#include <stdbool.h>

#include "base/err.h"

#define MAX_SECRETS 2

/* Removes PUNICA_SECRET from the environment, also from /proc/PID/environ, and keeps it for secrets_read(). So
 * processes that this one starts do not get it. To be called before anything else. */
void secret_hide_environment(void);
bool secret_was_in_environment(void);

/* Reads the secrets of file, or of the environment if file is NULL; NULL behind the last, owned by the caller. -1 with
 * e set: there is none, one is too easy to guess, or the file can be read by others than its owner and group, or
 * written by others than its owner. */
int secrets_read(const char *file, char *secret[MAX_SECRETS], err *e);

/* Checks that a secret is hard to guess, as far as can be seen: at least 16 characters, and no simple pattern. from:
 * where it comes from, for e. */
int secret_check(const char *secret, const char *from, err *e);

#endif
