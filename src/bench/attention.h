/* attention.h - `punica bench attention`: the attention of prompts by itself */
#ifndef PUNICA_BENCH_ATTENTION_H
#define PUNICA_BENCH_ATTENTION_H

#include "backend/tensor.h"
#include "base/err.h"

#define MAX_ATTENTION_SIZES 16

typedef struct {
    const char *device, *shape;
    dtype type;                                   /* of activations and KvCache, on a GPU */
    int n_lengths, length[MAX_ATTENTION_SIZES];   /* rows of a prompt */
    int n_contexts, context[MAX_ATTENTION_SIZES]; /* positions cached before them */
    int prompts;                                  /* so many at once, all alike */
    const char *csv;                              /* file to write, NULL: none */
} attention_options;

attention_options attention_options_default(void);

/* Prints one line per context and length. -1 with e set. */
int attention_run(const attention_options *o, err *e);

#endif
