/* placement.h - requests in line, on GPUs, and how they come from one to the other (internal to the scheduler)
 *
 *             ┌───────────── evicted, recovered, too many ──────────────┐
 *             ▼                                                         │
 *             queue ─── fill: oldest first, to the fullest with room ─▶ GPU ── finished ─▶ end
 *             suspects ──────────────┤                                ▲ │
 *   submit ─▶ newcomers ─────────────┘     leaving (draining, slow) ─┘ └─ consolidation: from light to busier
 *
 * Three lines of those who have been on a GPU, in one order, by turn: the queue; suspects, which need a GPU without
 * another suspect; and those leaving a GPU that drains or is slow, which go on running until there is room elsewhere.
 * placement_fill() serves whoever is first of all three, and when none of them waits, newcomers by their tenants'
 * shares (shares.h). Whoever begins as one before it did may go to that one's GPU instead of the fullest (prefixes.h).
 * The first of the queue or of the newcomers who does not fit stops everybody behind; one that leaves, or waits only
 * for other suspects to prove harmless, stops its own line; one that no open GPU could hold, however empty, steps aside
 * and stops nobody.
 *
 * Before them come those who are confined (request.h): every GPU that is empty is theirs. While some wait and none is
 * empty, one GPU is reserved for them: nobody else is given to it, and who runs there leaves as others have room. */
#ifndef PUNICA_SCHEDULER_PLACEMENT_H
#define PUNICA_SCHEDULER_PLACEMENT_H

#include "scheduler/state.h"

/* Serve the lines until who is first has to wait. Every event ends with it. */
void placement_fill(scheduler *s, double now);

/* A request that is on no GPU waits. One that had all its tokens, and only the end of it was
 * lost, is ended. */
void placement_enqueue(scheduler *s, request *r);

void placement_set_late(scheduler *s, request *r,
                        bool may_be); /* whether it waits for its first GPU, and not for ever */

/* The GPU for a request: the fullest that has room, or NULL. */
gpu *placement_find_room(const scheduler *s, room_kind kind, const request *r);

/* There are open GPUs, but none that could hold it, however empty. */
bool placement_is_too_large(const scheduler *s, const request *r);

/* It is too large, new, and no GPU so far could have held it. */
bool placement_is_hopeless(const scheduler *s, const request *r);
void placement_end_too_large(scheduler *s, request *r);

/* Other GPUs are open than before: who stepped aside and is not too large any more is back in line. */
void placement_call_back(scheduler *s);

/* A GPU is of no use any more to those who must be alone. */
void placement_unreserve(scheduler *s);

/* A GPU is not open any more, and its requests leave as others have room; or it is open again, and they stay. To be
 * called before it is marked so, and after. */
void placement_close(scheduler *s, gpu *g);
void placement_open(scheduler *s, gpu *g);

/* The GPU's one request has shown that it can be among others: it goes back in line if others have to be alone. */
void placement_release(scheduler *s, gpu *g);

/* How many are on no GPU. */
int placement_n_waiting(const scheduler *s);

/* As a new attempt; with its command. */
void placement_put_on(scheduler *s, double now, request *r, gpu *g);

/* Off its GPU, and in no line. tell: the GPU does not know yet, and gets the command. */
void placement_take_off(scheduler *s, request *r, bool tell);

/* A GPU's working set, room or suspects have changed; bring the order of GPUs up to date before anybody looks for room.
 */
void placement_touch(scheduler *s, gpu *g);
void placement_settle(scheduler *s);

/* Forget a request wherever it is; its GPU is told. */
void placement_drop(scheduler *s, request *r);

/* Tell the frontend, too. fmt NULL: no message. */
void placement_end(scheduler *s, request *r, end_reason why, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The worker failed a request, which is on no GPU any more. */
void placement_fail(scheduler *s, request *r, const report_end *e);

/* Tell a frontend of the end of what is no request here. */
void placement_tell_end(scheduler *s, int frontend, uint64_t id, end_reason why, const char *message);

#endif
