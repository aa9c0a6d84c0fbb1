/* forward.h - the forward pass: tokens of a batch in, logits out
 *
 * Holds the activations' scratch memory for invocations up to a given size, so that an invocation
 * allocates nothing. One thread. */
#ifndef PUNICA_MODEL_FORWARD_H
#define PUNICA_MODEL_FORWARD_H

#include "model/model.h"

typedef struct forward forward;

/* For at most max_rows rows, max_out rows of logits, and adapters whose ranks at one site sum to
 * at most max_rank_sum. NULL with e set when the backend is short of memory. */
forward *forward_new(const model *m, int max_rows, int max_out, int max_rank_sum, err *e);
void forward_free(forward *f);

/* Queue one invocation. Returns the logits of b->out_row, [n_out, vocab], float32 in backend
 * memory, valid until the next call. */
const tensor *forward_run(forward *f, const batch *b, kv_cache *kv);

#endif
