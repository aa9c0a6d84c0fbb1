/* gbnf.h - llama.cpp's notation for grammars
 *
 * name ::= alternatives; "text", [classes], ., (groups), * + ? {m,n}, # comments. The rule `root` is where it begins.
 */
#ifndef PUNICA_GRAMMAR_GBNF_H
#define PUNICA_GRAMMAR_GBNF_H

#include "grammar/rules.h"

/* All rules of the text into r; what root matches. */
const expr *gbnf_read(rules *r, const char *text, size_t n);

#endif
