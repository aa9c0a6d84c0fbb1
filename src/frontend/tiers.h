/* tiers.h - where each adapter is at present: with its source only, on this host's disk, or in the memory of which GPUs
 * and their hosts
 *
 * Workers list what is in memory every few seconds (wire.proto, Residents); a GPU that has been silent for half a
 * minute is forgotten. The loop's thread updates, any thread may ask. */
#ifndef PUNICA_FRONTEND_TIERS_H
#define PUNICA_FRONTEND_TIERS_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/json.h"
#include "net/wire.pb-c.h"

typedef struct tiers tiers;

tiers *tiers_new(void);
void tiers_free(tiers *t); /* t may be NULL */

/* Replaces what a GPU has in memory. */
void tiers_update(tiers *t, const Residents *r);

/* Adds to o "tier", the nearest one that the adapter of this full name and id is at, and "memory", the GPUs that have
 * it. on_disk: of this host. What other names have of the same content is not told. */
void tiers_describe(tiers *t, const char *full, const char *id, bool on_disk, json_t *o);

/* Appends how many adapters are in memory, and how long they took to get there. */
void tiers_write_metrics(tiers *t, buf *out);

#endif
