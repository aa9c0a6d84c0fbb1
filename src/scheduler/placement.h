/* placement.h - which request is given to which GPU next (internal to the scheduler)
 *
 * Requests wait in lines: priority queues, of which placement_fill() serves the first request of all.
 *
 *             ┌───────────── evicted, recovered, too many ──────────────┐
 *             ▼                                                         │
 *             queue ─── fill: oldest first, to the fullest with room ─▶ GPU ── finished ─▶ end
 *             suspects ──────────────┤                                ▲ │
 *   submit ─▶ newcomers ─────────────┘     leaving (draining, slow) ─┘ └─ consolidation: from light to busier
 *
 * Three lines hold requests that have been on a GPU, all ordered by turn (when each was first given to one): the queue;
 * suspects, which need a GPU without another suspect (request.h); and those leaving a GPU that drains or is slow, which
 * go on running there until there is room elsewhere. placement_fill() places the request with the earliest turn of all
 * three, and when none of them waits, newcomers, by their tenants' shares (shares.h). A request goes to the fullest GPU
 * with room, or to one that was given the same prefix before (prefixes.h).
 *
 * When the first of the queue or of the newcomers has no room, everybody behind it waits (head-of-line blocking). One
 * that is to leave its GPU, or a suspect that waits only for other suspects to prove harmless, blocks its own line
 * alone. One that no open GPU could hold, however empty, steps aside and blocks nobody.
 *
 * Before all of them come confined requests (request.h), which run alone: every GPU that is empty is theirs. While some
 * wait and none is empty, one GPU is reserved for them: nobody else is given to it, and what runs there leaves as
 * others have room. */
#ifndef PUNICA_SCHEDULER_PLACEMENT_H
#define PUNICA_SCHEDULER_PLACEMENT_H

#include "scheduler/state.h"

/* Places requests until the first in line has to wait. Every event of the scheduler ends with it. */
void placement_fill(scheduler *s, double now);

/* Puts a request that is on no GPU into its line. One that has all its tokens already, so that only the report of its
 * end was lost, is ended instead. */
void placement_enqueue(scheduler *s, request *r);

/* Adds a request to those that are ended when they have waited too long for their first GPU, or removes it. */
void placement_set_late(scheduler *s, request *r, bool may_be);

/* Returns the fullest GPU that has room of this kind for a request, or NULL. */
gpu *placement_find_room(const scheduler *s, room_kind kind, const request *r);

/* Returns whether GPUs are open, but none of them could hold the request, however empty. */
bool placement_is_too_large(const scheduler *s, const request *r);

/* Returns whether a request is to be refused for its size: it is too large, new, and no GPU so far could have held it.
 */
bool placement_is_hopeless(const scheduler *s, const request *r);
void placement_end_too_large(scheduler *s, request *r);

/* Puts requests that stepped aside, and fit into an open GPU now, back in line. To be called when the set of open GPUs
 * has changed. */
void placement_requeue_aside(scheduler *s);

/* Ends the reservation of the reserved GPU; there must be one. */
void placement_unreserve(scheduler *s);

/* placement_close() has the requests of a GPU leave it as others have room; to be called while it is still marked as
 * open. placement_open() lets them stay; to be called once it is marked as open again. */
void placement_close(scheduler *s, gpu *g);
void placement_open(scheduler *s, gpu *g);

/* Takes a request that was confined off the GPU that it has for itself, once it has made a token, if other confined
 * requests wait for an empty GPU. */
void placement_release(scheduler *s, gpu *g);

/* Returns how many requests are on no GPU. */
int placement_n_waiting(const scheduler *s);

/* Gives a request to a GPU as a new attempt, with the command. */
void placement_put_on(scheduler *s, double now, request *r, gpu *g);

/* Takes a request off its GPU; it is in no line then. tell: the GPU is sent a cancel, as it does not know yet. */
void placement_take_off(scheduler *s, request *r, bool tell);

/* placement_touch() notes that a GPU's working set, room or suspects have changed; placement_update_order() brings the
 * order of all GPUs that were touched up to date, and must be called before a search for room. */
void placement_touch(scheduler *s, gpu *g);
void placement_update_order(scheduler *s);

/* Forgets a request wherever it is; its GPU is told, its frontend is not. */
void placement_drop(scheduler *s, request *r);

/* Ends a request: drops it, and tells its frontend why. fmt NULL: no message. */
void placement_end(scheduler *s, request *r, end_reason why, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Ends a request that its worker failed, and that is on no GPU any more, with the worker's message. */
void placement_fail(scheduler *s, request *r, const report_end *e);

/* Tells a frontend that a request has ended, without dropping it: it need not be one that is kept here. */
void placement_tell_end(scheduler *s, int frontend, uint64_t id, end_reason why, const char *message);

#endif
