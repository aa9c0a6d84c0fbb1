/* split.h - which part of a model each of n ranks holds (tensor parallelism, as Megatron-LM splits)
 *
 *   q, k, v, gate, up      some of the outputs: whole heads, and stretches of the feed-forward width
 *   o, down                the inputs that those outputs are; each rank has a part of the sum
 *   embedding, logits      a stretch of the vocabulary
 *   norms                  whole
 *
 * All ranks have equally many query heads. Keys and values are split by heads too; where there are fewer of those than
 * ranks, several ranks hold the same one. An adapter's A and B are split as the projection that they add to. Where
 * outputs are split, A is whole and B is split; where inputs are, A is split and B whole. Then v = x A^T and v B are
 * parts of the sum, as x W^T is, so adapters need no communication of their own. */
#ifndef PUNICA_MODEL_SPLIT_H
#define PUNICA_MODEL_SPLIT_H

#include "backend/backend.h"
#include "model/config.h"

/* Rank `rank` of n. */
typedef struct { int rank, n; } split;

/* Elements [from, from + n) of a dimension. */
typedef struct { int from, n; } split_stretch;

/* -1 with e saying why when a model cannot be split into so many ranks. */
int split_check(const model_config *c, int n_ranks, err *e);

heads split_heads(const model_config *c, split s);
split_stretch split_vocab(const model_config *c, split s);

/* The rows (outputs) and columns (inputs) of a projection's matrix that a rank holds. */
split_stretch split_out(const model_config *c, split s, int site, int part);
split_stretch split_in(const model_config *c, split s, int site);

/* Puts one rank's share of a site's linear, or of the output matrix, into *out. It points into w, except for what would
 * have gaps there: that is copied into memory which is returned, to be freed when *out is not used any more; NULL:
 * nothing was copied. With `borrow`, columns of a matrix stay where they are (proj.stride). */
void *split_site(linear *out, const linear *w, const model_config *c, split s, int site, bool borrow);
void *split_output(linear *out, const linear *w, const model_config *c, split s, bool borrow);

#endif
