/* runner.h - a GPU server's agent
 *
 * One worker subprocess per device, on pipes; one link to the scheduler. Commands go down and Steps go up almost
 * unread. A worker that dies or hangs is started again, later and later if it does not live long. When the link is
 * lost the workers forget all requests, and are announced anew when it is back. One event loop, one thread. */
#ifndef PUNICA_RUNNER_RUNNER_H
#define PUNICA_RUNNER_RUNNER_H

#include "net/link.h"
#include "runner/process.h"

typedef struct {
    const char *scheduler;     /* address to connect to */
    link_options link;         /* credentials, model; the role is set here */
    process_starter processes; /* who starts the workers */
    const char *const *device; /* [n_workers] "cpu", "cuda:0", ...: a worker for each */
    int n_workers;
    const char *const *worker_args; /* [n_worker_args] options of `punica worker` that all get: --model and so on */
    int n_worker_args;
    const char *const *fetcher_args; /* [n_fetcher_args] options of `punica fetcher`, which fetches adapters; none: they
                                        are not fetched */
    int n_fetcher_args;
    double hang_seconds;     /* a worker silent for so long is killed; 0: 10, or 60 on a CPU, whose steps take long */
    double start_seconds;    /* the same until its model is loaded */
    double drain_seconds;    /* what runner_drain() waits at most */
    void (*stir)(void *ctx); /* a worker is about to tell of many tokens; NULL: nobody wants to know */
    void *stir_ctx;
} runner_options;

runner_options runner_options_default(void);

typedef struct runner runner;

/* NULL with e set when the scheduler's address or the TLS files are bad. Options are copied. */
runner *runner_new(net_loop *on, const runner_options *o, err *e);
void runner_free(runner *r); /* kills the workers */

/* Ask the scheduler to move its requests away; done is called once when none is left or drain_seconds have passed.
 * The runner may be freed from within done. */
void runner_drain(runner *r, void (*done)(void *ctx), void *ctx);

int runner_n_ready(const runner *r); /* workers whose model is loaded */

/* Why the last of them ended, when every worker has ended and none was ever ready: all were told wrong things, most
 * likely. Else NULL. Holds until the loop goes on. */
const char *runner_failure(const runner *r);

#endif
