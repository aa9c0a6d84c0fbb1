/* sched_server.h - the scheduler behind links
 *
 * Frontends and runners connect to it (link.h); what they say becomes events of scheduler.h, and the scheduler's
 * commands become messages: all that one event causes goes out as one message for each frontend and each
 * GPU. sched_http.h tells operators how the cluster stands. One event loop, one thread. */
#ifndef PUNICA_SCHEDULER_SCHED_SERVER_H
#define PUNICA_SCHEDULER_SCHED_SERVER_H

#include "base/buf.h"
#include "net/link.h"
#include "scheduler/scale_hook.h"
#include "scheduler/scheduler.h"

typedef struct {
    const char *listen; /* where links come in: "HOST:PORT" or "unix:PATH" */
    link_options link;  /* credentials; role, name, instance and model are set here */
    scheduler_options policy;
    scale_hook *hook;         /* borrowed; told a few times a second what is wished; NULL: none */
    const scheduler_tap *tap; /* borrowed; NULL: none */
} sched_server_options;

/* Messages of 16 MB are taken in, a quarter of what runners and workers take: what is accepted here is wrapped, and
 * grows by its output, on the way to them. */
sched_server_options sched_server_options_default(void);

typedef struct sched_server sched_server;

/* NULL with e set when an address cannot be listened on. Options are copied. */
sched_server *sched_server_new(net_loop *on, const sched_server_options *o, err *e);
void sched_server_free(sched_server *s);

const char *sched_server_address(const sched_server *s); /* where links can connect to */

scheduler_stats sched_server_stats(const sched_server *s);
void sched_server_check(const sched_server *s); /* see scheduler_check() */

/* Append the scheduler's part of a Prometheus page, or the signals as a JSON object. */
void sched_server_write_metrics(const sched_server *s, buf *out);
void sched_server_write_signals(const sched_server *s, buf *out);

#endif
