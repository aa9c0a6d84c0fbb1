/* format.h - JSON Schema's "format" as languages */
#ifndef PUNICA_GRAMMAR_FORMAT_H
#define PUNICA_GRAMMAR_FORMAT_H

#include "grammar/dfa.h"

/* The texts of a format; NULL: the standard does not know it, and it says nothing. Fails for one that is known and not
 * served. */
const dfa *format_language(build *b, const char *name);

#endif
