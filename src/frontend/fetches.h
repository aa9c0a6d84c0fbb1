/* fetches.h - adapters of the store's registry that are not on this host yet, fetched beside the loop
 *
 * Whoever needs one asks and waits; all who wait for the same wait for one fetch. A slow source holds up those who
 * named it: how many are under way at once, and of whom, is base/fair_places.h's. The loop's thread. */
#ifndef PUNICA_FRONTEND_FETCHES_H
#define PUNICA_FRONTEND_FETCHES_H

#include <event2/event.h>

#include "base/buf.h"
#include "frontend/catalog.h"
#include "registry/fetch.h"

/* All borrowed: until fetches_free(). */
typedef struct {
    disk_cache *cache;
    const fetch_options *fetch;
    const model_config *base;
} fetches_options;

typedef struct fetches fetches;
typedef struct fetch_wait fetch_wait;

fetches *fetches_new(struct event_base *loop, const fetches_options *o);
void fetches_free(fetches *f); /* nobody waits any more; f may be NULL */

/* done is called once, from the loop and not from within; why NULL: the files are there, and stay so during the call.
 */
fetch_wait *fetches_ask(fetches *f, const registered *what, void (*done)(void *ctx, const err *why), void *ctx);
void fetches_forget(fetch_wait *w); /* done will not be called; the fetch goes on */

void fetches_write_metrics(const fetches *f, buf *out);

#endif
