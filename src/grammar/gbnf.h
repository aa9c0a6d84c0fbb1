/* gbnf.h - llama.cpp's notation for grammars
 *
 * name ::= alternatives; "text", [classes], ., (groups), * + ? {m,n}, # comments. The rule `root` is where it begins.
 */
#ifndef PUNICA_GRAMMAR_GBNF_H
#define PUNICA_GRAMMAR_GBNF_H

#include "grammar/rules.h"

/* Reads all rules of the text into r and returns what `root` matches. Fails the build when the text is wrong. */
const expr *gbnf_read(rules *r, const char *text, size_t n);

#endif
