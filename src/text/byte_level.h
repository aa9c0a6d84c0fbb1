/* byte_level.h - the alphabet of byte-level BPE: every byte has a printable character
 *
 * Bytes that print as themselves in Latin-1 stand for themselves; the other 68, in order, are
 * U+0100 to U+0143. */
#ifndef PUNICA_TEXT_BYTE_LEVEL_H
#define PUNICA_TEXT_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Append the characters of these bytes. */
void byte_level_encode(const char *bytes, size_t n, buf *out);

/* Append the bytes these characters (valid UTF-8) stand for; the text itself if one of them
 * stands for none. */
void byte_level_decode(const char *text, size_t n, buf *out);

#endif
