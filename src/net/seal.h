/* seal.h - showing that a message comes from the peer, whole, in its place, and as it was sent
 *
 * A seal is a keyed checksum (HMAC-SHA256, cut to 16 bytes) of a message and its number. The key is made of the secret
 * and both Hellos (proof.h), one for each direction: neither noise nor a stranger in between can change, repeat, leave
 * out or exchange messages without the link being lost. */
#ifndef PUNICA_NET_SEAL_H
#define PUNICA_NET_SEAL_H

#include <stddef.h>
#include <stdint.h>

#define SEAL_BYTES 16

typedef struct seal seal;

/* Of one direction. */
seal *seal_new(const uint8_t *key, size_t n);
void seal_free(seal *s); /* s may be NULL */

/* The seal of the next message. */
void seal_make(seal *s, const void *message, size_t n, uint8_t mac[SEAL_BYTES]);

#endif
