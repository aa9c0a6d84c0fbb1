/* runner.h - a GPU server's agent
 *
 * One worker subprocess per device, on pipes; one link to the scheduler. Commands go down and Steps go up almost
 * unread. A worker that dies or hangs is restarted, with exponential backoff if it does not live long. When the link is
 * lost the workers forget all requests; when it is back they are announced again. One event loop, one thread. */
#ifndef PUNICA_RUNNER_RUNNER_H
#define PUNICA_RUNNER_RUNNER_H

#include "net/link.h"
#include "runner/process.h"

/* Defaults of hang_seconds on a GPU, and on a CPU, whose steps take long. */
#define HANG_SECONDS 10
#define HANG_SECONDS_CPU 60

typedef struct {
    const char *scheduler;     /* address to connect to */
    link_options link;         /* credentials, model; the role is set here */
    process_starter processes; /* starts the workers and fetchers */
    const char *const *device; /* [n_workers] "cpu", "cuda:0", ...: a worker for each */
    int n_workers;
    const char *const *worker_args; /* [n_worker_args] options of `punica worker` for all: --model and so on */
    int n_worker_args;
    const char *const *fetcher_args; /* [n_fetcher_args] options of `punica fetcher`, which fetches adapters; none: they
                                        are not fetched */
    int n_fetcher_args;
    double hang_seconds;          /* a worker silent for longer is killed; 0: HANG_SECONDS */
    double start_seconds;         /* the same limit until its model is loaded */
    double drain_seconds;         /* the longest that runner_drain() waits */
    void (*on_notice)(void *ctx); /* called when a worker is about to report many tokens; NULL: not called */
    void *notice_ctx;
} runner_options;

runner_options runner_options_default(void);

typedef struct runner runner;

/* Starts a runner. Options are copied. NULL with e set when the scheduler's address or the TLS files are bad. */
runner *runner_new(net_loop *on, const runner_options *o, err *e);
void runner_free(runner *r); /* kills the workers */

/* Asks the scheduler to move the runner's requests away. Calls done, in which the runner may be freed, once when none
 * is left or drain_seconds have passed. */
void runner_drain(runner *r, void (*done)(void *ctx), void *ctx);

int runner_n_ready(const runner *r); /* workers whose model is loaded */

/* Returns why the last worker ended, if every worker has ended and none was ever ready: most likely their options are
 * wrong. Else NULL. Valid until the loop goes on. */
const char *runner_failure(const runner *r);

#endif
