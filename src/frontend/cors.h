/* cors.h - which web pages may use the API from their visitors' browsers (CORS)
 *
 * A browser shows a page of another origin an answer only if the answer allows it, and asks (preflight) before it sends
 * a key. */
#ifndef PUNICA_FRONTEND_CORS_H
#define PUNICA_FRONTEND_CORS_H

#include "net/http_server.h"

typedef struct {
    char **origin;
    int n;
} cors; /* "https://HOST[:PORT]", or "*": any; n 0: none */

void cors_init(cors *c, const char *const *origin, int n);
void cors_deinit(cors *c);

/* Adds to an answer the headers without which a known page may not see it, and those that answer a preflight. methods:
 * of the path, for the latter; read for OPTIONS only. To be called once for each answer. */
void cors_add(const cors *c, http_exchange *x, const char *methods);

#endif
