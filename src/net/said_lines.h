/* said_lines.h - which lines were logged not long ago, so that the same is not logged all the time
 *
 * Remembers some lines for a minute each. When all places are taken by lines younger than that, further lines count as
 * logged too: whoever can make us log must not fill the log. One thread. */
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

/* Whether a line was logged not long ago, or too much else. If not, it is remembered in place of the oldest. now:
 * seconds of any clock. */
bool said_lines_repeats(said_lines *said, const char *what, double now);

void said_lines_forget(said_lines *said);

#endif
