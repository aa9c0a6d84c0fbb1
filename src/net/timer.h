/* timer.h - seconds as numbers, for libevent */
#ifndef PUNICA_NET_TIMER_H
#define PUNICA_NET_TIMER_H

#include <event2/event.h>

static inline struct timeval timer_seconds(double seconds)
{
    time_t whole = (time_t)seconds;
    return (struct timeval){.tv_sec = whole, .tv_usec = (suseconds_t)((seconds - (double)whole) * 1e6)};
}

/* Makes a timer fire in so many seconds from now, in place of any earlier setting. */
static inline void timer_set(struct event *timer, double seconds)
{
    struct timeval t = timer_seconds(seconds);
    event_add(timer, &t);
}

#endif
