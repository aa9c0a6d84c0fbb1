/* tls.h - TLS settings of links; files are PEM */
#ifndef PUNICA_NET_TLS_H
#define PUNICA_NET_TLS_H

#include <openssl/ssl.h>

#include "base/err.h"

/* NULL with e set when a file is missing or bad; e names it. Free with SSL_CTX_free(). */
SSL_CTX *tls_listening(const char *cert, const char *key, err *e);
SSL_CTX *tls_connecting(const char *ca, err *e);

/* A connection to host, a name or a numeric address, which the peer's certificate must be made out to. */
SSL *tls_connection_to(SSL_CTX *c, const char *host);

#endif
