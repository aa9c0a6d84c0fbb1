/* sched_gpus.h - what runners say to the scheduler's server of their GPUs, and how fast those are
 *
 * A runner announces each GPU when its worker is ready (GpuUp) and when it is gone (GpuGone), reports every step, and
 * says when it drains. How long steps take is judged by pace.h; a GPU that is slow, or whose last worker crashed, is
 * probed: asked to make a few tokens that belong to no request. */
#ifndef PUNICA_SCHEDULER_SCHED_GPUS_H
#define PUNICA_SCHEDULER_SCHED_GPUS_H

#include "scheduler/sched_server_state.h"

/* Handles a message of a runner. The peer may be freed by this: one that reports what cannot be is dropped. */
void sched_runner_message(sched_peer *p, const Message *m);

/* Looks at every GPU: judges its silence, and probes it if it is slow, empty and due for the next probe. */
void sched_gpus_watch(sched_server *v);

/* Loses all GPUs of a peer whose link is lost, at once, so that no request moves from one of them to another. */
void sched_gpus_lose_all(sched_peer *p);

#endif
