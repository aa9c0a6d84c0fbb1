/* http_conn.h - one connection of an HTTP server, from accept to close; private to http_server.c */
#ifndef PUNICA_NET_HTTP_CONN_H
#define PUNICA_NET_HTTP_CONN_H

#include <openssl/ssl.h>
#include <sys/queue.h>

#include "net/http_server.h"

typedef struct http_conn http_conn;
typedef TAILQ_HEAD(http_conn_list, http_conn) http_conn_list;

/* What connections share with their server. */
typedef struct {
    event_loop *loop; /* borrowed */
    http_options options;
    http_events events;
    http_conn_list waiting[2]; /* connections that wait for their clients' bytes, longest first; [1]: of the reserve */
    http_conn_list busy[2];    /* the others */
    int n[2];                  /* number of connections; [1]: of the reserve */
    int n_leaving;             /* answers that are complete and not all sent */
    SSL_CTX *tls;              /* for new connections; NULL: none */
    bool stopping;             /* connections are closed after their answer */
    char *scratch;             /* [HTTP_SCRATCH], to read into */
} http_shared;

#define HTTP_SCRATCH (64u << 10)

/* Begins to serve a connection, with TLS if s has any. It takes over fd, which must be non-blocking, and frees itself
 * when it is over. client: its address. */
http_conn *http_conn_new(http_shared *s, int fd, const char *client, bool reserve);

/* Closes and frees the connection at once. Not to be called from within its callbacks. */
void http_conn_close(http_conn *c);

bool http_conn_is_idle(const http_conn *c);     /* no part of a request has come */
http_conn *http_conn_after(const http_conn *c); /* the next in its list, or NULL */

#endif
