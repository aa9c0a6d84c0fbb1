/* credentials.c - see credentials.h */
#include "net/credentials.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "net/tls.h"

static int check_options(const credential_files *f, err *e)
{
    if (!f->tls_cert != !f->tls_key)
        return err_set(e, "--tls-cert and --tls-key go together");
    if (!f->tls_cert != !f->tls_ca && !f->listens && !f->tls_ca)
        return err_set(e, "--tls-cert needs --tls-ca: whom to trust");
    if (f->listens && f->tls_ca && !f->tls_cert)
        return err_set(e, "--tls-ca needs --tls-cert and --tls-key: links use TLS then");
    return 0;
}

int credentials_load(credentials *c, const credential_files *from, err *e)
{
    credentials new = {.mutual = from->tls_cert && from->tls_ca};
    bool wants_tls = from->tls_cert || from->tls_ca;
    if (check_options(from, e))
        return -1;
    bool has_secret = from->secret_file || secret_was_in_environment();
    if ((has_secret || !new.mutual) && secrets_read(from->secret_file, new.secret, e))
        return -1;
    if (wants_tls) {
        new.tls = from->listens ? tls_listening(from->tls_cert, from->tls_key, from->tls_ca, e)
                                : tls_connecting(from->tls_ca, from->tls_cert, from->tls_key, e);
        if (!new.tls) {
            credentials_deinit(&new);
            return -1;
        }
    }
    credentials_deinit(c);
    *c = new;
    return 0;
}

void credentials_deinit(credentials *c)
{
    for (int i = 0; i < MAX_SECRETS; i++)
        if (c->secret[i]) {
            OPENSSL_cleanse(c->secret[i], strlen(c->secret[i]));
            free(c->secret[i]);
        }
    SSL_CTX_free(c->tls);
    *c = (credentials){0};
}
