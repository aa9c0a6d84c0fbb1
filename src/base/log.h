/* log.h - what happens, one line an event, to standard error or to a file
 *
 *   2026-03-01T12:00:00.123Z info runner gpu3/812 at 10.0.0.3:40112 is up
 *
 * A line is written whole, so that lines of several processes do not mix, and never waits for a reader: where standard
 * error is a pipe, a socket or a terminal that takes nothing, up to 256 KiB of lines are kept, in order, and written by
 * a thread of their own once it does. What does not fit is lost, and how much is said in its place. (A disk may still
 * be slow.) Any thread. */
#ifndef PUNICA_BASE_LOG_H
#define PUNICA_BASE_LOG_H

#include <stddef.h>

#include "base/err.h"

typedef enum { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

/* What is less urgent than this is not written; LOG_INFO at first. */
void log_set_level(log_level level);

/* "error", "warn", "info" or "debug"; -1 for anything else. */
int log_parse_level(const char *name, log_level *level, err *e);

/* Make path, which is appended to, the standard error of this process and of those it starts. Called again it is opened
 * anew: what was there may have been renamed. On -1 everything is as before. */
int log_open_file(const char *path, err *e);

/* Where lines go instead of standard error, without time and level: the simulation's trace. NULL: there. */
void log_set_sink(void (*sink)(void *ctx, const char *text), void *ctx);

void log_line(log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The n bytes of a line that is complete, its newline included, as they are; at most 4096 to be whole among others. */
void log_write(const char *line, size_t n);

/* Write what is kept, waiting half a second at most; the end of the process does this by itself, also an end by CHECK()
 * and, from log_catch_crashes() on, by a signal that means a mistake of ours, which then does what it always did. */
void log_flush(void);
void log_catch_crashes(void);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
