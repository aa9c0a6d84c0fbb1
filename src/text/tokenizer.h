/* tokenizer.h - text to token ids and back, from a Hugging Face tokenizer.json
 *
 *   text ─ repair UTF-8 ─ added tokens ─ normalizer ─ pre-tokenizer ─ BPE ─ template ─▶ ids
 *   ids ─ token strings ─ decoder ─▶ text
 *
 * A tokenizer is immutable: any number of threads may encode and decode with it at once. */
#ifndef PUNICA_TEXT_TOKENIZER_H
#define PUNICA_TEXT_TOKENIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/decoder.h"
#include "text/ids.h"
#include "text/spans.h"

typedef struct tokenizer tokenizer;

/* Read dir/tokenizer.json and, if there, dir/tokenizer_config.json. Anything in tokenizer.json
 * that is not supported is an error that names it. NULL with e set; free with tokenizer_free(). */
tokenizer *tokenizer_load(const char *dir, err *e);

/* The same from the texts of the two files; config may be NULL. */
tokenizer *tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, err *e);

void tokenizer_free(tokenizer *t);

/* Append the ids of the text. Bytes that are not UTF-8 count as U+FFFD, as in Python's
 * bytes.decode("utf-8", errors="replace"). add_special: with the tokens the template puts around
 * a text (BOS). On failure out is as before. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special, ids *out, err *e);

/* The same for texts of any length: no more is done than the limits say. 1: it is more than max_ids ids, or stop has
 * become true; out is then as before.
 *
 * own: the parts of the text where special tokens may stand. What looks like one anywhere else, or only in part lies in
 * them, is text: its characters are encoded as any others, and none of its ids is that of a special token. A text
 * without such a thing has the same ids as without own. */
typedef struct {
    size_t max_ids;
    const atomic_bool *stop; /* NULL: never */
    const text_spans *own;   /* NULL: all of it */
} encode_limits;
int tokenizer_encode_within(const tokenizer *t, const char *text, size_t n, bool add_special, const encode_limits *l,
                            ids *out, err *e);

/* Bytes of text that one id can stand for at most, so that a text has at least so many ids as its bytes divided by
 * this; 0: any number, the tokenizer may drop text. */
size_t tokenizer_longest(const tokenizer *t);

/* Append the text of the ids, always valid UTF-8. Ids without a token (a model's vocabulary may be
 * padded past the tokenizer's) give nothing. skip_special: special tokens give nothing either. */
void tokenizer_decode(const tokenizer *t, const int *id, size_t n, bool skip_special, buf *out);

/* One more than the largest id. */
int tokenizer_vocab_size(const tokenizer *t);

/* The id of a token, e.g. "<|eot_id|>", or -1. */
int tokenizer_token_id(const tokenizer *t, const char *token);

/* Whether the id is that of an added token marked special. */
bool tokenizer_is_special(const tokenizer *t, int id);

/* The string the decoder gets for an id, as the vocabulary writes it; NULL if it has no token.
 * Borrowed: while the tokenizer lives. */
const char *tokenizer_token_text(const tokenizer *t, int id, size_t *n);

const decoder *tokenizer_decoder(const tokenizer *t);

#endif
