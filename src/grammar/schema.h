/* schema.h - JSON Schema as a grammar
 *
 * Whatever is made is valid by the schema; not everything that is valid can be made. Left out on purpose: properties in
 * another order than the schema's, properties that are not named where "additionalProperties" is not said, numbers of
 * more than 16 digits. A keyword that asks for something an automaton cannot see to is an error that names it. Keywords
 * that the standard does not know, and those that say nothing of what is valid, are ignored, as it demands. */
#ifndef PUNICA_GRAMMAR_SCHEMA_H
#define PUNICA_GRAMMAR_SCHEMA_H

#include "grammar/rules.h"

const expr *schema_read(rules *r, const char *text, size_t n);
const expr *schema_any_object(rules *r);

#endif
