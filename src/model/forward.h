/* forward.h - the forward pass: tokens of a batch in, logits out
 *
 * Holds the activations' scratch memory for invocations up to a given size, so that an invocation allocates nothing. Of
 * a split model it runs all ranks' passes, side by side. One thread. */
#ifndef PUNICA_MODEL_FORWARD_H
#define PUNICA_MODEL_FORWARD_H

#include "model/model.h"

typedef struct forward forward;

/* The largest invocation: rows, sequences, rows of logits, the sequences' pages in all and tokens in
 * a page, the largest sum of an adapter's ranks at one site, and what pages hold. */
typedef struct {
    int rows, sequences, out, pages, page_len, rank_sum;
    kv_form kv;
} forward_limits;

/* Claims the memory of the largest invocation. NULL with e set when a backend is short of it. */
forward *forward_new(const model *m, const forward_limits *l, err *e);
void forward_free(forward *f);

/* Returns the KvCache that each device of the model needs, without memory: in FP8, or of the backend's act type. A page
 * holds its ranks' layers one rank after the other. */
kv_cache forward_kv(const model *m, kv_form form, int n_pages, int page_len);

/* Claim and release the memory of each device's KvCache. kv: [devices], of which kv[0] says the sizes. On failure what
 * was claimed stays, for forward_kv_release(). */
int forward_kv_alloc(const model *m, kv_cache *kv, err *e);
void forward_kv_release(const model *m, kv_cache *kv);

/* Returns the bytes of scratch for each row of an invocation, on the device that needs most. */
size_t forward_row_bytes(const model *m);

/* Queues one invocation; kv, [devices], must be the same every time. Returns the logits of b->out_row, [at least n_out,
 * vocab], F32 in backend memory, one tensor for each device, valid until the next call. */
const tensor *forward_run(forward *f, const batch *b, kv_cache *kv);

/* forward_sample() queues draws from those logits, forward_collect() waits for what was drawn (backend.h: sample,
 * collect). Every device draws the same tokens, which are its own next input. */
void forward_sample(forward *f, const tensor *logits, const sample_spec *spec, int n);
const sample_result *forward_collect(forward *f, err *e);

#endif
