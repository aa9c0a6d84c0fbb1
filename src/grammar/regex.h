/* regex.h - regular expressions in the dialect of JSON Schema (ECMA 262) as languages over UTF-8
 *
 * Known: characters and their escapes, classes, . \d \w \s and their opposites, groups (also named), alternatives,
 * quantifiers (greedy or not is the same here), ^ and $ wherever they stand. Look-around, back references and word
 * borders are no regular matter, or not served: an error that names them. */
#ifndef PUNICA_GRAMMAR_REGEX_H
#define PUNICA_GRAMMAR_REGEX_H

#include "grammar/dfa.h"

typedef enum { REGEX_WHOLE, REGEX_SOMEWHERE } regex_place; /* all of the text must match, or some part of it */

/* The texts that match. */
const dfa *regex_language(build *b, const char *text, size_t n, regex_place place);

#endif
