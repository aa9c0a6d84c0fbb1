/* token_rules.h - which tokens a request may draw: its grammar, tokens it allows, words it forbids, bias
 *
 * Sampling (sampling.h) is numbers of a fixed size; these are lists, and a grammar to be followed. */
#ifndef PUNICA_ENGINE_TOKEN_RULES_H
#define PUNICA_ENGINE_TOKEN_RULES_H

#include "base/err.h"
#include "grammar/guide.h"

/* Plain value; what it points to is the owner's. */
typedef struct {
    guide *grammar; /* NULL: none */
    int n_bias;
    int *biased;     /* [n_bias] */
    float *bias;     /* [n_bias] */
    int n_allowed;   /* 0: all are */
    int *allowed;    /* [n_allowed] */
    int n_bad;       /* words: sequences of tokens whose last may not follow the others */
    int *bad_indptr; /* [n_bad + 1] into bad; no word is empty */
    int *bad;
} token_rules;

void token_rules_copy(token_rules *to, const token_rules *from); /* holds the grammar */
void token_rules_deinit(token_rules *r);                         /* drops it */

/* -1 when an id is not below vocab or a bad word is empty; e names the list. */
int token_rules_check(const token_rules *r, int vocab, err *e);

/* Returns whether draws need a mask, which depends on the tokens so far. */
static inline bool token_rules_mask(const token_rules *r)
{
    return r->grammar || r->n_allowed || r->n_bad;
}

/* Fills the mask, [guide_mask_words(vocab)], for the token behind token[0..n), of which n_output are output. state
 * follows r->grammar, or is NULL. An end token (`end`) is allowed where the grammar may end. *only_end: the grammar
 * must end here, even before min_tokens. False: no token may come. */
bool token_rules_fill(const token_rules *r, guide_state *state, const int *token, int n, int n_output, const int *end,
                      int n_end, int vocab, uint32_t *mask, bool *only_end);

#endif
