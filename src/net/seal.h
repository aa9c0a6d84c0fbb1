/* seal.h - message authentication: a message comes from the peer, complete, in order, and as it was sent
 *
 * A seal is a MAC (HMAC-SHA256, truncated to 16 bytes) of a message and its sequence number. The key is derived from
 * the secret and both Hellos (proof.h), one for each direction: neither noise nor a man in the middle can change,
 * repeat, drop or reorder messages without the link being lost. */
#ifndef PUNICA_NET_SEAL_H
#define PUNICA_NET_SEAL_H

#include <stddef.h>
#include <stdint.h>

#define SEAL_BYTES 16

typedef struct seal seal;

/* Makes the seals of one direction. The key is copied. */
seal *seal_new(const uint8_t *key, size_t n);
void seal_free(seal *s); /* s may be NULL */

/* Computes the seal of the next message. */
void seal_make(seal *s, const void *message, size_t n, uint8_t mac[SEAL_BYTES]);

#endif
