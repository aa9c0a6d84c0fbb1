/* byte_level.h - the alphabet of byte-level BPE: every byte has a printable character
 *
 * Bytes that are printable in Latin-1 map to themselves; the other 68, in order, to U+0100 to
 * U+0143. */
#ifndef PUNICA_TEXT_BYTE_LEVEL_H
#define PUNICA_TEXT_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Append the characters of these bytes. */
void byte_level_encode(const char *bytes, size_t n, buf *out);

/* Append the bytes that these characters (valid UTF-8) stand for; or the text itself, if one of
 * them is not of the alphabet. */
void byte_level_decode(const char *text, size_t n, buf *out);

#endif
