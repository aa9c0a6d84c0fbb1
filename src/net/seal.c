/* seal.c - see seal.h */
#include "net/seal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct seal {
    EVP_MAC_CTX *mac; /* has the key */
    uint64_t n_made;  /* the next message's sequence number */
};

seal *seal_new(const uint8_t *key, size_t n)
{
    OSSL_PARAM how[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
                        OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    seal *s = XNEW(seal);
    s->mac = EVP_MAC_CTX_new(hmac);
    CHECK(s->mac && EVP_MAC_init(s->mac, key, n, how));
    EVP_MAC_free(hmac);
    return s;
}

void seal_free(seal *s)
{
    if (!s)
        return;
    EVP_MAC_CTX_free(s->mac);
    free(s);
}

void seal_make(seal *s, const void *message, size_t n, uint8_t mac[SEAL_BYTES])
{
    uint8_t number[8], whole[EVP_MAX_MD_SIZE];
    size_t size;
    for (int i = 0; i < 8; i++)
        number[i] = (uint8_t)(s->n_made >> 8 * i);
    s->n_made++;
    CHECK(EVP_MAC_init(s->mac, NULL, 0, NULL) && EVP_MAC_update(s->mac, number, sizeof number) &&
          EVP_MAC_update(s->mac, message, n) && EVP_MAC_final(s->mac, whole, &size, sizeof whole) &&
          size >= SEAL_BYTES);
    memcpy(mac, whole, SEAL_BYTES);
}
