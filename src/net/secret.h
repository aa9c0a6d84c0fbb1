/* secret.h - the cluster's shared secret, as people give it
 *
 * A file with one line, or two: then the first is shown to others and both are believed, so that a secret can be
 * changed without stopping anything (docs/OPERATIONS.md). Or the environment, PUNICA_SECRET. What is weak, or lies
 * open, is refused. */
#ifndef PUNICA_NET_SECRET_H
#define PUNICA_NET_SECRET_H

#include <stdbool.h>

#include "base/err.h"

#define MAX_SECRETS 2

/* Take PUNICA_SECRET out of the environment, also out of what /proc shows of it: neither this process nor one it starts
 * has it there any more. To be called first of all; secrets_read() knows it. */
void secret_hide_environment(void);
bool secret_was_in_environment(void);

/* The secrets of file, or if that is NULL the one of the environment; NULL behind the last, owned by the caller. -1
 * with e set: there is none, it is too easy to guess, or others than the file's owner and group may read the file. */
int secrets_read(const char *file, char *secret[MAX_SECRETS], err *e);

/* Whether nobody will guess it, as far as can be seen: 16 characters, and not of a simple pattern. from: whose, for e.
 */
int secret_check(const char *secret, const char *from, err *e);

#endif
