/* lora.h - an adapter in the form the SGMV ops read: all parts in one block of memory, each tensor on a
 * 64-byte boundary, each of its own rank
 *
 * It is made in host memory, in the types its backend wants: an image, which one copy takes to the backend. Where host
 * memory is the backend's own, the image is used as it is. */
#ifndef PUNICA_MODEL_LORA_H
#define PUNICA_MODEL_LORA_H

#include "backend/backend.h"
#include "model/config.h"
#include "model/split.h"

/* Makes an adapter of n_layers layers (of all ranks together) in which no site is adapted. To fill it: set rank, scale,
 * and type and shape of a and b where it adapts; call lora_place(); write to where a and b then point. Free with
 * lora_free(). */
lora *lora_new(int n_layers);

/* Claims host memory for all parts and gives each its place; what lies between them is zeroed. */
void lora_place(lora *l);

/* Makes an adapter of the same parts in another block of l->bytes, which it owns from then on; copies no weights. */
lora *lora_index(const lora *l, void *data);

/* Copies an adapter to the backend's memory, ready for ops; of a group, to each device what its ranks hold. Any thread
 * may call it. NULL with e set when it does not fit. */
lora *lora_upload(const lora *host, backend *be, err *e);

/* Makes an adapter of random weights and scale 1 on all seven projections, split over n_ranks, in host memory, for
 * benchmarks. */
lora *lora_random(const model_config *base, int n_ranks, int rank, dtype type, unsigned long seed);

/* Returns the shapes of A and B at a site of one rank (split.h), without data. */
lora_part lora_part_of(const model_config *base, split s, int site, int part, int rank, dtype a, dtype b);

/* Frees an adapter in the memory of be, or with be NULL in host memory. l may be NULL. */
void lora_free(lora *l, backend *be);

#endif
