/* format.h - JSON Schema's "format" as languages */
#ifndef PUNICA_GRAMMAR_FORMAT_H
#define PUNICA_GRAMMAR_FORMAT_H

#include "grammar/dfa.h"

/* Returns the texts of a format; NULL for one that the standard does not define, which is ignored. Fails the build for
 * one that is defined but not served. */
const dfa *format_language(build *b, const char *name);

#endif
