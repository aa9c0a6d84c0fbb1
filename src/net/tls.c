/* tls.c - see tls.h */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>

/* Why the last operation failed, in words. */
static void last_error(char *text, size_t n)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;
    snprintf(text, n, "%s", why ? why : "no reason given");
    ERR_clear_error();
}

static int fail(SSL_CTX *c, const char *what, const char *file, err *e)
{
    char why[200];
    last_error(why, sizeof why);
    SSL_CTX_free(c);
    return err_set(e, "cannot use %s %s: %s", what, file, why);
}

static SSL_CTX *make(const SSL_METHOD *method)
{
    SSL_CTX *c = SSL_CTX_new(method);
    CHECK(c && SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1);
    return c;
}

SSL_CTX *tls_listening(const char *cert, const char *key, err *e)
{
    SSL_CTX *c = make(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(c, cert) != 1)
        return fail(c, "TLS certificate", cert, e), NULL;
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(c) != 1)
        return fail(c, "TLS key", key, e), NULL;
    return c;
}

SSL_CTX *tls_connecting(const char *ca, err *e)
{
    SSL_CTX *c = make(TLS_client_method());
    if (SSL_CTX_load_verify_locations(c, ca, NULL) != 1)
        return fail(c, "TLS authorities", ca, e), NULL;
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
    return c;
}

SSL *tls_connection_to(SSL_CTX *c, const char *host)
{
    SSL *s = SSL_new(c);
    CHECK(s);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s), host) == 1)
        return s;
    ERR_clear_error();
    CHECK(SSL_set1_host(s, host) == 1 && SSL_set_tlsext_host_name(s, host) == 1);
    return s;
}
