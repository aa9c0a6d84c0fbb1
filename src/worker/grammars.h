/* grammars.h - the grammars of a worker's requests: compiled beside the engine, and kept
 *
 * The vocabulary is read when a grammar is first wanted. One thread calls all functions; compiling is done on another,
 * or at once in the simulation. */
#ifndef PUNICA_WORKER_GRAMMARS_H
#define PUNICA_WORKER_GRAMMARS_H

#include "base/jobs.h"
#include "grammar/guide.h"

typedef struct grammars grammars;

/* Where the vocabulary comes from: called once, on the thread that compiles. */
typedef struct {
    token_trie *(*read)(void *ctx, err *e);
    void *ctx;
} vocabulary_source;

/* From a model's tokenizer; ctx is a model_vocabulary. */
typedef struct {
    const char *model_dir;
    int vocab;
} model_vocabulary;
token_trie *model_vocabulary_read(void *ctx, err *e);

/* compilers: who compiles, and nothing else; taken. NULL: whoever asks. */
grammars *grammars_new(vocabulary_source from, jobs *compilers);
void grammars_free(grammars *g); /* when no guide of its is held any more */

typedef enum { GRAMMAR_READY, GRAMMAR_COMPILING, GRAMMAR_FAILED } grammar_status;

/* The guide of a text; ready: *out is held for the caller. The first time it is asked for it is compiled. */
grammar_status grammars_find(grammars *g, grammar_kind kind, const void *text, size_t n, guide **out, err *e);

/* How many have been compiled so far, well or not: whoever waits for one asks again when it is more than before. */
uint64_t grammars_compiled(grammars *g);

#endif
