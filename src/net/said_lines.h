/* said_lines.h - rate limit of the log: which lines were logged during the last minute
 *
 * When all places are taken by lines younger than a minute, further lines count as logged too: a peer that can make us
 * log must not flood the log. One thread. */
#ifndef PUNICA_NET_SAID_LINES_H
#define PUNICA_NET_SAID_LINES_H

#include <stdbool.h>

enum { N_SAID_LINES = 64 };

/* All zero: nothing has been logged. */
typedef struct {
    struct {
        char what[480];
        double at;
    } line[N_SAID_LINES];
} said_lines;

/* Tells whether a line was logged during the last minute, or too many others were. If not, it is remembered in place of
 * the oldest. now: seconds of any clock. */
bool said_lines_repeats(said_lines *said, const char *what, double now);

void said_lines_forget(said_lines *said);

#endif
