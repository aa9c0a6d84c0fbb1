/* credentials.h - how a process authenticates itself to its peers, and whom it trusts
 *
 * A shared secret (secret.h), TLS certificates, or both. With certificates on both sides (mutual TLS) no secret is
 * needed, and each certificate names its owner's role: the subject alternative name URI:punica:frontend, punica:runner
 * or punica:scheduler.
 *
 * Links borrow the credentials and read them whenever they need them: changes by credentials_load() apply to new
 * connections, and a link whose peer showed a secret that is no longer accepted is dropped. One thread. */
#ifndef PUNICA_NET_CREDENTIALS_H
#define PUNICA_NET_CREDENTIALS_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "base/err.h"
#include "net/secret.h"

typedef struct {
    char *secret[MAX_SECRETS]; /* we prove that we know the first, and accept all of them; NULL behind the last */
    SSL_CTX *tls;              /* for the side, listening or connecting, that this process is; NULL: none */
    bool mutual;               /* both sides have certificates, and their roles are checked */
} credentials;

/* Files that credentials are read from; all but secret_file are PEM; NULL: none. tls_ca has the certificate authorities
 * to trust. On the listening side it makes TLS mutual; on the connecting side it turns TLS on, and tls_cert makes it
 * mutual. */
typedef struct {
    const char *secret_file, *tls_cert, *tls_key, *tls_ca;
    bool listens;
} credential_files;

/* Reads the credentials, also again. On -1 c is unchanged, and e names the file. */
int credentials_load(credentials *c, const credential_files *from, err *e);
void credentials_deinit(credentials *c);

#endif
