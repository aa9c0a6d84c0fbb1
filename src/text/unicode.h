/* unicode.h - what tokenizers and chat templates need to know of Unicode beyond the regex engine
 *
 * Every function takes and gives valid UTF-8. The reference is the `tokenizers` library; where its
 * Unicode tables are older or newer than those of utf8proc and PCRE2, the difference is made up
 * for here. */
#ifndef PUNICA_TEXT_UNICODE_H
#define PUNICA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef enum { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD } unicode_form;

bool unicode_is_space(uint32_t cp); /* the White_Space property */
bool unicode_is_blank(uint32_t cp); /* Python's str.isspace(): White_Space, and U+001C to U+001F */
bool unicode_is_mark(uint32_t cp);  /* a combining mark, general category M */

/* Returns whether a character is in one of n ranges, which are in ascending order. */
typedef struct { uint32_t lo, hi; } unicode_range;
bool unicode_in_ranges(const unicode_range *at, size_t n, uint32_t cp);

/* Append the text in this normalisation form. Linear in n, also for long runs of marks. */
void unicode_normalize(unicode_form form, const char *text, size_t n, buf *out);

/* Append the text in lower case, character by character (no final sigma). */
void unicode_lowercase(const char *text, size_t n, buf *out);

/* Return text of the same length for the regex engine to search, which knows Unicode 14 where the
 * reference knows 16: characters assigned since are replaced by older ones of the same category.
 * The text itself when it has none of these, else in scratch. */
const char *unicode_for_regex(const char *text, size_t n, buf *scratch);

#endif
