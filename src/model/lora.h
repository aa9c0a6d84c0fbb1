/* lora.h - an adapter in the form the SGMV ops read: all parts in one block of memory, each tensor on a
 * 64-byte boundary, each of its own rank
 *
 * It is made in host memory, in the types its backend wants, and is then an image that one copy takes to
 * the backend. Where host memory is the backend's own, the image is used as it is. */
#ifndef PUNICA_MODEL_LORA_H
#define PUNICA_MODEL_LORA_H

#include "backend/backend.h"
#include "model/config.h"
#include "model/split.h"

/* Sites for n_layers layers, of all ranks together, none adapted. To build an adapter: set rank, scale, and type and
 * shape of a and b where it adapts; lora_place; write to where a and b then point. */
lora *lora_new(int n_layers);

/* Claim host memory for all parts and give each its place; what lies between them is zeroed. */
void lora_place(lora *l);

/* The same parts in another block of l->bytes, which the result then owns; nothing is copied. */
lora *lora_index(const lora *l, void *data);

/* A copy in the backend's memory, ready for ops; of a group, in each device's what its ranks hold. Safe on any thread.
 * NULL with e set when it does not fit. */
lora *lora_upload(const lora *host, backend *be, err *e);

/* Random weights of scale 1 on all seven projections, split over n_ranks, in host memory, for benchmarks. */
lora *lora_random(const model_config *base, int n_ranks, int rank, dtype type, unsigned long seed);

/* The shapes of A and B at a site of one rank: split.h. */
lora_part lora_part_of(const model_config *base, split s, int site, int part, int rank, dtype a, dtype b);

/* be: whose memory it is in; NULL: host memory. l may be NULL. */
void lora_free(lora *l, backend *be);

#endif
