/* pattern.h - what Split and Replace look for: a literal string or a regular expression
 *
 * Regular expressions are written for Oniguruma, the reference's engine, and run by PCRE2. Where
 * the two read a construct differently it is translated, or refused when that cannot be done.
 *
 * A pattern is immutable; the matcher holds what a search needs to write to, one per encode call. */
#ifndef PUNICA_TEXT_PATTERN_H
#define PUNICA_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

typedef struct pattern pattern;
typedef struct matcher matcher;

/* What \w matches in Rust's regex crate, for use inside a class. The reference runs its built-in expressions
 * with that crate, and those of tokenizer.json with Oniguruma. */
#define WORD_CHARS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

/* Make a pattern; free with pattern_free(). NULL with e set on failure, also if the pattern is empty. */
pattern *pattern_new_literal(const char *text, size_t n, err *e);
pattern *pattern_new_regex(const char *text, size_t n, err *e);
pattern *pattern_from_json(const json_t *spec, err *e); /* {"String": ...} or {"Regex": ...} */
void pattern_free(pattern *p);
bool pattern_is_literal(const pattern *p);       /* its scans need no matcher */
size_t pattern_literal_length(const pattern *p); /* bytes; 0: it is a regular expression */

/* Make the matcher for encoding a text of text_len bytes. The length sets the time that all its
 * searches may take together, so that no pattern can hang a thread. Never NULL. */
matcher *matcher_new(size_t text_len);
void matcher_free(matcher *m);

/* A walk over all matches in valid UTF-8 text, from left to right. An empty match directly behind
 * another match does not count. */
typedef struct {
    const pattern *p;
    matcher *m;
    const char *text;         /* borrowed: until the scan ends */
    size_t n, from, last_end; /* last_end is SIZE_MAX before the first match */
    buf shadow;               /* owned: text as the regex sees it, if it differs */
    const char *seen;         /* text or shadow */
} pattern_scan;

void pattern_scan_begin(pattern_scan *s, const pattern *p, matcher *m, const char *text, size_t n);
void pattern_scan_end(pattern_scan *s);

/* Find the next match. 1: it is [*start, *end). 0: there is none. -1 with e set: it takes too long, or PCRE2 fails. */
int pattern_scan_next(pattern_scan *s, size_t *start, size_t *end, err *e);

#endif
