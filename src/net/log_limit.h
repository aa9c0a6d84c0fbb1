/* log_limit.h - rate limit of the log: which lines were logged during the last minute
 *
 * When all places are taken by lines younger than a minute, further lines count as logged too: a peer that can make us
 * log must not flood the log. One thread. */
#ifndef PUNICA_NET_LOG_LIMIT_H
#define PUNICA_NET_LOG_LIMIT_H

#include <stdbool.h>

enum { LOG_LIMIT_LINES = 64 };

/* All zero: nothing has been logged. */
typedef struct {
    struct {
        char what[480];
        double at;
    } line[LOG_LIMIT_LINES];
} log_limit;

/* Returns whether a line was logged during the last minute, or too many others were. If not, it is remembered in place
 * of the oldest. now: seconds of any clock. */
bool log_limit_repeats(log_limit *l, const char *what, double now);

void log_limit_forget(log_limit *l);

#endif
