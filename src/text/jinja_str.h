/* jinja_str.h - Python's str: code points, Unicode white space and case, and Markup */
#ifndef PUNICA_TEXT_JINJA_STR_H
#define PUNICA_TEXT_JINJA_STR_H

#include "text/jinja_value.h"

#define STR_NOT_FOUND SIZE_MAX

const str *str_new(jinja_run *r, const char *s, size_t n); /* borrows s */
const str *str_copy(jinja_run *r, const char *s, size_t n);
const str *str_like(jinja_run *r, const str *from, const char *s, size_t n); /* borrows s; Markup and own as of from */
const str *str_of(jinja_run *r, const char *s);                              /* borrows s, a C string */

size_t str_chars(const str *s);                /* how many code points */
size_t str_offset(const str *s, size_t chars); /* bytes before code point number `chars`; n past the end */
const str *str_slice(jinja_run *r, const str *s, size_t from, size_t to); /* in code points */
size_t str_chars_before(const str *s, size_t offset);                     /* code points before byte `offset` */

bool str_equal(const str *a, const str *b);
bool str_is(const str *a, const char *b);
bool str_starts(const str *s, const char *with, size_t n);
bool str_ends(const str *s, const char *with, size_t n);

/* Returns where `what` first (last) stands within bytes [from, to) of s, or STR_NOT_FOUND. */
size_t str_find(jinja_run *r, const str *s, const str *what, size_t from, size_t to);
size_t str_find_last(jinja_run *r, const str *s, const str *what, size_t from, size_t to);

/* Returns a + b. Long strings keep room behind them, so that appending repeatedly is amortised O(length of b). */
const str *str_concat(jinja_run *r, const str *a, const str *b);
const str *str_repeat(jinja_run *r, const str *s, int64_t n);
const str *str_escape(jinja_run *r, const str *s); /* Markup(...) with & < > ' " as entities; Markup is itself */
const str *str_plain(jinja_run *r, const str *s);  /* s, but not Markup */
const str *str_mark(jinja_run *r, const str *s);   /* Markup(s), nothing escaped */

bool char_is_line_end(uint32_t cp); /* of str.splitlines() */

typedef enum { SIDE_LEFT = 1, SIDE_RIGHT = 2, SIDE_BOTH = 3 } side;
const str *str_strip(jinja_run *r, const str *s, const str *chars, side where); /* chars NULL: white space */

typedef enum { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZED, CASE_SWAPPED, CASE_FOLDED } str_case;
const str *str_in_case(jinja_run *r, const str *s, str_case to);
bool str_has_case(jinja_run *r, const str *s, bool upper); /* isupper(), islower() */
bool str_is_title(jinja_run *r, const str *s);             /* istitle() */

const str *str_replace(jinja_run *r, const str *s, const str *what, const str *by, int64_t count); /* count < 0: all */
value str_split(jinja_run *r, const str *s, const str *by, int64_t count, bool from_right); /* by NULL: white space */
value str_lines(jinja_run *r, const str *s, bool keep_ends);

#endif
