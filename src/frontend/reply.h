/* reply.h - the answer to one HTTP request, at once or as a stream
 *
 * Hides whose the request is at which moment (libevent's evhttp), and watches the client meanwhile: one that goes
 * away, or does not read what it asked for, is given up at once. */
#ifndef PUNICA_FRONTEND_REPLY_H
#define PUNICA_FRONTEND_REPLY_H

#include <event2/http.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct reply reply;

typedef struct {
    size_t max_unsent;          /* bytes waiting for a client that does not read; more: it is cut off */
    double timeout;             /* seconds it may take none of them */
    int *n_leaving;             /* counts the answers that are complete and not yet with their clients */
} reply_limits;

typedef enum { CLIENT_LEFT, CLIENT_DOES_NOT_READ } reply_loss;

/* A reply to req, which is the reply's from now on; l is borrowed, and outlives the connection. gone: the client is
 * lost; the reply is freed, and not to be used from within the call. It is not called once the reply has been sent or
 * ended. */
reply *reply_new(struct evhttp_request *req, const reply_limits *l, void (*gone)(void *ctx, reply_loss why), void *ctx);

/* Before anything is sent. */
void reply_add_header(reply *r, const char *name, const char *value);

/* The whole answer; the reply is freed. close: and the connection is not used again. */
void reply_send(reply *r, int status, const char *type, const buf *body, bool close);

/* A stream: begin, add any number of times, end, which frees the reply. Add sends at once, and may be called on any
 * thread while the loop's waits for it; settle, behind it on the loop's thread, sees to what the kernel did not take.
 * It calls gone, later, when the client has too much unread. End is false when it had by then: it is cut off, its
 * stream unfinished. */
void reply_begin(reply *r, const char *type);
void reply_add(reply *r, const buf *bytes);
void reply_settle(reply *r);
bool reply_end(reply *r);

#endif
