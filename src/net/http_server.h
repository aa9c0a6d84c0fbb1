/* http_server.h - an HTTP/1.1 server on our event loop: connections, requests, answers
 *
 * Reads requests one by one on each connection (http_parser.h), hands them to its owner whole, and sends the owner's
 * answers, whole or as streams. What a client may cost is bounded:
 *
 *   time     a head must be complete `timeout` seconds after the request's first byte, a body too, but with a second
 *            more for every 64 KB of it; an idle connection, or an answer of which nothing is read, is closed after
 *            `timeout` seconds
 *   memory   a body of more than 16 KB, and what waits to be sent, is taken from a budget
 *   number   beyond max_connections, a new one takes the place of the one that has kept us waiting longest; if all
 *            are being answered, it becomes one of a few in reserve, on which the owner answers operators only
 *
 * A client that closes its half of the connection still gets its answer. It cannot be told from one that has gone until
 * something is sent to it: so, after a moment, it is sent "100 Continue", which a live client skips and a dead one
 * answers with a reset.
 *
 * One loop, one thread; http_exchange_add() is the exception. */
#ifndef PUNICA_NET_HTTP_SERVER_H
#define PUNICA_NET_HTTP_SERVER_H

#include <openssl/ssl.h>

#include "base/budget.h"
#include "net/client_loss.h"
#include "net/event_loop.h"
#include "net/http_parser.h"

typedef struct http_server http_server;
typedef struct http_exchange http_exchange; /* one request and its answer */

typedef struct {
    const char *listen; /* "HOST:PORT"; port 0: any */
    double timeout;     /* seconds */
    size_t max_unsent;  /* bytes of a stream that may wait for its client; with more it is cut off */
    size_t send_buffer; /* bytes of the kernel's send buffer (SO_SNDBUF); 0: its default */
    int max_connections, reserve;
    budget *memory; /* borrowed; NULL: no limit */
} http_options;

/* judge: a head has come; returns how many bytes its body may have, or sets *f to refuse the request before its body
 * comes. request: the request is complete; the owner answers, now or later. fault: the input is not a request, is too
 * large, or took too long; the owner must send an answer with why->status at once, after which the connection is
 * closed. The head may be empty then. */
typedef struct {
    size_t (*judge)(void *ctx, http_exchange *x, http_fault *f);
    void (*request)(void *ctx, http_exchange *x);
    void (*fault)(void *ctx, http_exchange *x, const http_fault *why);
    void *ctx;
} http_events;

/* Opens a server. Strings and options are copied. NULL with e set when it cannot listen on the address. */
http_server *http_server_new(event_loop *l, const http_options *o, const http_events *events, err *e);

/* Makes new connections use TLS (tls_serving() of tls.h). Takes over tls. */
void http_server_set_tls(http_server *s, SSL_CTX *tls);

/* Closes all connections, calling `gone` for exchanges that are not answered, and frees s. */
void http_server_free(http_server *s);

const char *http_server_address(const http_server *s); /* "HOST:PORT" */
void http_server_stop(http_server *s);                 /* stops listening and closes connections without a request */
int http_server_n_connections(const http_server *s);
int http_server_n_leaving(const http_server *s); /* answers that are complete and not all sent */

/* The request. All of it is valid until the answer is complete. */
const http_head *http_exchange_head(const http_exchange *x); /* method NULL: there is no head */
const char *http_exchange_client(const http_exchange *x);    /* the client's address */
bool http_exchange_is_reserve(const http_exchange *x);       /* on a connection of the reserve */
double http_exchange_start(const http_exchange *x);          /* when its first byte came, by the loop's clock */

/* Hands over the body; free it with charged_buf_free(). */
charged_buf http_exchange_take_body(http_exchange *x);

/* Sets which part of the server's budget the body is taken from. Call from within judge only. */
void http_exchange_charge(http_exchange *x, budget *part);

/* Sets a callback for the loss of the client (NULL: none). The exchange is over when it is called, and must not be used
 * in it. It is not called once the answer has been sent or ended. */
void http_exchange_set_gone(http_exchange *x, void (*gone)(void *ctx, client_loss why), void *ctx);

/* The answer: either send, or begin, any number of adds, end; headers are added first. After send or end the exchange
 * is no longer the caller's. Add sends at once, and may be called on any thread while the loop's thread waits for it;
 * flush must follow on the loop's thread, and sees to what the kernel did not take. When the client leaves too much
 * unread, it is cut off: `gone` is called later; if end is called before that, it returns false instead, and the stream
 * stays unfinished. */
void http_exchange_add_header(http_exchange *x, const char *name, const char *value);
void http_exchange_send(http_exchange *x, int status, const char *type, const buf *body, bool close);
void http_exchange_begin(http_exchange *x, const char *type);
void http_exchange_add(http_exchange *x, const buf *bytes);
void http_exchange_flush(http_exchange *x);
bool http_exchange_end(http_exchange *x);

#endif
