/* proof.c - see proof.h */
#include "net/proof.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/err.h"

/* Adds the part behind its length, so that no other pair of Hellos gives the same text. */
static void add_counted(buf *out, const buf *part)
{
    for (int shift = 0; shift < 64; shift += 8)
        buf_add_char(out, (char)((uint64_t)part->len >> shift));
    buf_add(out, part->data, part->len);
}

/* Computes the HMAC of purpose, speaker and both Hellos. */
static void derive(const char *secret, const char *purpose, proof_side speaker, const buf hello[2],
                   uint8_t mac[PROOF_BYTES])
{
    buf text = {0};
    buf_printf(&text, "%s: %s", purpose, speaker == SIDE_CONNECTING ? "connecting" : "listening");
    add_counted(&text, &hello[SIDE_CONNECTING]);
    add_counted(&text, &hello[SIDE_LISTENING]);
    unsigned n = PROOF_BYTES;
    CHECK(HMAC(EVP_sha256(), secret, (int)strlen(secret), (const uint8_t *)text.data, text.len, mac, &n));
    buf_free(&text);
}

void proof_make(const char *secret, proof_side speaker, const buf hello[2], uint8_t mac[PROOF_BYTES])
{
    derive(secret, "punica link", speaker, hello, mac);
}

void proof_make_key(const char *secret, proof_side speaker, const buf hello[2], uint8_t key[PROOF_BYTES])
{
    derive(secret, "punica messages", speaker, hello, key);
}

bool proof_is_right(const char *secret, proof_side speaker, const buf hello[2], const uint8_t *mac, size_t n)
{
    uint8_t expected[PROOF_BYTES];
    proof_make(secret, speaker, hello, expected);
    return n == PROOF_BYTES && CRYPTO_memcmp(mac, expected, PROOF_BYTES) == 0;
}
