/* listen_args.h - where clients come in, and who is one: options that serve and frontend share */
#ifndef PUNICA_CLI_LISTEN_ARGS_H
#define PUNICA_CLI_LISTEN_ARGS_H

#include "cli/options.h"
#include "cli/store_args.h"
#include "frontend/frontend.h"
#include "net/secret.h"

#define API_KEY_HELP "clients must show it, as a bearer's token; repeat for more (environment PUNICA_API_KEY)"

typedef struct {
    const char *host;
    int port; /* -1: not given */
    option_list keys, origins;
    const char *tls_cert, *tls_key;
    const char *store, *admin_key_file;
    bool open;
    char *admin_key[MAX_SECRETS]; /* owned */
    char *listen;                 /* owned: made of the two */
} listen_args;

/* Some as other servers have them; and who may come in. a: a listen_args *. */
#define LISTEN_OPTIONS(a)                                                                                              \
    {"host", OPT_STRING, &(a)->host, "HOST", "the same in two: its host"},                                             \
        {"port", OPT_INT, &(a)->port, "PORT", "and its port", 0, 65535},                                               \
        {"api-key", OPT_LIST, &(a)->keys, "KEY", API_KEY_HELP}, {"store", OPT_STRING, &(a)->store, "URL", STORE_HELP}, \
        {"admin-key-file", OPT_STRING, &(a)->admin_key_file, "FILE",                                                   \
         "the operators' key: with it, /metrics tells of tenants and /admin/v1/ is open"},                             \
        {"open", OPT_FLAG, &(a)->open, NULL,                                                                           \
         "listen also where others than this host reach it, though nobody needs a key"},                               \
        {"ssl-certfile", OPT_STRING, &(a)->tls_cert, "FILE",                                                           \
         "clients speak TLS: our certificate and those that lead to its root, PEM"},                                   \
        {"ssl-keyfile", OPT_STRING, &(a)->tls_key, "FILE", "its private key, PEM; SIGHUP reads both again"},           \
        {"cors", OPT_LIST, &(a)->origins, "ORIGIN",                                                                    \
         "browsers may ask from pages of https://HOST[:PORT], or of any: '*'; repeat for more"}

/* Into o, which borrows them. a->port is -1 before options are read. */
int listen_args_apply(listen_args *a, frontend_options *o, err *e);
void listen_args_release(listen_args *a);

#endif
