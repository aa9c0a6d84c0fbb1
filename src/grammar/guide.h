/* guide.h - which tokens may come next, for outputs that follow a grammar
 *
 * A guide is a grammar together with a vocabulary. For each state of the grammar it keeps what does not depend on who
 * called the state's rule: the tokens that stay within the rule, as a mask, and the nodes of the vocabulary's trie at
 * which the rule may have ended. A mask for an output is the kept one of its state, and a walk from those few nodes on
 * in the rule that comes next. So inside a string, where nearly every token of 128k may follow, little is left to be
 * walked.
 *
 * Guides are shared: hold and drop count; any thread may use them. A guide_state belongs to one output and one thread
 * at a time. It depends on the tokens of the output and nothing else: whoever has these can make it again. */
#ifndef PUNICA_GRAMMAR_GUIDE_H
#define PUNICA_GRAMMAR_GUIDE_H

#include "grammar/grammar.h"
#include "grammar/token_trie.h"

typedef struct guide guide;
typedef struct guide_state guide_state;

/* Takes g; the trie is borrowed and outlives all guides of it. What most outputs will need is computed at once. all,
 * unless NULL: bytes of memory that all guides take which were given it, counted here; where they are GUIDES_MAX_BYTES,
 * masks are not kept any more, but computed each time. It outlives the guides. */
guide *guide_new(grammar *g, const token_trie *t, atomic_size_t *all);
#define GUIDES_MAX_BYTES (256u << 20)
guide *guide_hold(guide *g);
void guide_drop(guide *g);            /* g may be NULL */
bool guide_is_shared(const guide *g); /* somebody else holds it too */

/* At the beginning of an output. Holds the guide. */
guide_state *guide_state_new(guide *g);
void guide_state_free(guide_state *s);

/* The next token of the output. False when the grammar does not go on like this, or the state is exhausted: then
 * nothing is allowed any more. */
bool guide_state_add(guide_state *s, int token);

/* Bit i % 32 of word i / 32: token i may come next. [guide_mask_words()], valid until the next call. */
const uint32_t *guide_state_mask(guide_state *s);
bool guide_state_may_end(const guide_state *s); /* the output is complete as it is */

/* The grammar is so ambiguous that following it takes more time or memory than an output has: nothing is allowed any
 * more. */
bool guide_state_is_exhausted(const guide_state *s);

static inline int guide_mask_words(int vocab)
{
    return (vocab + 31) / 32;
}

#endif
