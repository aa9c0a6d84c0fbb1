/* tokenizer.h - text to token ids and back, from a Hugging Face tokenizer.json
 *
 *   text ─ repair UTF-8 ─ added tokens ─ normalizer ─ pre-tokenizer ─ BPE ─ template ─▶ ids
 *   ids ─ token strings ─ decoder ─▶ text
 *
 * The reference, here and in the stages' files, is Hugging Face's `tokenizers` library.
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

/* Reads dir/tokenizer.json and, if there, dir/tokenizer_config.json. Anything in tokenizer.json
 * that is not supported is an error that names it. NULL with e set; free with tokenizer_free(). */
tokenizer *tokenizer_load(const char *dir, err *e);

/* The same from the texts of the two files; config may be NULL. */
tokenizer *tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, err *e);

void tokenizer_free(tokenizer *t);

/* Appends the ids of the text. Bytes that are not UTF-8 count as U+FFFD, as in Python's
 * bytes.decode("utf-8", errors="replace"). add_special: with the special tokens that the post-processor
 * puts around a text (BOS). 0, or -1 with e set and out as before. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special, ids *out, err *e);

/* Encodes as tokenizer_encode() does, within limits, for texts of any length. Returns 1, with out as before, when the
 * text has more than max_ids ids or *stop has become true.
 *
 * own: the spans of the text in which special tokens are recognised. The string of a special token that does not lie
 * in one of them as a whole is ordinary text: it is encoded to ids that are not special. Where the model can only make
 * a special token of a character, by itself or by its bytes, it counts as unknown: it becomes its byte tokens, else
 * unk_token, and is dropped if there are neither. unk_token, for unknown characters only, is the one special token that
 * ordinary text may have. A text without such strings and characters has the same ids as without own. */
typedef struct {
    size_t max_ids;
    const atomic_bool *stop; /* NULL: never */
    const text_spans *own;   /* NULL: all of it */
} encode_limits;
int tokenizer_encode_within(const tokenizer *t, const char *text, size_t n, bool add_special, const encode_limits *l,
                            ids *out, err *e);

/* Returns how many bytes of text one id can stand for at most: a text of n bytes has at least n / longest ids. 0 if
 * there is no bound, since the tokenizer may drop text. */
size_t tokenizer_longest(const tokenizer *t);

/* Appends the text of the ids, always valid UTF-8. Ids without a token (a model's vocabulary may be
 * padded past the tokenizer's) give nothing. skip_special: special tokens give nothing either. */
void tokenizer_decode(const tokenizer *t, const int *id, size_t n, bool skip_special, buf *out);

/* Returns the largest id + 1. */
int tokenizer_vocab_size(const tokenizer *t);

/* Returns the id of a token, e.g. "<|eot_id|>", or -1. */
int tokenizer_token_id(const tokenizer *t, const char *token);

/* Returns whether the id is that of an added token marked special. */
bool tokenizer_is_special(const tokenizer *t, int id);

/* Returns the string that the decoder gets for an id, as the vocabulary spells it; NULL if no token
 * has the id. Borrowed: while the tokenizer lives. */
const char *tokenizer_token_text(const tokenizer *t, int id, size_t *n);

const decoder *tokenizer_decoder(const tokenizer *t);

#endif
