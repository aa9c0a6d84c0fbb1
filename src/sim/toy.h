/* toy.h - a model whose next token is a hash of everything it should depend on
 *
 * It stands under the real engine as a backend (backend/backend.h): its KvCache is real memory in the engine's pages,
 * where each position records its token and the adapter it was computed with. The next token is a hash of all positions
 * of the sequence, read back from its pages, and of the seed; so a page that is lost, shared or overwritten, a token
 * left out or repeated, another adapter or seed all change the text that follows. Half of the toys run ahead of their
 * host, as a GPU does. Copies of pages between the device and the host are done when they end, some polls after they
 * began: what was written to their pages meanwhile is copied, or overwritten.
 *
 * Where a request has a penalty, the next token depends on which tokens were seen, and how often in the output, as the
 * engine says; before min_tokens there is no end. With a grammar only letters of the mask come, and an end if it is one
 * of them. A toy with memory of its own has room for so many adapters.
 *
 * An adapter of content TOY_POISON makes numbers that are not finite.
 *
 * A prompt that begins with TOY_KILLER and a number n kills the worker that computes position n; one that begins with
 * TOY_RUNNER_KILLER is the end of the runner that passes it on (sim_worker.c). */
#ifndef PUNICA_SIM_TOY_H
#define PUNICA_SIM_TOY_H

#include "grammar/token_trie.h"
#include "model/model.h"
#include "text/tokenizer.h"

enum {
    TOY_KILLER = '!',
    TOY_RUNNER_KILLER = '#',
    TOY_EOS = 256,
    TOY_VOCAB = 257,
    TOY_CONTEXT = 96,
    TOY_POISON = 2,
    TOY_KV_BYTES = 16
}; /* of a position in the KvCache */

typedef struct toy toy;

/* One device. broken: set when the model has killed it. own_memory: adapters are uploaded to it. */
toy *toy_new(bool runs_ahead, bool own_memory);
void toy_free(toy *t);
const model *toy_model(const toy *t);
bool toy_is_broken(const toy *t);
bool toy_is_copying(const toy *t);      /* pages of the KvCache from the host */
void toy_limit_adapters(toy *t, int n); /* of one with memory of its own, after its KvCache has been made */

/* An adapter of this content, for the engine to free. */
lora *toy_adapter(uint64_t content);

/* What the toy minds of how a request wants its tokens drawn. */
typedef struct {
    uint64_t seed;
    bool penalized, alternates;
    int min_tokens;
} toy_sampling;

/* A grammar by which letters of the two halves of the alphabet alternate, and an end comes only behind a pair. */
#define TOY_ALTERNATING "([a-m][n-z])*"

/* What comes after n tokens, the first n_prompt of them a prompt: content 0 is the base model. */
int toy_next(const int *token, int n, int n_prompt, uint64_t content, const toy_sampling *sampling);

/* The logprob of token[n] behind token[0..n), as it is told of a prompt that is scored. */
float toy_score(const int *token, int n, uint64_t content);

/* Bytes as tokens, and an end token. Made once; shared by all. */
const tokenizer *toy_tokenizer(void);
token_trie *toy_vocabulary(void *ctx, err *e); /* the same for grammars; the caller's */

#endif
