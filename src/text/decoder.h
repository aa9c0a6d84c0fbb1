/* decoder.h - token strings back to text, one token at a time
 *
 * The steps of tokenizer.json's "decoder". The reference hands a list of strings from step to
 * step; here each token runs through all steps as it comes, and a step holds back only what a
 * later token could still change: the first bytes of a character, a run of <0xNN> tokens (one
 * invalid byte makes every byte of the run a U+FFFD), characters that Strip cuts if they turn out to
 * be the last. A decoder is immutable; what is held back lies in the decoder_state, one per text. */
#ifndef PUNICA_TEXT_DECODER_H
#define PUNICA_TEXT_DECODER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "text/component.h"
#include "text/utf8.h"

typedef struct decoder decoder;

/* Zero-initialise; free with decoder_state_deinit(). */
typedef struct {
    bool any;                          /* a token has come */
    bool started[COMPONENT_MAX_STEPS]; /* Metaspace has seen a token; Strip of a fused text is done with its start */
    size_t cut[COMPONENT_MAX_STEPS];   /* Strip of a fused text: characters cut off its start */
    size_t held[COMPONENT_MAX_STEPS];  /* and characters held back at its end */
    buf run;                           /* bytes of the <0xNN> tokens since the last other token */
    utf8_tail tail;                    /* an incomplete character of byte-level tokens */
    buf scratch[COMPONENT_MAX_STEPS];
} decoder_state;

/* Reads tokenizer.json's "decoder" (spec may be NULL). NULL with e set on failure; free with decoder_free(). */
decoder *decoder_new(const json_t *spec, err *e);
void decoder_free(decoder *d);

/* Appends to out what is certain once this token has come. Always whole characters. */
void decoder_feed(const decoder *d, decoder_state *s, const char *token, size_t n, buf *out);

/* Ends the text: appends what was held back. */
void decoder_finish(const decoder *d, decoder_state *s, buf *out);

void decoder_state_deinit(decoder_state *s);

/* Returns the byte that a token <0xNN>, with two hexadecimal digits, stands for; -1: it is not of this form. */
int decoder_byte_of_token(const char *token, size_t n);

#endif
