/* call.h - one call of a client: completions or chat completions, from its body to the last byte of its answer
 *
 *   body ─ prepare ─ dispatch ══ tokens ══▶ answer ─ api_reply ─▶ reply
 *
 * A call has one choice for each prompt and each n; each choice is a request at the scheduler. A call lives from
 * call_start() until it is answered or its client is gone; nobody else holds on to it. */
#ifndef PUNICA_FRONTEND_CALL_H
#define PUNICA_FRONTEND_CALL_H

#include "frontend/catalog.h"
#include "frontend/dispatch.h"
#include "frontend/metrics.h"
#include "frontend/prepare.h"
#include "frontend/reply.h"
#include "net/loop.h"

/* What calls work with. Outlives them. */
typedef struct {
    net_loop *on;
    dispatch *at_scheduler;
    catalog *models;
    prepare_tools tools;
    preparer *preparer;
    metrics *counts;
    size_t max_body;            /* bytes */
    const int *eos;             /* [n_eos] */
    int n_eos;
    int plain_id;               /* answer.h */
    bool draining;              /* no new calls */
} service;

/* Answer a body of n bytes; `to` is the call's from now on. route: for the counts. request_id: of the x-request-id
 * header; "": none. */
void call_start(service *s, reply *to, const char *body, size_t n, bool chat, const char *route, const char *request_id);

#endif
