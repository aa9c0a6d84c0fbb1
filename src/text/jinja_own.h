/* jinja_own.h - which bytes of a string are the template's own
 *
 * Taint tracking, byte by byte, with "own" for untainted. The template's own bytes are those of the program's literals,
 * of the special tokens that it gets as variables, and of well-known roles (jinja_json.c); all other text of a
 * conversation is not own. A string made of both knows which of its bytes are own, through everything that templates do
 * with text: adding, slicing, stripping, replacing, joining, formatting, macros and blocks. Text made in any other way
 * is not own, which is the safe side: a special token in it is then ordinary text.
 *
 * Strings share their lists as they share their bytes: a list may have spans beyond the end of a string. */
#ifndef PUNICA_TEXT_JINJA_OWN_H
#define PUNICA_TEXT_JINJA_OWN_H

#include "text/jinja_value.h"

extern const own_list own_all; /* of a string that is the template's own as a whole */

/* Sets own and own_at of x, the concatenation of a and b. */
void own_concat(jinja_run *r, str *x, const str *a, const str *b);

/* Sets own and own_at of x, whose bytes are those of s from `at` on. */
void own_part(str *x, const str *s, size_t at);

/* Adds to `to`, the list of a text of len bytes, which of the n bytes of s from `at` on are own. The caller appends
 * those n bytes to the text. */
void own_add(jinja_run *r, own_list *to, size_t len, const str *s, size_t at, size_t n);

#endif
