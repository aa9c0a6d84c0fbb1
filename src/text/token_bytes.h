/* token_bytes.h - tokens by themselves: what each adds to a text, and those that are no text without others
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

/* Some token that is plain text: the last of an ordinary word. */
int token_plain_id(const tokenizer *t);

/* Append the bytes that a token adds in the middle of a text, behind the token `plain`; a special token adds none. */
void token_bytes_in_text(const tokenizer *t, int plain, int id, buf *out);

#endif
