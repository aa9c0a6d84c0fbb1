/* lora.h - an adapter in the form the SGMV ops read: all parts in one block of backend memory, each
 * tensor on a 64-byte boundary, each of its own rank */
#ifndef PUNICA_MODEL_LORA_H
#define PUNICA_MODEL_LORA_H

#include "backend/backend.h"
#include "model/config.h"

/* Sites for n_layers layers, none adapted. To build an adapter: set rank, scale, and type and shape of
 * a and b where it adapts; lora_place; fill an image of its l->bytes in host memory; upload that to
 * l->data. */
lora *lora_new(int n_layers);

/* Claim the backend memory and give every part its place in it. */
int lora_place(lora *l, backend *be, err *e);

/* Where a placed tensor lies in the image. */
void *lora_in_image(const lora *l, void *image, const tensor *t);

/* An adapter of random weights of scale 1 on all seven projections, for benchmarks. */
lora *lora_random(backend *be, const model_config *base, int rank, dtype type, unsigned long seed, err *e);

void lora_free(lora *l, backend *be);               /* l may be NULL */

#endif
