/* routes.h - which path and method is answered by what */
#ifndef PUNICA_FRONTEND_ROUTES_H
#define PUNICA_FRONTEND_ROUTES_H

#include "frontend/call.h"
#include "frontend/http_reply.h"

/* What routes other than calls need. */
typedef struct {
    service calls;
    reply_limits limits;
    int64_t created;                                /* seconds since the epoch, for lists of models */
    void (*more_metrics)(void *ctx, buf *out);      /* appends to the metrics page; may be NULL */
    void *metrics_ctx;
} routes;

/* Answer any request. ctx is a routes, which outlives it. For evhttp_set_gencb(). */
void routes_answer(struct evhttp_request *req, void *ctx);

#endif
