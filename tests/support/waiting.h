/* waiting.h - waiting on an event loop in tests: for a condition, or a while in which something must not happen */
#ifndef PUNICA_TESTS_SUPPORT_WAITING_H
#define PUNICA_TESTS_SUPPORT_WAITING_H

#include "base/clock.h"
#include "net/event_loop.h"
#include "support/test.h"

/* Handles pending events, or the first that come within 5 ms. */
void waiting_turn(event_loop *loop);

/* Turns the loop until the condition holds; the test fails after 10 seconds. */
#define UNTIL(loop, condition)                                         \
    do {                                                               \
        double give_up = clock_now() + 10;                             \
        while (!(condition)) {                                         \
            waiting_turn(loop);                                        \
            if (clock_now() > give_up)                                 \
                fail_msg("10 s passed, and still not %s", #condition); \
        }                                                              \
    } while (0)

/* Turns the loop for so many seconds. */
#define PASS(loop, seconds)                     \
    do {                                        \
        double until = clock_now() + (seconds); \
        UNTIL(loop, clock_now() > until);       \
    } while (0)

#endif
