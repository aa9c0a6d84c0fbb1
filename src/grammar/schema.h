/* schema.h - JSON Schema as a grammar
 *
 * Every output is valid by the schema, but not every valid text can be an output. Left out on purpose: properties in
 * another order than the schema's, undeclared properties where "additionalProperties" is absent, numbers of more than
 * 16 digits. A keyword whose demand an automaton cannot check is an error that names it. Keywords that the standard
 * does not know, and those that do not affect validity, are ignored, as it demands. */
#ifndef PUNICA_GRAMMAR_SCHEMA_H
#define PUNICA_GRAMMAR_SCHEMA_H

#include "grammar/rules.h"

/* Compiles a schema into r and returns the values that obey it. Fails the build when it is wrong or not served. */
const expr *schema_read(rules *r, const char *text, size_t n);
const expr *schema_any_object(rules *r);

#endif
