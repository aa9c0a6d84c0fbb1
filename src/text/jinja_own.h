/* jinja_own.h - which bytes of a string are the template's own
 *
 * What stands in the program is its own, and so are the tokens it is given by name; what comes from a conversation is
 * not. A string that is made of both knows which of its bytes are whose, through everything that templates do with
 * text: adding, slicing, stripping, replacing, joining, formatting, macros and blocks. Whatever makes text in another
 * way makes text that is not the template's own: then a special token in it is text, which is the safe side.
 *
 * Strings share their lists as they share their bytes: a list may go on behind the end of a string. */
#ifndef PUNICA_TEXT_JINJA_OWN_H
#define PUNICA_TEXT_JINJA_OWN_H

#include "text/jinja_value.h"

extern const own_list own_all; /* of a string that is the template's own as a whole */

/* What str_concat(a, b) has: sets own and own_at of x. */
void own_concat(jinja_run *r, str *x, const str *a, const str *b);

/* What the n bytes of s from `at` on have. */
void own_part(str *x, const str *s, size_t at);

/* They are added to a text that has `len` bytes. */
void own_add(jinja_run *r, own_list *to, size_t len, const str *s, size_t at, size_t n);

#endif
