/* batch_builder.h - lays the rows of one invocation out
 *
 * Prefills first, then decodes; within each, rows of one adapter adjacent, adapters by place; the decodes of the last
 * prefill's adapter come first, so that the two share a segment. */
#ifndef PUNICA_ENGINE_BATCH_BUILDER_H
#define PUNICA_ENGINE_BATCH_BUILDER_H

#include <stdbool.h>

#include "backend/batch.h"
#include "engine/kv_pool.h"

/* The rows one sequence brings to an invocation. */
typedef struct {
    void *owner;          /* the caller's, untouched */
    const int *token;     /* [n_rows] */
    int n_rows, position; /* of the first row */
    const kv_seq *kv;
    const lora *lora; /* NULL: the base model */
    int place;        /* of its adapter; segments are in this order */
    int n_out;        /* how many of its last rows' logits are wanted */
} batch_item;

typedef struct batch_builder batch_builder;

batch_builder *batch_builder_new(void);
void batch_builder_free(batch_builder *bb);

/* Builds the batch, valid until the next call. Sorts prefill and decode into the order of the batch; logits come in
 * that order too. */
const batch *batch_build(batch_builder *bb, batch_item *prefill, int n_prefills, batch_item *decode, int n_decodes);

#endif
