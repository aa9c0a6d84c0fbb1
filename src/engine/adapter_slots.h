/* adapter_slots.h - which adapters are in backend memory
 *
 * A fixed number of slots, each holding one adapter of its true rank. When slots or memory run out, the least recently
 * used adapter that nobody holds makes room. Loading is done beside the engine (base/jobs.h), so steps go on meanwhile:
 * adapter_slots_hold() returns SLOT_LOADING until the weights have arrived. A failed load fails those who asked for it
 * and is forgotten, so that a later request tries again.
 *
 * A device with memory of its own gets its adapters from images in pinned host memory (image_cache.h):
 * an adapter that lost its slot comes back with one copy.
 *
 * All functions on the engine thread; only the load callback runs where the loaders do. */
#ifndef PUNICA_ENGINE_ADAPTER_SLOTS_H
#define PUNICA_ENGINE_ADAPTER_SLOTS_H

#include "backend/backend.h"

/* Make the adapter of this name, in host memory and the backend's types (adapter_to_lora), owned by the caller; NULL
 * with e set. Runs where the loaders do, several calls at a time, of different names. */
typedef struct {
    lora *(*load)(void *ctx, const char *name, err *e);
    void *ctx;
} adapter_source;

typedef struct jobs jobs; /* base/jobs.h */
typedef struct adapter_slots adapter_slots;
typedef struct adapter_slot adapter_slot;

typedef enum { SLOT_READY, SLOT_LOADING, SLOT_FULL, SLOT_FAILED } slot_state;

/* image_bytes: of pinned host memory for images; not used where host memory is the device's own. loaders: what loads
 * adapters, and does nothing else; borrowed until adapter_slots_free(). NULL: threads of its own, several unless the
 * cores compute the steps. */
adapter_slots *adapter_slots_new(backend *be, int n_slots, size_t image_bytes, adapter_source source, jobs *loaders);
void adapter_slots_free(adapter_slots *s);

/* Claim the adapter's slot and start loading it if need be. *slot stays claimed, and its adapter in memory, until
 * adapter_slots_drop(). It is NULL when SLOT_FULL: all slots are claimed. */
slot_state adapter_slots_hold(adapter_slots *s, const char *name, adapter_slot **slot);
void adapter_slots_drop(adapter_slots *s, adapter_slot *slot);

/* Return the state of a claimed slot; e gets the reason when SLOT_FAILED. */
slot_state adapter_slot_state(const adapter_slot *slot, err *e);
const lora *adapter_slot_lora(const adapter_slot *slot);                    /* when SLOT_READY */
int adapter_slots_number(const adapter_slots *s, const adapter_slot *slot); /* from 0 */

/* Take in finished loads; with wait, block until at least one has finished, if any is under way. */
void adapter_slots_poll(adapter_slots *s, bool wait);

/* Returns whether any load is under way. A load that waits for memory that is in use does not count. */
bool adapter_slots_busy(const adapter_slots *s);

/* Where adapters are: in the device's memory, or ready in the host's. */
typedef enum { TIER_DEVICE, TIER_HOST, TIER_DISK } adapter_tier;
typedef struct {
    const char *name;  /* borrowed: during the call */
    adapter_tier tier; /* TIER_DEVICE or TIER_HOST */
    adapter_tier from; /* of one on the device: where it came from, */
    double seconds;    /* and how long that took, from when it was first wanted */
} adapter_resident;

/* Return a number that grows when an adapter has come to the device or gone from it. */
uint64_t adapter_slots_changes(const adapter_slots *s);

/* Call each() for every adapter that is loaded. Those in host memory are left out while a loader is at work there. */
void adapter_slots_each(adapter_slots *s, void (*each)(void *ctx, const adapter_resident *r), void *ctx);

#endif
