/* detokenizer.h - the text of a token stream, as the tokens come
 *
 * Feed ids one at a time and get the bytes that are now certain: whole characters only. All pieces
 * together, with the one from finish, are what tokenizer_decode() gives for all ids. Held back
 * meanwhile: up to three bytes of an incomplete character, or a run of byte-fallback tokens until
 * another token ends it. One thread per detokenizer. */
#ifndef PUNICA_TEXT_DETOKENIZER_H
#define PUNICA_TEXT_DETOKENIZER_H

#include "text/tokenizer.h"

typedef struct {
    const tokenizer *t; /* borrowed: until deinit */
    bool skip_special;
    decoder_state state;
} detokenizer;

/* prefix: the n ids that another detokenizer of this stream has already been fed (before a request
 * moved to another machine, say); NULL and 0 at the start of a stream. This one continues where
 * that one stood: it gives out what that one held back, but nothing that one gave out. */
void detokenizer_init(detokenizer *d, const tokenizer *t, bool skip_special, const int *prefix, size_t n);
void detokenizer_deinit(detokenizer *d);

/* Append to out what has become certain. */
void detokenizer_add(detokenizer *d, int id, buf *out);

/* The stream has ended: append what was held back; a character that never came is U+FFFD. After
 * this only deinit. */
void detokenizer_finish(detokenizer *d, buf *out);

#endif
