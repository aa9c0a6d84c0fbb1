/* guide.h - which tokens may come next, for outputs that follow a grammar
 *
 * A guide is a grammar together with a vocabulary. For each state of the grammar it caches what does not depend on the
 * caller of the state's rule: a mask of the tokens that stay within the rule, and the nodes of the vocabulary's trie at
 * which the rule may have ended. The mask of an output is the cached one of its state, plus a walk of the trie from
 * those few nodes on in the calling rule. So inside a string, where nearly all of 128k tokens may follow, little is
 * left to walk.
 *
 * Guides are reference-counted (hold, drop), and any thread may use them. A guide_state belongs to one output and one
 * thread at a time. It depends only on the tokens of the output, so it can be rebuilt from them. */
#ifndef PUNICA_GRAMMAR_GUIDE_H
#define PUNICA_GRAMMAR_GUIDE_H

#include "grammar/grammar.h"
#include "grammar/token_trie.h"

typedef struct guide guide;
typedef struct guide_state guide_state;

/* Makes a guide with one reference, and computes ahead the masks that most outputs will need. Takes g; borrows t, which
 * outlives the guide. all (NULL, or it outlives the guide) counts the bytes of all guides made with it: from
 * GUIDES_MAX_BYTES on, masks are no longer cached but computed each time. */
guide *guide_new(grammar *g, const token_trie *t, atomic_size_t *all);
#define GUIDES_MAX_BYTES (256u << 20)
guide *guide_hold(guide *g);
void guide_drop(guide *g);            /* g may be NULL */
bool guide_is_shared(const guide *g); /* there is more than one reference */
size_t guide_bytes(guide *g);         /* of memory that it takes now */

/* Returns the state at the beginning of an output. Holds the guide. */
guide_state *guide_state_new(guide *g);
void guide_state_free(guide_state *s);

/* Advances by the next token of the output. False when the grammar does not allow it or the state is exhausted: from
 * then on no token is allowed. */
bool guide_state_add(guide_state *s, int token);

/* Returns which tokens may come next, [guide_mask_words()]: bit i % 32 of word i / 32 is token i. Valid until the next
 * call. */
const uint32_t *guide_state_mask(guide_state *s);
bool guide_state_may_end(const guide_state *s); /* the output is complete as it is */

/* Returns whether the grammar is so ambiguous that following it took more time or memory than an output has: no token
 * is allowed any more. */
bool guide_state_is_exhausted(const guide_state *s);

static inline int guide_mask_words(int vocab)
{
    return (vocab + 31) / 32;
}

#endif
