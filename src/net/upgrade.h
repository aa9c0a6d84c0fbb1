/* upgrade.h - the opening handshake of a WebSocket, over HTTP/1.1 (RFC 6455, section 4)
 *
 * Text only, no sockets. Small and strict: our own peers write exactly what is expected, and anything else is refused
 * with a reason. */
#ifndef PUNICA_NET_UPGRADE_H
#define PUNICA_NET_UPGRADE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define UPGRADE_MAX_HEAD 4096 /* bytes of a request or response at most */
#define UPGRADE_KEY_BYTES 16
#define UPGRADE_KEY_SIZE 25 /* these in base64, and a NUL */
#define UPGRADE_ACCEPT_SIZE 29

/* Returns the length of the head, empty line included; 0: more must come; -1 with e set: it does not begin as a request
 * or a response, or is too long. */
int upgrade_head_length(const char *data, size_t n, err *e);

/* Connecting side: make a key of random bytes, write the request with it, and check the response's head. */
void upgrade_make_key(char key[UPGRADE_KEY_SIZE], const uint8_t random[UPGRADE_KEY_BYTES]);
void upgrade_write_request(buf *out, const char *host, const char *key);
int upgrade_check_response(const char *head, size_t n, const char *key, err *e);

/* Listening side: read the key in a request's head, and write the response to it, or a refusal. */
int upgrade_read_request(const char *head, size_t n, char key[UPGRADE_KEY_SIZE], err *e);
void upgrade_write_response(buf *out, const char *key);
void upgrade_write_refusal(buf *out, const char *why);

#endif
