/* listen_args.h - where clients come in, and who is one: options that serve and frontend share */
#ifndef PUNICA_CLI_LISTEN_ARGS_H
#define PUNICA_CLI_LISTEN_ARGS_H

#include "cli/options.h"
#include "frontend/frontend.h"

#define API_KEY_HELP "clients must show it, as a bearer's token; repeat for more (environment PUNICA_API_KEY; none: all may come)"

typedef struct {
    const char *host;
    int port;                   /* -1: not given */
    option_list keys, origins;
    const char *tls_cert, *tls_key;
    char *listen;               /* owned: made of the two */
} listen_args;

/* Some as other servers have them; a: a listen_args *. */
#define LISTEN_OPTIONS(a)                                                                                               \
    {"host", OPT_STRING, &(a)->host, "HOST", "the same in two: its host"},                                              \
    {"port", OPT_INT, &(a)->port, "PORT", "and its port", 0, 65535},                                                    \
    {"ssl-certfile", OPT_STRING, &(a)->tls_cert, "FILE", "clients speak TLS: our certificate and those that lead to its root, PEM"}, \
    {"ssl-keyfile", OPT_STRING, &(a)->tls_key, "FILE", "its private key, PEM; SIGHUP reads both again"},                  \
    {"cors", OPT_LIST, &(a)->origins, "ORIGIN", "browsers may ask from pages of https://HOST[:PORT], or of any: '*'; repeat for more"}

/* Into o, which borrows them. a->port is -1 before options are read. */
int listen_args_apply(listen_args *a, frontend_options *o, err *e);
void listen_args_release(listen_args *a);

#endif
