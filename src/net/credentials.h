/* credentials.h - by what a process shows its peers who it is, and whom it believes
 *
 * A shared secret (secret.h), TLS certificates, or both. With certificates on both sides (mutual TLS) no secret is
 * needed, and each says which role its owner has: the subject alternative name URI:punica:frontend, punica:runner or
 * punica:scheduler.
 *
 * Links borrow them and look whenever they need them: what credentials_load() changes holds for connections made from
 * then on, and a link whose peer showed a secret that is not believed any more is dropped. One thread. */
#ifndef PUNICA_NET_CREDENTIALS_H
#define PUNICA_NET_CREDENTIALS_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "base/err.h"
#include "net/secret.h"

typedef struct {
    char *secret[MAX_SECRETS]; /* the first is shown, all are believed; NULL behind the last */
    SSL_CTX *tls;              /* of the side that this process is; NULL: none */
    bool mutual;               /* both sides have certificates, and their roles are checked */
} credentials;

/* Where they come from; all but secret_file are PEM. On the listening side tls_ca is whom to trust, and makes it
 * mutual; on the connecting side it asks for TLS, and tls_cert makes it mutual. NULL: none. */
typedef struct {
    const char *secret_file, *tls_cert, *tls_key, *tls_ca;
    bool listens;
} credential_files;

/* Read them, or read them again. On -1 c is as it was, and e names the file. */
int credentials_load(credentials *c, const credential_files *from, err *e);
void credentials_deinit(credentials *c);

#endif
