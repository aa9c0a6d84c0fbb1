/* grammars.h - a cache of the grammars of a worker's requests, compiled asynchronously
 *
 * A grammar is shared only among requests of the same cache salt, as pages of the KvCache are: else how soon an answer
 * comes would tell one tenant whether another has used the same grammar. What is evicted is the least recently used
 * grammar of the tenant that has most of them, or most of their memory if that is short: however many grammars a tenant
 * brings, others keep theirs.
 *
 * The vocabulary is read when a grammar is first needed. One thread calls all functions; another compiles. In the
 * simulation grammars are compiled at once. */
#ifndef PUNICA_WORKER_GRAMMARS_H
#define PUNICA_WORKER_GRAMMARS_H

#include "base/jobs.h"
#include "grammar/guide.h"

typedef struct grammars grammars;

/* Reads the vocabulary, on the thread that compiles; called again only if it failed. The trie is the caller's. */
typedef struct {
    token_trie *(*read)(void *ctx, err *e);
    void *ctx;
} vocabulary_source;

/* A vocabulary_source of a model's tokenizer; ctx is a model_vocabulary. */
typedef struct {
    const char *model_dir;
    int vocab;
} model_vocabulary;
token_trie *model_vocabulary_read(void *ctx, err *e);

/* compilers: runs compilations and nothing else; taken over. NULL: grammars_find() compiles. */
grammars *grammars_new(vocabulary_source from, jobs *compilers);
void grammars_free(grammars *g); /* all its guides must have been dropped; g may be NULL */

typedef enum { GRAMMAR_READY, GRAMMAR_COMPILING, GRAMMAR_FAILED } grammar_status;

/* Finds the guide of a grammar, and starts to compile it if it is not cached for this salt (TENANT\n..., if there are
 * tenants). READY: *out is held for the caller (guide_drop()); FAILED: e says why. Text and salt are copied. */
grammar_status grammars_find(grammars *g, const char *salt, grammar_kind kind, const void *text, size_t n, guide **out,
                             err *e);

/* Returns how many compilations have finished, failed ones too: when it grows, ask again for what was missing. */
uint64_t grammars_compiled(grammars *g);

#endif
