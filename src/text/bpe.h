/* bpe.h - byte-pair encoding: one pre-token to ids
 *
 * The text starts as one symbol per character; as long as some adjacent pair has a merge, the pair
 * of lowest rank (leftmost first) becomes one symbol. A character that is no token falls back to
 * its bytes' tokens <0xNN>, or is unknown. */
#ifndef PUNICA_TEXT_BPE_H
#define PUNICA_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "text/ids.h"
#include "text/vocab.h"

typedef struct bpe bpe;
typedef struct bpe_scratch bpe_scratch; /* what one thread needs while encoding */

/* Reads tokenizer.json's "model". NULL with e set on failure; free with bpe_free(). */
bpe *bpe_new(const json_t *model, err *e);
void bpe_free(bpe *b);
const vocab *bpe_vocab(const bpe *b);

int bpe_unknown(const bpe *b); /* the id of unk_token; -1: there is none */

/* Returns whether a character by itself can become this id, as a token of its own or by one of its bytes. */
bool bpe_is_of_char(const bpe *b, int id);

/* Returns whether no character is dropped or fused with others: then no id stands for more bytes than its string has,
 * or than four (one unknown character). bytes_only: only texts in the alphabet of byte_level.h matter. */
bool bpe_keeps_all(const bpe *b, bool bytes_only);

bpe_scratch *bpe_scratch_new(void);
void bpe_scratch_free(bpe_scratch *s);

/* Appends the ids of one pre-token (valid UTF-8). Safe for many threads at once, each with its own
 * scratch. -1 with e set only on an unknown character when unk_token itself is no token. */
int bpe_encode(const bpe *b, bpe_scratch *s, const char *text, size_t n, ids *out, err *e);

/* Appends the byte tokens of a character. False, with nothing added, if there is no byte fallback or one of the bytes
 * has no token. */
bool bpe_encode_bytes(const bpe *b, const char *text, size_t n, ids *out);

#endif
