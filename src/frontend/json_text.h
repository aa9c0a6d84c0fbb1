/* json_text.h - JSON values to text, any bytes to JSON strings */
#ifndef PUNICA_FRONTEND_JSON_TEXT_H
#define PUNICA_FRONTEND_JSON_TEXT_H

#include "base/buf.h"
#include "base/json.h"

/* Return a string value; bytes that are not UTF-8 (a message cut in the middle of a character) become U+FFFD. */
json_t *json_text(const char *text);

/* Append the text, valid UTF-8, as a JSON string. */
void json_add_string(buf *out, const char *text, size_t n);

/* Append the value as compact JSON, its numbers with the precision of a float, and free it. */
void json_add_take(buf *out, json_t *value);

#endif
