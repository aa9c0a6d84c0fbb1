/* waiting.c - see waiting.h */
#include "support/waiting.h"

static void do_nothing(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
}

void waiting_turn(event_loop *loop)
{
    struct timeval t = {.tv_usec = 5000};
    event_base_once(loop->events, -1, EV_TIMEOUT, do_nothing, NULL, &t);
    event_base_loop(loop->events, EVLOOP_ONCE);
}
