/* host_tier.h - pages of the KvCache in pinned host memory: where kv_pool's moves are done
 *
 *   kv_pool (what moves) ──▶ host_tier (memory, batches of copies, what they take) ──▶ backend copy ops
 *
 * Each device of a group has a region of host memory, claimed at the start; page i of all regions together is page i of
 * the host. A device has one tier, and nobody else uses its copy ops. Engine thread only. */
#ifndef PUNICA_ENGINE_HOST_TIER_H
#define PUNICA_ENGINE_HOST_TIER_H

#include "backend/batch.h"
#include "backend/backend.h"
#include "engine/kv_pool.h"

typedef struct host_tier host_tier;

/* Claim pinned memory for up to `bytes` of pages, or for fewer if the host has less, and measure copies of kv
 * ([devices], borrowed until host_tier_free(), without content yet). NULL: there is no room for one page. */
host_tier *host_tier_new(backend *first, const kv_cache *kv, size_t bytes);
void host_tier_free(host_tier *t); /* waits for what is under way; t may be NULL */

int host_tier_pages(const host_tier *t);

/* Begin the moves that the pool has decided on. */
void host_tier_begin(host_tier *t, kv_pool *p);

/* Tell the pool which moves have ended; with wait, block until pages have come in, if any are on their way. */
void host_tier_poll(host_tier *t, kv_pool *p, bool wait);

/* Make all that is asked of the devices from now on wait for all moves. */
void host_tier_order(host_tier *t);

/* Seconds that fetching a page takes, measured when the tier was made and since. */
double host_tier_page_seconds(const host_tier *t);

#endif
