/* log_limit.c - see log_limit.h */
#include "net/log_limit.h"

#include <stdio.h>
#include <string.h>

static const double SAME_LINE_AGAIN = 60; /* seconds */

bool log_limit_repeats(log_limit *l, const char *what, double now)
{
    int oldest = 0;
    for (int i = 0; i < LOG_LIMIT_LINES; i++) {
        if (strcmp(l->line[i].what, what) == 0 && now - l->line[i].at < SAME_LINE_AGAIN)
            return true;
        if (l->line[i].at < l->line[oldest].at)
            oldest = i;
    }
    if (*l->line[oldest].what && now - l->line[oldest].at < SAME_LINE_AGAIN)
        return true;
    snprintf(l->line[oldest].what, sizeof l->line[oldest].what, "%s", what);
    l->line[oldest].at = now;
    return false;
}

void log_limit_forget(log_limit *l)
{
    memset(l, 0, sizeof *l);
}
