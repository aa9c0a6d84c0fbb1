/* log.c - see log.h */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic log_level limit = LOG_INFO;
static struct { void (*take)(void *ctx, const char *text); void *ctx; } sink;   /* of one thread */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_set_level(log_level level)
{
    limit = level;
}

void log_set_sink(void (*take)(void *ctx, const char *text), void *ctx)
{
    sink.take = take;
    sink.ctx = ctx;
}

int log_parse_level(const char *name, log_level *level, err *e)
{
    for (int i = 0; i <= LOG_DEBUG; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *level = (log_level)i;
            return 0;
        }
    return err_set(e, "unknown log level \"%s\"; known: error, warn, info, debug", name);
}

/* Characters that would break the line, or a terminal, become '?'. */
static void make_printable(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = '?';
}

void log_line(log_level level, const char *fmt, ...)
{
    if (level > limit)
        return;
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char line[1200];
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s ", now.tv_nsec / 1000000, level_names[level]);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - n - 1, fmt, args);
    va_end(args);
    size_t room = sizeof line - n - 2, end = n + (more < 0 ? 0 : (size_t)more < room ? (size_t)more : room);
    make_printable(line + n, end - n);
    if (sink.take) {
        line[end] = '\0';
        sink.take(sink.ctx, line + n);
        return;
    }
    line[end] = '\n';
    if (write(STDERR_FILENO, line, end + 1) < 0)
        return;         /* nobody is left to be told */
}
