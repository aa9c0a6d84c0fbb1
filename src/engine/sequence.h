/* sequence.h - a request as the engine has it: its tokens, and how the next of them is drawn
 *
 * Admission knows a sequence by its item, the first member, and manages its pages and its place in the batch. The rest
 * is what drawing needs: sampling parameters, the history that penalties look at, the grammar's state and mask, the
 * tokens that end the output. Owned by the engine; engine thread, but for sequence_fill_mask(). */
#ifndef PUNICA_ENGINE_SEQUENCE_H
#define PUNICA_ENGINE_SEQUENCE_H

#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/token_counts.h"

typedef struct {
    admission_item item; /* first; item.adapter and item.token are owned */
    size_t token_cap;
    int n_prompt;
    int next_score; /* index of the first token of the prompt to score; n_prompt: none */
    int draw;       /* number of the draw, within its step, of the token in flight */
    int unknown;    /* what stands for that token in a batch */
    sampling_params sampling;
    int n_end, end[MAX_EOS + MAX_STOP_IDS]; /* tokens that end the output */
    bool uses_history;
    token_counts history; /* when uses_history */
    token_rules rules;
    guide_state *state;   /* of the output in rules.grammar; NULL: none, or no token has been drawn yet */
    uint32_t *mask;       /* [guide_mask_words()] for the next draw; NULL: rules need none */
    bool only_end, stuck; /* set with the mask: the grammar must end here; no token may come */
} sequence;

/* Returns how many tokens of a request's prompt are scored, over all attempts. */
int sequence_n_to_score(const engine_request *r);

/* Makes a sequence of a request that the engine has checked; copies everything. It is not added to admission. */
sequence *sequence_new(const engine_request *r, const model_config *c);
void sequence_free(sequence *s);

/* Appends a drawn token. True: it ends the output, and *why says how; otherwise the grammar has followed it. */
bool sequence_add_drawn(sequence *s, int token, finish_reason *why);

/* Computes the mask of the next draw from all tokens so far, where one is needed. Any thread, one at a time for each
 * sequence. */
void sequence_fill_mask(sequence *s, int vocab);

/* Say how the next token is drawn, and how a token of the prompt is scored. They point into the sequence. */
sample_spec sequence_draw_spec(const sequence *s);
sample_spec sequence_score_spec(const sequence *s, int token);

/* Says in e why no token could be drawn. */
void sequence_explain_failure(const sequence *s, err *e);

#endif
