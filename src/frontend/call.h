/* call.h - one call of a client: completions or chat completions, from its body to the last byte of its answer
 *
 *   body ─ prepare ─ dispatch ══ tokens ══▶ answer ─ api_reply ─▶ reply
 *
 * A call has one choice for each prompt and each n; each choice is a request at the scheduler. A call lives from
 * call_start() until it is answered or its client is gone; nobody else holds on to it. */
#ifndef PUNICA_FRONTEND_CALL_H
#define PUNICA_FRONTEND_CALL_H

#include <event2/http.h>

#include "frontend/catalog.h"
#include "frontend/dispatch.h"
#include "frontend/metrics.h"
#include "frontend/prepare.h"
#include "frontend/reply.h"

/* What calls work with. Outlives them. */
typedef struct {
    dispatch *at_scheduler;
    catalog *models;
    prepare_tools tools;
    preparer *preparer;
    metrics *counts;
    reply_limits limits;
    size_t max_body;            /* bytes */
    const int *eos;             /* [n_eos] */
    int n_eos;
    int plain_id;               /* answer.h */
    bool draining;              /* no new calls */
} service;

/* Takes req. route: for the counts. request_id: of the x-request-id header. */
void call_start(service *s, struct evhttp_request *req, bool chat, const char *route, const char *request_id);

#endif
