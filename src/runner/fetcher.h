/* fetcher.h - fetches adapters that this host's workers need and do not have, each in a process of its own
 *
 * A worker has no network, and a runner must not parse archives from outside: `punica fetcher` does that, one process
 * for each adapter, whose failure does not harm the runner. base/fair_places.h bounds how many run at once. One
 * thread. */
#ifndef PUNICA_RUNNER_FETCHER_H
#define PUNICA_RUNNER_FETCHER_H

#include "net/wire.pb-c.h"
#include "runner/process.h"

typedef struct {
    process_starter processes;
    const char *const *args; /* [n_args] options of `punica fetcher`; borrowed. None: nothing can be fetched */
    int n_args;
    void (*done)(void *ctx, const Fetched *what); /* may be called from within fetcher_want() */
    void *ctx;
} fetcher_options;

typedef struct fetcher fetcher;

fetcher *fetcher_new(const fetcher_options *o);
void fetcher_free(fetcher *f); /* ends what is under way, without calling done; f may be NULL */

/* Fetches an adapter, once even if several workers want it by the same name from the same source. Calls done when it is
 * over. */
void fetcher_want(fetcher *f, const Want *w);

#endif
