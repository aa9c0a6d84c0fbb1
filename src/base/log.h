/* log.h - the log: one line per event, to standard error or to a file
 *
 *   2026-03-01T12:00:00.123Z info runner gpu3/812 at 10.0.0.3:40112 is up
 *
 * A line is written whole, so that lines of several processes do not mix, and writing never blocks: when standard error
 * is a pipe, a socket or a terminal that takes nothing, up to 256 KiB of lines are kept, in order, and written by a
 * thread of their own once it does. Lines that do not fit are lost, and a line in their place says how many. (A slow
 * disk may still block.) Any thread. */
#ifndef PUNICA_BASE_LOG_H
#define PUNICA_BASE_LOG_H

#include <stddef.h>

#include "base/err.h"

typedef enum { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

/* Sets the least urgent level that is written; LOG_INFO at first. */
void log_set_level(log_level level);

/* Parses "error", "warn", "info" or "debug"; -1 for anything else. */
int log_parse_level(const char *name, log_level *level, err *e);

/* Appends standard error, of this process and of those it starts, to the file at path. Called again, it reopens path,
 * since the old file may have been renamed (log rotation). On -1 everything is as before. */
int log_open_file(const char *path, err *e);

/* Passes lines, without time and level, to sink instead of standard error: for the simulation's trace. sink NULL: to
 * standard error again. */
void log_set_sink(void (*sink)(void *ctx, const char *text), void *ctx);

void log_line(log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes the n bytes of a complete line, newline included, unchanged. A pipe keeps up to 4096 bytes whole among other
 * processes' lines. */
void log_write(const char *line, size_t n);

/* Writes the lines that are kept, waiting half a second at most. Done at exit, by CHECK() and, after
 * log_catch_crashes(), on signals of a crash (SIGSEGV and the like), which then take their default action. */
void log_flush(void);
void log_catch_crashes(void);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
