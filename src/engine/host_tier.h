/* host_tier.h - pages of the KvCache in pinned host memory: where kv_pool's moves are done
 *
 *   kv_pool (what moves) ──▶ host_tier (memory, batches of copies, what they take) ──▶ backend copy ops, beside the
 * steps
 *
 * One region of host memory for each device of a group, claimed at the start; page i of all of them together is page i
 * of the host. A device has one tier: nobody else uses its copy ops. Engine thread only. */
#ifndef PUNICA_ENGINE_HOST_TIER_H
#define PUNICA_ENGINE_HOST_TIER_H

#include "backend/batch.h"
#include "backend/backend.h"
#include "engine/kv_pool.h"

typedef struct host_tier host_tier;

/* Room for up to `bytes` of pages of kv ([devices], whose content is lost), or for as many as the host has memory to
 * pin for. kv is borrowed until host_tier_free(). NULL: not for one. */
host_tier *host_tier_new(backend *first, const kv_cache *kv, size_t bytes);
void host_tier_free(host_tier *t); /* waits for what is under way; t may be NULL */

int host_tier_pages(const host_tier *t);

/* Begin the moves that the pool has decided on. */
void host_tier_begin(host_tier *t, kv_pool *p);

/* Tell the pool of those that have ended; with wait, block until pages have come in, if any are on their way. */
void host_tier_poll(host_tier *t, kv_pool *p, bool wait);

/* Nothing that is asked of the devices from now on begins before all moves have ended. */
void host_tier_order(host_tier *t);

/* Seconds that a page takes to come in: measured when the tier was made and since. */
double host_tier_page_seconds(const host_tier *t);

#endif
