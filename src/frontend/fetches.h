/* fetches.h - adapters of the store's registry that are not on this host yet, fetched beside the loop
 *
 * All who ask for the same adapter wait for one fetch. base/fair_places.h bounds how many are under way at once, in all
 * and of one tenant: a slow source holds up those who named it. The loop's thread. */
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
void fetches_free(fetches *f); /* nobody may be waiting; f may be NULL */

/* Waits for the files of an adapter, fetching them if they are not on their way yet. done is called once, later from
 * the loop; why NULL: the files are there, and stay so during the call. */
fetch_wait *fetches_ask(fetches *f, const registered *what, void (*done)(void *ctx, const err *why), void *ctx);
void fetches_forget(fetch_wait *w); /* done will not be called; the fetch goes on */

void fetches_write_metrics(const fetches *f, buf *out);

#endif
