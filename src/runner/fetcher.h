/* fetcher.h - adapters that this host's workers want and do not have, fetched by processes of their own
 *
 * A worker has no network, and a runner reads no archives of strangers: `punica fetcher` does that, one for each
 * adapter that is wanted, and whatever becomes of it, the runner goes on. How many are under way, and of whom:
 * base/fair_places.h. One thread. */
#ifndef PUNICA_RUNNER_FETCHER_H
#define PUNICA_RUNNER_FETCHER_H

#include "net/wire.pb-c.h"
#include "runner/process.h"

typedef struct {
    process_starter processes;
    const char *const *args; /* [n_args] options of `punica fetcher`; borrowed. None: nothing can be fetched */
    int n_args;
    void (*done)(void *ctx, const Fetched *what); /* perhaps from within fetcher_want() */
    void *ctx;
} fetcher_options;

typedef struct fetcher fetcher;

fetcher *fetcher_new(const fetcher_options *o);
void fetcher_free(fetcher *f); /* what is under way is ended; f may be NULL */

/* What is wanted more than once by the same name from the same source is fetched once. */
void fetcher_want(fetcher *f, const Want *w);

#endif
