/* cors.h - which web pages may ask by their visitors' browsers
 *
 * A browser lets a page of another origin see an answer only where the answer says so, and asks before it sends a key.
 */
#ifndef PUNICA_FRONTEND_CORS_H
#define PUNICA_FRONTEND_CORS_H

#include "net/http_server.h"

typedef struct {
    char **origin;
    int n;
} cors; /* "https://HOST[:PORT]", or "*": any; n 0: none */

void cors_init(cors *c, const char *const *origin, int n);
void cors_deinit(cors *c);

/* Add to an answer what its client's page, if it is a known one, needs to see it; and what an OPTIONS asks for. Once an
 * answer. */
void cors_add(const cors *c, http_exchange *x);

#endif
