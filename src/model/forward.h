/* forward.h - the forward pass: tokens of a batch in, logits out
 *
 * Holds the activations' scratch memory for invocations up to a given size, so that an invocation
 * allocates nothing. Of a model that is split, all ranks' passes, side by side. One thread. */
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

/* NULL with e set when a backend is short of memory. */
forward *forward_new(const model *m, const forward_limits *l, err *e);
void forward_free(forward *f);

/* The KvCache that each device of the model needs, but for its memory: in FP8, or of the backend's act type. A page
 * holds its ranks' layers one rank after the other. */
kv_cache forward_kv(const model *m, kv_form form, int n_pages, int page_len);

/* Claim and release their memory: kv is [devices]. */
int forward_kv_alloc(const model *m, kv_cache *kv, err *e);
void forward_kv_release(const model *m, kv_cache *kv);

/* Bytes of scratch for each row of an invocation, on the device that has most. */
size_t forward_row_bytes(const model *m);

/* Queue one invocation; kv, [devices], must be the same every time. Returns the logits of b->out_row, [at least n_out,
 * vocab], F32 in backend memory, one for each device, valid until the next call. */
const tensor *forward_run(forward *f, const batch *b, kv_cache *kv);

/* Draw from those logits, and collect what was drawn (backend.h: sample, collect): every device draws the same tokens,
 * which are its own next input. */
void forward_sample(forward *f, const tensor *logits, const sample_spec *spec, int n);
const sample_result *forward_collect(forward *f, err *e);

#endif
