/* component.h - reading the parts of tokenizer.json: {"type": "Name", ...}, null, or a Sequence
 *
 * What is not understood is refused by name; nothing is skipped. */
#ifndef PUNICA_TEXT_COMPONENT_H
#define PUNICA_TEXT_COMPONENT_H

#include <stddef.h>

#include "base/err.h"
#include "base/json.h"

/* Only these members (names with spaces between) may be there. */
int component_keys(const json_t *spec, const char *names, err *e);

/* A member that must be a string; it may hold NULs. Borrowed: while spec lives. */
int component_text(const json_t *spec, const char *key, const char **text, size_t *n, err *e);

/* Call add(self, type, spec) for the component, or for each of a Sequence's (its list is under
 * list_key) in order, however nested. null: no call. Errors are prefixed with kind and type. At
 * most MAX_STEPS calls. */
typedef int (*component_add)(void *self, const char *type, const json_t *spec, err *e);
int component_each(const json_t *spec, const char *kind, const char *list_key, component_add add, void *self, err *e);

#define MAX_STEPS 16

#endif
