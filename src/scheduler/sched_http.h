/* sched_http.h - the cluster's state, for operators: GET /health, /metrics and /v1/signals */
#ifndef PUNICA_SCHEDULER_SCHED_HTTP_H
#define PUNICA_SCHEDULER_SCHED_HTTP_H

#include "net/event_loop.h"
#include "scheduler/sched_server.h"

#define SCHED_HTTP_LISTEN "127.0.0.1:7001" /* by default */

typedef struct sched_http sched_http;

/* Starts to answer at "HOST:PORT". The server is borrowed. Returns NULL with e set when `at` cannot be listened on. */
sched_http *sched_http_new(event_loop *loop, const sched_server *server, const char *at, err *e);
void sched_http_free(sched_http *h);

const char *sched_http_address(const sched_http *h);

#endif
