/* engine_sizes.h - sizes of an engine that its caller leaves open (pages, batch, rows of a step), by the memory of its
 * devices */
#ifndef PUNICA_ENGINE_ENGINE_SIZES_H
#define PUNICA_ENGINE_ENGINE_SIZES_H

#include "engine/engine.h"
#include "model/forward.h"

enum { SCORED_ROWS = 128 }; /* at most in a step: logits take memory, and time for which other requests wait */
enum { USUAL_LEN = 1024 };  /* tokens of a typical request, to count how many the KvCache has room for */

/* Returns whether the model is on devices with memory of their own. */
bool engine_sizes_is_gpu(const model *m);

/* Sets max_batch, n_pages, prefill_rows and n_adapter_slots of *o where they are 0. one: a KvCache that has the form of
 * a page; its n_pages does not matter. */
void engine_sizes_choose(engine_options *o, const model *m, const kv_cache *one);

/* Returns the tokens of the longest request allowed. */
int engine_sizes_longest(const engine_options *o, const model *m);

/* -1 with e set when requests may be longer than the model allows, or max_len is more than the n_pages of the KvCache
 * hold. */
int engine_sizes_check(const engine_options *o, const model *m, err *e);

/* Returns the bytes of pinned host memory for pages, with KV_HOST_AUTO resolved. */
size_t engine_sizes_host_bytes(const engine_options *o, const model *m);

/* The rows of logits that a step may have, and all sizes of the largest step. */
int engine_sizes_max_out(const engine_options *o);
forward_limits engine_sizes_of_step(const engine_options *o, const model *m);

/* Adds to e, the reason why the KvCache did not fit, what takes how much memory and what would fit. Returns -1. */
int engine_sizes_explain(const kv_cache *kv, const model *m, err *e);

/* Returns n clamped to [least, most]. */
int engine_sizes_within(double n, int least, int most);

#endif
