/* api_keys.c - see api_keys.h */
#include "frontend/api_keys.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static digest digest_of(const char *text)
{
    digest d;
    digest_of_parts(&d, &(digest_part){text, strlen(text)}, 1);
    return d;
}

void api_keys_init(api_keys *k, const char *const *key, int n)
{
    *k = (api_keys){XNEW_ARRAY(digest, (size_t)n + 1), n};
    for (int i = 0; i < n; i++)
        k->key[i] = digest_of(key[i]);
}

void api_keys_deinit(api_keys *k)
{
    free(k->key);
}

const char *api_key_shown(const http_head *h)
{
    const char *bearer = http_field_of(h, "Authorization");
    if (!bearer || strncasecmp(bearer, "Bearer ", 7) != 0)
        return http_field_of(h, "x-api-key");
    return bearer + 7 + strspn(bearer + 7, " ");
}

bool api_keys_open(const api_keys *k, const http_head *h)
{
    const char *key = api_key_shown(h);
    if (k->n == 0 || !key)
        return k->n == 0;
    digest d = digest_of(key);
    bool known = false;
    for (int i = 0; i < k->n; i++)
        known |= CRYPTO_memcmp(&d, &k->key[i], sizeof d) == 0;
    return known;
}
