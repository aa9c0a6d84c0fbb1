/* api_keys.h - access for clients that show one of a few keys
 *
 * Only digests of keys are kept, and a key is compared with all of them, in constant time: neither memory nor timing
 * reveals a key. */
#ifndef PUNICA_FRONTEND_API_KEYS_H
#define PUNICA_FRONTEND_API_KEYS_H

#include "base/digest.h"
#include "net/http_parser.h"

typedef struct {
    digest *key;
    int n;
} api_keys; /* n 0: everybody may */

void api_keys_init(api_keys *k, const char *const *key, int n);
void api_keys_deinit(api_keys *k);

/* Returns the key that the request shows, as "Authorization: Bearer KEY" or else as "x-api-key: KEY"; NULL: none. An
 * Authorization of another scheme is for a proxy in front of the server. Borrowed from h. */
const char *api_key_shown(const http_head *h);

/* Returns whether the request shows one of the keys, or needs none. */
bool api_keys_open(const api_keys *k, const http_head *h);

#endif
