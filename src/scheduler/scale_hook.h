/* scale_hook.h - an operator's command that is run when the cluster's size should change
 *
 * Runs `CMD up` or `CMD down UUID...` through the shell when such advice has held for a moment, and again as long as it
 * holds: one command at a time, and at most every so many seconds. The loop never waits for it. */
#ifndef PUNICA_SCHEDULER_SCALE_HOOK_H
#define PUNICA_SCHEDULER_SCALE_HOOK_H

#include <event2/event.h>

enum { SCALE_HOOK_EVERY = 30 }; /* seconds, by default */

typedef struct scale_hook scale_hook;

/* every: seconds between two runs, at least. Free with scale_hook_free(). */
scale_hook *scale_hook_new(struct event_base *loop, const char *command, double every);
void scale_hook_free(scale_hook *h); /* a command that is running goes on */

/* Takes the present advice ("up", "down UUID...", ""): to be called a few times a second. now: any clock, seconds. */
void scale_hook_advise(scale_hook *h, double now, const char *advice);

#endif
