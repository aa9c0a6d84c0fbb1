/* json.h - jansson with our errors
 *
 * Reading: json_read_* parse and report one-line errors with the place. Members: json_get_* fetch
 * a member of the right type; an absent or null member leaves *out untouched and is no error, so
 * callers set the default first; a member of the wrong type is an error that names the key. */
#ifndef PUNICA_BASE_JSON_H
#define PUNICA_BASE_JSON_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Parses a document, owned by the caller (json_decref); NULL with e set on failure. NUL characters in
 * strings are kept: use json_string_length(). A file of more than max_size bytes is refused. */
json_t *json_read_file(const char *path, size_t max_size, err *e);
json_t *json_read_text(const char *text, size_t n, err *e);

/* As json_read_text(), for text from outside, which may grow fifty times as large in memory. Fails with *too_large set
 * when parsing takes more than `memory` bytes, or soon after *stop has become true (stop NULL: never). */
json_t *json_read_within(const char *text, size_t n, size_t memory, const atomic_bool *stop, bool *too_large, err *e);

int json_get_bool(const json_t *obj, const char *key, bool *out, err *e);
int json_get_int(const json_t *obj, const char *key, long min, long max, long *out, err *e);
int json_get_double(const json_t *obj, const char *key, double *out, err *e);
/* As json_get_double(); a number outside [min, max] is an error, and so is the default when it is outside. */
int json_get_double_in(const json_t *obj, const char *key, double min, double max, double *out, err *e);
/* *out is borrowed from obj. A string with a NUL character, which would be cut off there, is an error. */
int json_get_string(const json_t *obj, const char *key, const char **out, err *e);

/* Returns a member that is present and not null, else NULL. Borrowed from obj. */
json_t *json_member(const json_t *obj, const char *key);

#endif
