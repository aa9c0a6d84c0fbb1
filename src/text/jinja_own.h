/* jinja_own.h - which bytes of a string are the template's own
 *
 * Taint tracking by byte. The template's own are the literals of the program, the tokens it is given by name and
 * well-known roles (jinja_json.c); the rest of a conversation is not. A string made of both knows which of its bytes
 * are own, through everything that templates do with text: adding, slicing, stripping, replacing, joining, formatting,
 * macros and blocks. Text made in any other way is not own: a special token in it is then text, which is the safe side.
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

/* Adds to `to`, the list of a text of len bytes, what is own in the n bytes of s from `at` on, which are appended to
 * the text. */
void own_add(jinja_run *r, own_list *to, size_t len, const str *s, size_t at, size_t n);

#endif
