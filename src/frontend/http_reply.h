/* http_reply.h - answers over HTTP
 *
 * Hides whose the request is at which moment (libevent's evhttp). */
#ifndef PUNICA_FRONTEND_HTTP_REPLY_H
#define PUNICA_FRONTEND_HTTP_REPLY_H

#include <event2/http.h>

#include "frontend/reply.h"

typedef struct {
    size_t max_unsent;          /* bytes waiting for a client that does not read; more: it is cut off */
    double timeout;             /* seconds it may take none of them */
    int *n_leaving;             /* counts the answers that are complete and not yet with their clients */
} reply_limits;

/* A reply to req, which is the reply's from now on; l is borrowed, and outlives the connection. */
reply *http_reply_new(struct evhttp_request *req, const reply_limits *l);

#endif
