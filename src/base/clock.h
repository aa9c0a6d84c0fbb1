/* clock.h - time in seconds: monotonic, and by the wall clock */
#ifndef PUNICA_BASE_CLOCK_H
#define PUNICA_BASE_CLOCK_H

#include <time.h>

static inline double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* clock_now() in the form of a clock that is passed as a parameter. */
static inline double clock_reading(void *unused)
{
    (void)unused;
    return clock_now();
}

/* Seconds since 1970 by the wall clock, which may jump. */
static inline double clock_wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
