/* tls.h - TLS settings of links, and of connections of clients; files are PEM */
#ifndef PUNICA_NET_TLS_H
#define PUNICA_NET_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* NULL with e set when a file is missing or bad; e names it. Free with SSL_CTX_free(). */
SSL_CTX *tls_listening(const char *cert, const char *key, const char *ca,
                       err *e); /* ca: whose certificates peers must show; may be NULL */
SSL_CTX *tls_connecting(const char *ca, const char *cert, const char *key,
                        err *e); /* cert and key: our own; may be NULL */

/* For clients of HTTP, which show no certificate. On a socket that does not block, writing again may be from another
 * buffer. */
SSL_CTX *tls_serving(const char *cert, const char *key, err *e);

/* recv() and send() over it: -1 with errno EAGAIN when it has to wait for the socket, whichever way; 0: the peer sends
 * no more. */
ssize_t tls_recv(SSL *s, void *to, size_t n);
ssize_t tls_send(SSL *s, const void *bytes, size_t n);

/* Whether the peer's certificate, which has been verified, says that it has this role: URI:punica:ROLE. */
bool tls_peer_has_role(const SSL *s, const char *role);

/* 32 bytes that both ends of this connection know and nobody else. */
void tls_channel_key(SSL *s, uint8_t key[32]);

/* A connection to host, a name or a numeric address, which the peer's certificate must be made out to. */
SSL *tls_connection_to(SSL_CTX *c, const char *host);

#endif
