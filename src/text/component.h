/* component.h - reading the parts of tokenizer.json: {"type": "Name", ...}, null, or a Sequence
 *
 * Anything unknown is an error that names it; nothing is skipped. */
#ifndef PUNICA_TEXT_COMPONENT_H
#define PUNICA_TEXT_COMPONENT_H

#include <stddef.h>

#include "base/err.h"
#include "base/json.h"

/* Checks that spec has only these members (names separated by spaces). 0, or -1 with e set. */
int component_keys(const json_t *spec, const char *names, err *e);

/* Gets a member that must be a string; it may hold NULs. Borrowed: while spec lives. */
int component_text(const json_t *spec, const char *key, const char **text, size_t *n, err *e);

/* Calls add(self, type, spec) for the component, or in order for each one in a Sequence (listed
 * under list_key), however nested; not at all for null. 0, or -1 with e set: at the first failure of
 * add, or if there are more than COMPONENT_MAX_STEPS components. Errors are prefixed with kind and type. */
typedef int (*component_add)(void *self, const char *type, const json_t *spec, err *e);
int component_each(const json_t *spec, const char *kind, const char *list_key, component_add add, void *self, err *e);

#define COMPONENT_MAX_STEPS 16

#endif
