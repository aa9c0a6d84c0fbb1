/* upgrade.h - the HTTP/1.1 exchange that makes a WebSocket of a connection (RFC 6455, section 4)
 *
 * Text only, no sockets. Small and strict: our own peers write exactly what is asked for, and whatever else comes is
 * refused with a reason. */
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

/* Bytes of the head that ends in an empty line; 0: more must come; -1: it will never be one: it does not begin as a
 * request or as a response, or there are too many bytes already. */
int upgrade_head_length(const char *data, size_t n, err *e);

/* Connecting side: a key of random bytes, the request with it, and the check of the response's head. */
void upgrade_make_key(char key[UPGRADE_KEY_SIZE], const uint8_t random[UPGRADE_KEY_BYTES]);
void upgrade_write_request(buf *out, const char *host, const char *key);
int upgrade_check_response(const char *head, size_t n, const char *key, err *e);

/* Listening side: the key of a request's head, and the response to it, or to what was not accepted. */
int upgrade_read_request(const char *head, size_t n, char key[UPGRADE_KEY_SIZE], err *e);
void upgrade_write_response(buf *out, const char *key);
void upgrade_write_refusal(buf *out, const char *why);

#endif
