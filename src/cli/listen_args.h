/* listen_args.h - where a server listens for clients, and whom it lets in: options that serve and frontend share */
#ifndef PUNICA_CLI_LISTEN_ARGS_H
#define PUNICA_CLI_LISTEN_ARGS_H

#include "cli/options.h"
#include "cli/store_args.h"
#include "frontend/frontend.h"

typedef struct {
    const char *host;
    int port; /* -1: not given */
    option_list keys, origins;
    const char *tls_cert, *tls_key;
    const char *store, *admin_key_file;
    bool open;
    char *listen; /* owned: HOST:PORT */
} listen_args;

/* Checks the options and puts them into o, which borrows them. 0, or -1 with e set. a->port must be -1 before options
 * are read. */
int listen_args_apply(listen_args *a, frontend_options *o, err *e);
void listen_args_release(listen_args *a);

#endif
