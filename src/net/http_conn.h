/* http_conn.h - one connection of an HTTP server, from accept to close; see http_server.h
 *
 * Private to the server. */
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
    http_conn_list waiting[2]; /* for their clients' bytes, who waits longest first; [1]: those in reserve */
    http_conn_list busy[2];    /* the others */
    int n[2];                  /* connections */
    int n_leaving;
    SSL_CTX *tls;  /* of new connections; NULL: none */
    bool stopping; /* connections are not used again */
    char *scratch; /* [HTTP_SCRATCH] where bytes are read to */
} http_shared;

#define HTTP_SCRATCH (64u << 10)

/* A connection on a socket that does not block, with TLS if s has any; it removes and frees itself when it is over. */
http_conn *http_conn_new(http_shared *s, int fd, const char *client, bool reserve);

/* Close it now. Not from within a callback of its own. */
void http_conn_close(http_conn *c);

bool http_conn_is_idle(const http_conn *c);     /* it has no request, nor a part of one */
http_conn *http_conn_after(const http_conn *c); /* the next in its list, or NULL */

#endif
