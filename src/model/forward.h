/* forward.h - the forward pass: tokens of a batch in, logits out
 *
 * Holds the activations' scratch memory for invocations up to a given size, so that an invocation
 * allocates nothing. One thread. */
#ifndef PUNICA_MODEL_FORWARD_H
#define PUNICA_MODEL_FORWARD_H

#include "model/model.h"

typedef struct forward forward;

/* The largest invocation: rows, sequences (and rows of logits), the sequences' pages in all and tokens in
 * a page, and the largest sum of an adapter's ranks at one site. */
typedef struct { int rows, sequences, pages, page_len, rank_sum; } forward_limits;

/* NULL with e set when the backend is short of memory. */
forward *forward_new(const model *m, const forward_limits *l, err *e);
void forward_free(forward *f);

/* Queue one invocation; kv must be the same every time. Returns the logits of b->out_row, [at least n_out,
 * vocab], F32 in backend memory, valid until the next call. */
const tensor *forward_run(forward *f, const batch *b, kv_cache *kv);

#endif
