/* stop.h - strings that end an output, wherever token borders fall
 *
 * Text grows at its end. What cannot be part of a stop string any more may be shown; the rest is held back until
 * it is certain. Pure functions. */
#ifndef PUNICA_FRONTEND_STOP_H
#define PUNICA_FRONTEND_STOP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char *text;
    size_t n;
} stop_string; /* text: [n], n >= 1 */

/* Returns whether one of the stop strings is in text[from..n), and where the first one begins and ends. */
bool stop_find(const stop_string *s, int n_stops, const char *text, size_t from, size_t n, size_t *at, size_t *end);

/* Returns how far text[from..n), in which there is no stop string, may be shown: up to where one may have begun. */
size_t stop_safe(const stop_string *s, int n_stops, const char *text, size_t from, size_t n);

#endif
