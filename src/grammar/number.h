/* number.h - sets of numbers as languages: between bounds, multiples of something
 *
 * Numbers are written plainly, -12.5, without an exponent and without redundant zeros: each has one spelling, so that
 * sets of numbers can be subtracted. */
#ifndef PUNICA_GRAMMAR_NUMBER_H
#define PUNICA_GRAMMAR_NUMBER_H

#include "base/json.h"
#include "grammar/dfa.h"

const dfa *number_all(build *b); /* of up to 15 digits */
const dfa *number_integers(build *b);

/* Returns the numbers that are at least (sign 1) or at most (sign -1) the bound; strict: without the bound. Errors name
 * the keyword. */
const dfa *number_bounded(build *b, const json_t *bound, int sign, bool strict, const char *keyword);

const dfa *number_multiples(build *b, const json_t *of);

/* Compares exactly: less than, equal to or more than 0. */
int number_compare(const json_t *x, const json_t *y);

/* Returns whether v is a multiple of a number, as they are written in decimal. */
bool number_is_multiple(build *b, const json_t *v, const json_t *of);

/* Writes a number in that spelling to out, [NUMBER_TEXT]; for languages and enumerations. */
enum { NUMBER_TEXT = 400 };
void number_text(const json_t *v, char *out);

#endif
