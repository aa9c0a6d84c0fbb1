/* log.h - what happens, one line an event, to standard error
 *
 *   2026-03-01T12:00:00.123Z info runner gpu3/812 at 10.0.0.3:40112 is up
 *
 * A line is written whole, so that lines of several processes do not mix. Any thread. */
#ifndef PUNICA_BASE_LOG_H
#define PUNICA_BASE_LOG_H

#include "base/err.h"

typedef enum { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

/* What is less urgent than this is not written; LOG_INFO at first. */
void log_set_level(log_level level);

/* "error", "warn", "info" or "debug"; -1 for anything else. */
int log_parse_level(const char *name, log_level *level, err *e);

/* Where lines go instead of standard error, without time and level: the simulation's trace. NULL: there. */
void log_set_sink(void (*sink)(void *ctx, const char *text), void *ctx);

void log_line(log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
