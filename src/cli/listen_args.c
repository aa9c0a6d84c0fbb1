/* listen_args.c - see listen_args.h */
#include "cli/listen_args.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/address.h"

enum { MIN_KEY = 8 };

static void add_key(option_list *l, const char *key)
{
    l->items = xrealloc(l->items, (size_t)(l->n + 1) * sizeof *l->items);
    l->items[l->n++] = key;
}

static int check_keys(const listen_args *a, err *e)
{
    for (int i = 0; i < a->keys.n; i++)
        if (strlen(a->keys.items[i]) < MIN_KEY || strpbrk(a->keys.items[i], " \t\r\n"))
            return err_set(
                e, "an API key has at least %d characters and no blanks; make one with: openssl rand -hex 32", MIN_KEY);
    return 0;
}

/* Checks that origins are as browsers write them: others would never match. */
static int check_origins(const listen_args *a, err *e)
{
    for (int i = 0; i < a->origins.n; i++) {
        const char *o = a->origins.items[i], *host = strstr(o, "://");
        if (strcmp(o, "*") != 0 && (!host || host == o || !host[3] || strpbrk(host + 3, "/ \t\r\n")))
            return err_set(e, "--cors %s: an origin is https://HOST[:PORT], without anything behind it, or '*'", o);
    }
    return 0;
}

/* Puts the store into o. Its tenants have keys of their own, so --api-key is refused. */
static int apply_store(listen_args *a, frontend_options *o, err *e)
{
    const char *everywhere = getenv(STORE_ENVIRONMENT);
    if (!a->store && everywhere && everywhere[0])
        a->store = everywhere;
    if (a->store && a->keys.n)
        return err_set(
            e,
            "--api-key is for servers without --store: there each tenant has keys of its own (punica tenant key add)");
    if (a->admin_key_file && !a->store)
        return err_set(e, "--admin-key-file is for servers with --store");
    o->store = a->store;
    o->admin_key_file = a->admin_key_file;
    return 0;
}

/* Checks that only this host's clients can come in without a key, unless --open is given. */
static int check_open(const listen_args *a, const frontend_options *o, err *e)
{
    address at;
    if (a->open || a->store || o->n_keys)
        return 0;
    if (address_parse(&at, o->listen, e))
        return err_wrap(e, "--listen");
    return address_is_local(&at) ? 0
                                 : err_set(e,
                                           "%s can be reached from other hosts, and nobody needs a key: give --store "
                                           "with tenants (punica tenant "
                                           "--help) or --api-key, or --open to let everybody in",
                                           o->listen);
}

/* Returns HOST:PORT with another host, unless it is NULL, and another port, unless it is below 0; owned by the caller. */
static char *replace_address(const char *listen, const char *host, int port)
{
    const char *colon = strrchr(listen, ':');
    int n = colon ? (int)(colon - listen) : (int)strlen(listen);
    char *kept_host = xasprintf("%.*s", n, listen), *new_port = xasprintf(":%d", port);
    bool is_ipv6 = host && strchr(host, ':') && host[0] != '[';
    char *out = xasprintf("%s%s%s%s", is_ipv6 ? "[" : "", host ? host : kept_host, is_ipv6 ? "]" : "",
                          port >= 0 ? new_port
                          : colon   ? colon
                                    : "");
    free(kept_host);
    free(new_port);
    return out;
}

int listen_args_apply(listen_args *a, frontend_options *o, err *e)
{
    const char *key = getenv("PUNICA_API_KEY");
    if (key)
        add_key(&a->keys, key);
    if (check_keys(a, e) || check_origins(a, e))
        return -1;
    if (!a->tls_cert != !a->tls_key)
        return err_set(e, "--ssl-certfile and --ssl-keyfile go together");
    o->key = a->keys.items;
    o->n_keys = a->keys.n;
    o->origin = a->origins.items;
    o->n_origins = a->origins.n;
    o->tls_cert = a->tls_cert;
    o->tls_key = a->tls_key;
    if (apply_store(a, o, e))
        return -1;
    if (!a->host && a->port < 0)
        return check_open(a, o, e);
    a->listen = replace_address(o->listen, a->host, a->port);
    o->listen = a->listen;
    return check_open(a, o, e);
}

void listen_args_release(listen_args *a)
{
    free(a->keys.items);
    free(a->origins.items);
    free(a->listen);
}
