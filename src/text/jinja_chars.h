/* jinja_chars.h - what Python's str methods ask of a character */
#ifndef PUNICA_TEXT_JINJA_CHARS_H
#define PUNICA_TEXT_JINJA_CHARS_H

#include <stdbool.h>
#include <stdint.h>

bool char_is_alpha(uint32_t cp);
bool char_is_decimal(uint32_t cp); /* each of these three includes the one before it */
bool char_is_digit(uint32_t cp);
bool char_is_numeric(uint32_t cp);

bool char_is_lower(uint32_t cp);          /* the property Lowercase, which is more than the category Ll */
bool char_is_upper(uint32_t cp);          /* Uppercase */
bool char_is_title(uint32_t cp);          /* one that stands for two, the first in upper case */
bool char_is_cased(uint32_t cp);          /* any of these three */
bool char_is_case_ignorable(uint32_t cp); /* skipped when a sigma's neighbours are looked at */

#endif
