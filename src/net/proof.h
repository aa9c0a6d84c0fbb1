/* proof.h - proof that a peer knows the cluster's secret, without revealing it (challenge-response)
 *
 * HMAC-SHA256 with the secret as key, over which side speaks and both Hellos as they crossed the wire. A Hello has a
 * fresh nonce, so a proof is valid for one connection only (no replay); it names the side, so it cannot be sent back
 * (no reflection); it covers both Hellos whole, so nobody in between can have changed version, role or name. */
#ifndef PUNICA_NET_PROOF_H
#define PUNICA_NET_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define PROOF_NONCE_BYTES 32
#define PROOF_BYTES 32

typedef enum { SIDE_CONNECTING, SIDE_LISTENING } proof_side;

/* Make a proof, and the key for the seals of the speaker's messages (seal.h). hello[side]: that side's packed Hello. */
void proof_make_key(const char *secret, proof_side speaker, const buf hello[2], uint8_t key[PROOF_BYTES]);
void proof_make(const char *secret, proof_side speaker, const buf hello[2], uint8_t mac[PROOF_BYTES]);

/* Returns whether mac, of n bytes, is the speaker's proof. Compares in constant time. */
bool proof_is_right(const char *secret, proof_side speaker, const buf hello[2], const uint8_t *mac, size_t n);

#endif
