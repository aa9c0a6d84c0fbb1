/* token_bytes.h - tokens that are no text by themselves
 *
 * A character outside the vocabulary is spelt by several tokens: of bytes (<0xNN>), or in the alphabet of byte-level
 * BPE. Only together do they read as text; here each is given as the bytes it stands for. */
#ifndef PUNICA_TEXT_TOKEN_BYTES_H
#define PUNICA_TEXT_TOKEN_BYTES_H

#include "text/tokenizer.h"

/* Whether its bytes are not valid UTF-8. */
bool token_is_part_of_char(const tokenizer *t, int id);

/* Append the bytes of a token that is. */
void token_bytes(const tokenizer *t, int id, buf *out);

#endif
