/* proof.h - showing that one knows the cluster's secret without saying it
 *
 * HMAC-SHA256 with the secret as key, over which side speaks and both Hellos as they crossed the wire. A Hello has a
 * fresh nonce, so a proof is good for one connection; since the side is in it, it cannot be sent back; since all of
 * both Hellos is in it, nobody in between can have changed version, role or name. */
#ifndef PUNICA_NET_PROOF_H
#define PUNICA_NET_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define PROOF_NONCE_BYTES 32
#define PROOF_BYTES 32

typedef enum { SIDE_CONNECTING, SIDE_LISTENING } proof_side;

/* hello[side]: the packed Hello of that side. */
void proof_make_key(const char *secret, proof_side speaker, const buf hello[2],
                    uint8_t key[PROOF_BYTES]); /* of its messages: seal.h */
void proof_make(const char *secret, proof_side speaker, const buf hello[2], uint8_t mac[PROOF_BYTES]);

/* Takes the same time wherever the first difference is. */
bool proof_is_right(const char *secret, proof_side speaker, const buf hello[2], const uint8_t *mac, size_t n);

#endif
