/* tls.c - see tls.h */
#include "net/tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

/* Writes into text why the last operation failed. */
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

/* Makes a context without session resumption, so that every connection shows its certificate; links are long-lived, so
 * full handshakes are rare. */
static SSL_CTX *make(const SSL_METHOD *method)
{
    SSL_CTX *c = SSL_CTX_new(method);
    CHECK(c && SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
    return c;
}

static int use_own(SSL_CTX *c, const char *cert, const char *key, err *e)
{
    if (SSL_CTX_use_certificate_chain_file(c, cert) != 1)
        return fail(c, "TLS certificate", cert, e);
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(c) != 1)
        return fail(c, "TLS key", key, e);
    return 0;
}

static int trust(SSL_CTX *c, const char *ca, err *e)
{
    if (SSL_CTX_load_verify_locations(c, ca, NULL) != 1)
        return fail(c, "TLS authorities", ca, e);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return 0;
}

SSL_CTX *tls_listening(const char *cert, const char *key, const char *ca, err *e)
{
    SSL_CTX *c = make(TLS_server_method());
    return use_own(c, cert, key, e) || (ca && trust(c, ca, e)) ? NULL : c;
}

SSL_CTX *tls_connecting(const char *ca, const char *cert, const char *key, err *e)
{
    SSL_CTX *c = make(TLS_client_method());
    return trust(c, ca, e) || (cert && use_own(c, cert, key, e)) ? NULL : c;
}

SSL_CTX *tls_serving(const char *cert, const char *key, err *e)
{
    SSL_CTX *c = make(TLS_server_method());
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    return use_own(c, cert, key, e) ? NULL : c;
}

static ssize_t result_of(SSL *s, int n)
{
    if (n > 0)
        return n;
    int why = SSL_get_error(s, n);
    if (why == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        errno = EAGAIN;
    else if (why != SSL_ERROR_SYSCALL || errno == 0 || errno == EAGAIN)
        errno = EPROTO;
    return -1;
}

ssize_t tls_recv(SSL *s, void *to, size_t n)
{
    ERR_clear_error();
    errno = 0;
    return result_of(s, SSL_read(s, to, (int)(n < INT_MAX ? n : INT_MAX)));
}

ssize_t tls_send(SSL *s, const void *bytes, size_t n)
{
    ERR_clear_error();
    errno = 0;
    return result_of(s, SSL_write(s, bytes, (int)(n < INT_MAX ? n : INT_MAX)));
}

bool tls_peer_has_role(const SSL *s, const char *role)
{
    char wanted[64];
    int n = snprintf(wanted, sizeof wanted, "punica:%s", role);
    X509 *peer = SSL_get0_peer_certificate(s);
    GENERAL_NAMES *names =
        peer && SSL_get_verify_result(s) == X509_V_OK ? X509_get_ext_d2i(peer, NID_subject_alt_name, NULL, NULL) : NULL;
    bool has = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        has |= g->type == GEN_URI && ASN1_STRING_length(g->d.uniformResourceIdentifier) == n &&
               memcmp(ASN1_STRING_get0_data(g->d.uniformResourceIdentifier), wanted, (size_t)n) == 0;
    }
    GENERAL_NAMES_free(names);
    return has;
}

void tls_channel_key(SSL *s, uint8_t key[32])
{
    static const char label[] = "EXPORTER-punica-link";
    CHECK(SSL_export_keying_material(s, key, 32, label, sizeof label - 1, NULL, 0, 0) == 1);
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
