/* said_lines.c - see said_lines.h */
#include "net/said_lines.h"

#include <stdio.h>
#include <string.h>

static const double SAME_LINE_AGAIN = 60; /* seconds */

bool said_lines_repeats(said_lines *said, const char *what, double now)
{
    int oldest = 0;
    for (int i = 0; i < N_SAID_LINES; i++) {
        if (strcmp(said->line[i].what, what) == 0 && now - said->line[i].at < SAME_LINE_AGAIN)
            return true;
        if (said->line[i].at < said->line[oldest].at)
            oldest = i;
    }
    if (*said->line[oldest].what && now - said->line[oldest].at < SAME_LINE_AGAIN)
        return true;
    snprintf(said->line[oldest].what, sizeof said->line[oldest].what, "%s", what);
    said->line[oldest].at = now;
    return false;
}

void said_lines_forget(said_lines *said)
{
    memset(said, 0, sizeof *said);
}
