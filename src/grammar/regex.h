/* regex.h - regular expressions in the dialect of JSON Schema (ECMA 262) as languages over UTF-8
 *
 * Served: characters and their escapes, classes, . \d \w \s \D \W \S, groups (also named), alternatives, quantifiers
 * (greedy or lazy makes no difference here), ^ and $ anywhere. Look-around, back references and word boundaries are not
 * served: the error names them. */
#ifndef PUNICA_GRAMMAR_REGEX_H
#define PUNICA_GRAMMAR_REGEX_H

#include "grammar/dfa.h"

typedef enum { REGEX_WHOLE, REGEX_SOMEWHERE } regex_place; /* all of the text must match, or some part of it */

/* Returns the texts that match. Fails the build when the expression is wrong or not served. */
const dfa *regex_language(build *b, const char *text, size_t n, regex_place place);

#endif
