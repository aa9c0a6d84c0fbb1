/* routes.h - which path and method is answered by what */
#ifndef PUNICA_FRONTEND_ROUTES_H
#define PUNICA_FRONTEND_ROUTES_H

#include "frontend/adapter_api.h"
#include "frontend/api_keys.h"
#include "frontend/call.h"
#include "frontend/cors.h"
#include "frontend/http_reply.h"
#include "frontend/model_list.h"

/* What the routes need. */
typedef struct {
    service calls;
    model_list *list;
    tiers *tiers;          /* where adapters are */
    adapter_api *adapters; /* NULL: they are not changed here */
    api_keys keys;         /* for all below /v1/, where there are no tenants */
    api_keys admin;        /* for operators; none: nobody is one */
    cors cors;
    size_t max_body;                           /* bytes of a call's body */
    int64_t created;                           /* seconds since the epoch, for lists of models */
    const http_server *server;                 /* NULL: not yet */
    void (*more_metrics)(void *ctx, buf *out); /* appends to the metrics page; may be NULL */
    void *metrics_ctx;
} routes;

/* Returns what a server calls for its requests. r must outlive the server. */
http_events routes_events(routes *r);

#endif
