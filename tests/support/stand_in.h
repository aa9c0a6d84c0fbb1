/* stand_in.h - a frontend and a stand-in for its scheduler on one event loop in a thread, for tests to be clients of
 *
 * The stand-in answers by the adapter's name: "parrot" repeats the prompt's tokens, one or two a message, "flood" does
 * so as fast as it can, "burst" does it in one message that ends it, with logprobs, "mute" says nothing, "full",
 * "late", "large", "failed" and "deadly" end at once for that reason, and "gap" leaves out a token once. stand_in_seen
 * counts what it is asked. The frontend has three more threads to write, and small buffers. */
#ifndef PUNICA_TESTS_SUPPORT_STAND_IN_H
#define PUNICA_TESTS_SUPPORT_STAND_IN_H

#include <stdatomic.h>

/* What the stand-in has been asked, and what tests tell it. */
typedef struct {
    atomic_int n_submits, n_cancels, n_ups, n_played; /* n_ups: times the frontend has come; n_played: tokens sent */
    atomic_int n_resubmits, n_again; /* of the submits: those that came with output; that said they came again */
    atomic_int drop;                 /* set by a test: lose the link */
    atomic_int gap_done;             /* "gap" has left out its token */
} stand_in_counts;

extern stand_in_counts stand_in_seen;

/* Puts an adapter of this name among those that the frontend serves. */
void stand_in_add_adapter(const char *name);
const char *stand_in_adapters_dir(void); /* where they are */

/* Setup and teardown of a group of tests. */
int stand_in_start(void **state);
int stand_in_stop(void **state);

#endif
