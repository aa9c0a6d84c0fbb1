/* tls.h - TLS for links and for clients' connections; files are PEM */
#ifndef PUNICA_NET_TLS_H
#define PUNICA_NET_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Make a context for either side of a link; cert and key are our own. Listening: ca, if not NULL, has the authorities
 * whose certificates peers must show. Connecting: cert and key may be NULL. Free with SSL_CTX_free(). NULL with e set,
 * which names the file, when one is missing or bad. */
SSL_CTX *tls_listening(const char *cert, const char *key, const char *ca, err *e);
SSL_CTX *tls_connecting(const char *ca, const char *cert, const char *key, err *e);

/* The same for HTTP clients, which show no certificate. A write that had to wait may be repeated from another
 * buffer. */
SSL_CTX *tls_serving(const char *cert, const char *key, err *e);

/* recv() and send() over TLS: -1 with errno EAGAIN when it has to wait for the socket to be readable or writable; 0:
 * the peer sends no more. */
ssize_t tls_recv(SSL *s, void *to, size_t n);
ssize_t tls_send(SSL *s, const void *bytes, size_t n);

/* Returns whether the peer's certificate is verified and names this role: URI:punica:ROLE. */
bool tls_peer_has_role(const SSL *s, const char *role);

/* Derives 32 bytes that only the two ends of this connection know (RFC 5705). */
void tls_channel_key(SSL *s, uint8_t key[32]);

/* Makes a connection to host, a name or a numeric address, for which the peer's certificate must be valid. */
SSL *tls_connection_to(SSL_CTX *c, const char *host);

#endif
