/* http_server.h - an HTTP/1.1 server on our event loop: connections, requests, answers
 *
 * Takes in requests one by one on each connection (http_parser.h), hands them to its owner whole, and sends the owner's
 * answers, at once or as streams. What a client may cost is bounded:
 *
 *   time     a head, and a body at 64 KB a second, must be there `timeout` seconds after the request's first byte; a
 *            connection that is not used, or an answer of which nothing is read, lasts as long
 *   memory   a body of more than 16 KB, and what waits to be sent, is taken from a budget
 *   number   when there are max_connections, a new one takes the place of whoever has kept us waiting longest; if
 *            all are being answered, it is one of a few in reserve, on which the owner answers operators only
 *
 * A client that closes its half of the connection still gets its answer. It looks like one that has gone, until
 * something is sent to it: so, after a moment, it is sent "100 Continue", which clients skip, and whoever has gone
 * answers with a reset.
 *
 * One loop, one thread; http_exchange_add() is the exception. */
#ifndef PUNICA_NET_HTTP_SERVER_H
#define PUNICA_NET_HTTP_SERVER_H

#include <openssl/ssl.h>

#include "base/budget.h"
#include "net/event_loop.h"
#include "net/http_parser.h"

typedef struct http_server http_server;
typedef struct http_exchange http_exchange; /* one request and its answer */

typedef struct {
    const char *listen; /* "HOST:PORT"; port 0: any */
    double timeout;     /* seconds */
    size_t max_unsent;  /* bytes of a stream that may wait for its client; more: it is cut off */
    size_t send_buffer; /* bytes of an answer that the kernel keeps; 0: as it likes */
    int max_connections, reserve;
    budget *memory; /* borrowed; NULL: no limit */
} http_options;

/* Why an exchange is over before its answer's end. */
typedef enum { HTTP_CLIENT_LEFT, HTTP_CLIENT_DOES_NOT_READ } http_loss;

/* judge: a head has come; how many bytes its body may have. Where f->status is set, the request is refused for that
 * fault before its body comes. request: all of it is there; the owner answers, now or later. fault: what came is no
 * request, or too much, or took too long; the owner sends an answer with why->status at once, and the connection is
 * closed behind it. The head may be empty then. */
typedef struct {
    size_t (*judge)(void *ctx, http_exchange *x, http_fault *f);
    void (*request)(void *ctx, http_exchange *x);
    void (*fault)(void *ctx, http_exchange *x, const http_fault *why);
    void *ctx;
} http_events;

/* NULL with e set when the address cannot be listened on. Strings and options are copied. */
http_server *http_server_new(event_loop *l, const http_options *o, const http_events *events, err *e);

/* Connections made from now on use TLS (tls_serving() of tls.h). tls is taken. */
void http_server_set_tls(http_server *s, SSL_CTX *tls);

/* Closes all connections; gone is called for exchanges that are not answered. */
void http_server_free(http_server *s);

const char *http_server_address(const http_server *s); /* "HOST:PORT" */
void http_server_stop(http_server *s);                 /* take no more connections, and close those without a request */
int http_server_n_connections(const http_server *s);
int http_server_n_leaving(const http_server *s); /* answers that are complete and not yet with their clients */

/* The request. All of it is valid until the answer is complete. */
const http_head *http_exchange_head(const http_exchange *x); /* method NULL: there is none */
const char *http_exchange_client(const http_exchange *x);    /* its address */
bool http_exchange_is_reserve(const http_exchange *x);       /* all other connections are in use */
double http_exchange_start(const http_exchange *x);          /* when its first byte came, by the loop's clock */

/* The body, the caller's from now on. */
charged_buf http_exchange_take_body(http_exchange *x);

/* From within judge: whose budget the body is taken from, a part of the server's. */
void http_exchange_charge(http_exchange *x, budget *part);

/* Who is told that the client is lost: the exchange is over then, and not to be used from within the call. It is not
 * called once the answer has been sent or ended. NULL: nobody. */
void http_exchange_set_gone(http_exchange *x, void (*gone)(void *ctx, http_loss why), void *ctx);

/* The answer: at once, or begin, add any number of times, end. Headers before either. After send or end the exchange is
 * not the caller's any more. Add sends at once, and may be called on any thread while the loop's waits for it; flush,
 * behind it on the loop's thread, sees to what the kernel did not take. Gone is called, later, when too much is unread.
 * End is false when it was by then: the client is cut off, its stream unfinished. */
void http_exchange_add_header(http_exchange *x, const char *name, const char *value);
void http_exchange_send(http_exchange *x, int status, const char *type, const buf *body, bool close);
void http_exchange_begin(http_exchange *x, const char *type);
void http_exchange_add(http_exchange *x, const buf *bytes);
void http_exchange_flush(http_exchange *x);
bool http_exchange_end(http_exchange *x);

#endif
