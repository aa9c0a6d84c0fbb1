/* call.h - one call of a client, in any shape of the API, from its body to the last byte of its answer
 *
 *   body ─ prepare ─ dispatch ══ tokens ══▶ answer ─ api_shape ─▶ reply
 *
 * A call has one choice for each prompt and each n; each choice is a request at the scheduler. A call lives from
 * call_start() until it is answered or its client is gone; it frees itself. */
#ifndef PUNICA_FRONTEND_CALL_H
#define PUNICA_FRONTEND_CALL_H

#include "frontend/access_log.h"
#include "frontend/accounts.h"
#include "frontend/catalog.h"
#include "frontend/dispatch.h"
#include "frontend/metrics.h"
#include "frontend/prepare.h"
#include "frontend/reply.h"
#include "net/loop.h"

typedef struct fetches fetches; /* fetches.h */

/* What calls work with. Outlives them. */
typedef struct {
    net_loop *on;
    dispatch *at_scheduler;
    catalog *models;
    prepare_tools tools;
    preparer *preparer; /* NULL: everything is prepared on the loop's thread, as in the simulation */
    fetches *fetches;   /* NULL: there is no disk cache */
    metrics *counts;
    accounts *accounts;    /* NULL: there are no tenants, or nobody counts what they use */
    access_log *log;       /* NULL: none */
    shared_budget *memory; /* that prompts and outputs are taken from; NULL: no limit */
    const int *eos;        /* [n_eos] */
    int n_eos;
    int plain_id;      /* answer.h */
    int max_calls;     /* at once: as many as connections; 0: no limit */
    double keep_alive; /* seconds without a token after which a stream's client is sent a comment; 0: never */
    bool draining;     /* no new calls */
} service;

/* Starts a call: answers a body. body and `to` are taken. who: the tenant that asks; NULL: there are none. route: the
 * path, static, for metrics and log. request_id: of the x-request-id header; "": none. */
void call_start(service *s, tenant *who, reply *to, charged_buf *body, const api_shape *shape, const char *route,
                const char *request_id);

#endif
