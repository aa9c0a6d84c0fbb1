/* toy.h - a model whose next token is a hash of everything it should depend on
 *
 * The toy is a backend (backend/backend.h) under the real engine: its KvCache is real memory in the engine's pages,
 * where each position records its token and the adapter it was computed with. The next token is a hash of all positions
 * of the sequence, read back from its pages, and of the seed; so a page that is lost, shared or overwritten, a token
 * left out or repeated, another adapter or seed all change the text that follows. A toy may run ahead of its host, as a
 * GPU does. A copy of pages between device and host takes effect only when it ends, some polls after it began: what was
 * written to the pages meanwhile is copied, or overwritten.
 *
 * If a request has a penalty, the next token depends on which tokens were seen, and how often in the output, as the
 * engine says. There is no end token before min_tokens. With a grammar, only letters of the mask are drawn, and the end
 * token if the mask has it. A toy with memory of its own can have room for a limited number of adapters.
 *
 * An adapter of content TOY_POISON makes numbers that are not finite.
 *
 * A prompt that begins with TOY_KILLER and a number n kills the worker that computes position n; one that begins with
 * TOY_RUNNER_KILLER kills the runner that passes it on (sim_worker.c). */
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
    TOY_KV_BYTES = 16 /* of a position in the KvCache */
};

typedef struct toy toy;

/* Makes a device. own_memory: adapters are uploaded to it. Free with toy_free(). */
toy *toy_new(bool runs_ahead, bool own_memory);
void toy_free(toy *t);
const model *toy_model(const toy *t);
bool toy_is_copying(const toy *t);      /* pages from the host to the KvCache */
void toy_limit_adapters(toy *t, int n); /* with own_memory, after its KvCache has been made */

/* Makes an adapter of this content, which the engine frees. */
lora *toy_adapter(uint64_t content);

/* The sampling parameters of a request that the toy respects. alternates: it has the grammar TOY_ALTERNATING. */
typedef struct {
    uint64_t seed;
    bool penalized, alternates;
    int min_tokens;
} toy_sampling;

/* A grammar by which letters of the two halves of the alphabet alternate, and an end comes only behind a pair. */
#define TOY_ALTERNATING "([a-m][n-z])*"

/* Returns the token after n tokens, of which the first n_prompt are the prompt. content 0: the base model. */
int toy_next(const int *token, int n, int n_prompt, uint64_t content, const toy_sampling *sampling);

/* Returns the logprob of token[n] after token[0..n), as it is reported for a prompt that is scored. */
float toy_score(const int *token, int n, uint64_t content);

/* Returns the tokenizer: bytes as tokens, and an end token. Made once, shared by all. */
const tokenizer *toy_tokenizer(void);
token_trie *toy_vocabulary(void *ctx, err *e); /* the same for grammars; owned by the caller */

#endif
