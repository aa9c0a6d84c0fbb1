/* sched_server.h - the scheduler behind links
 *
 * Frontends and runners connect to it (link.h); what they say becomes events of scheduler.h, and the scheduler's
 * commands become messages: all that one event causes goes out as one message for each frontend and each
 * GPU. sched_http.h shows operators the cluster's state. One event loop, one thread. */
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
    scale_hook *hook;         /* borrowed; told a few times a second how the cluster should change; NULL: none */
    const scheduler_tap *tap; /* borrowed; NULL: none */
} sched_server_options;

/* Returns the defaults. Messages may have 16 MB, a quarter of what runners and workers accept: on the way to them a
 * request is wrapped, and grows by its output. */
sched_server_options sched_server_options_default(void);

typedef struct sched_server sched_server;

/* Starts the server; options are copied. Returns NULL with e set when the address cannot be listened on. Free with
 * sched_server_free(). */
sched_server *sched_server_new(net_loop *on, const sched_server_options *o, err *e);
void sched_server_free(sched_server *s);

const char *sched_server_address(const sched_server *s); /* where links can connect to */

scheduler_stats sched_server_stats(const sched_server *s);
void sched_server_check(const sched_server *s); /* see scheduler_check() */

/* Appends the scheduler's part of a Prometheus page, or the signals as a JSON object. */
void sched_server_write_metrics(const sched_server *s, buf *out);
void sched_server_write_signals(const sched_server *s, buf *out);

#endif
