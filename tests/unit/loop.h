/* loop.h - waiting on an event loop in tests: for a condition, or a while in which something must not
 * happen */
#ifndef PUNICA_TESTS_LOOP_H
#define PUNICA_TESTS_LOOP_H

#include "base/clock.h"
#include "net/event_loop.h"
#include "test.h"

static void loop_do_nothing(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
}

/* Handle what there is, or the first thing that comes within 5 ms. */
static inline void loop_turn(event_loop *loop)
{
    struct timeval t = {.tv_usec = 5000};
    event_base_once(loop->events, -1, EV_TIMEOUT, loop_do_nothing, NULL, &t);
    event_base_loop(loop->events, EVLOOP_ONCE);
}

/* Turn the loop until the condition holds; the test fails after 10 seconds. */
#define UNTIL(loop, condition)                                         \
    do {                                                               \
        double give_up = clock_now() + 10;                             \
        while (!(condition)) {                                         \
            loop_turn(loop);                                           \
            if (clock_now() > give_up)                                 \
                fail_msg("10 s passed, and still not %s", #condition); \
        }                                                              \
    } while (0)

/* Let so much time pass. */
#define PASS(loop, seconds)                     \
    do {                                        \
        double until = clock_now() + (seconds); \
        UNTIL(loop, clock_now() > until);       \
    } while (0)

#endif
