/* token_bytes.h - the bytes of single tokens, also of those that are only part of a character
 *
 * A character outside the vocabulary is spelt by several tokens: of bytes (<0xNN>), or in the alphabet of byte-level
 * BPE. They read as text only together; here each is given as the bytes it stands for. */
#ifndef PUNICA_TEXT_TOKEN_BYTES_H
#define PUNICA_TEXT_TOKEN_BYTES_H

#include "text/tokenizer.h"

/* Returns whether the token's bytes are not valid UTF-8 by themselves. */
bool token_is_part_of_char(const tokenizer *t, int id);

/* Appends the bytes of a token that is part of a character. */
void token_bytes(const tokenizer *t, int id, buf *out);

/* Returns a token that is plain text: the last one of "a"; 0 if that cannot be encoded. */
int token_plain_id(const tokenizer *t);

/* Appends the bytes that a token adds in the middle of a text, behind the token `plain`; a special token adds none. */
void token_bytes_in_text(const tokenizer *t, int plain, int id, buf *out);

#endif
