/* api_keys.h - who may ask: clients that show one of a few keys
 *
 * Only digests are kept, and all are compared whatever the first is, so that neither memory nor time tells a key. */
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

/* What the request shows as its key; NULL: nothing. */
const char *api_key_shown(const http_head *h);

/* Whether the request shows one, as "Authorization: Bearer KEY" or "x-api-key: KEY". */
bool api_keys_open(const api_keys *k, const http_head *h);

#endif
