/* engine_sizes.h - how large an engine is where its caller leaves it open: pages, batch, rows of a step, by the memory
 * of its devices */
#ifndef PUNICA_ENGINE_ENGINE_SIZES_H
#define PUNICA_ENGINE_ENGINE_SIZES_H

#include "engine/engine.h"
#include "model/forward.h"

enum { SCORED_ROWS = 128 }; /* of a step: logits of so many rows need memory, and time for which others wait */
enum { USUAL_LEN = 1024 };  /* tokens of a request, by which room in the KvCache is counted */

/* Whether the model is on devices with memory of their own. */
bool engine_sizes_is_gpu(const model *m);

/* Sets what is 0 in *o: max_batch, n_pages, prefill_rows, n_adapter_slots. one: a KvCache whose pages have the form
 * that all will have. */
void engine_sizes_choose(engine_options *o, const model *m, const kv_cache *one);

/* Tokens of the longest request. */
int engine_sizes_longest(const engine_options *o, const model *m);

/* -1 when requests may be longer than the model allows, or than the n_pages of the KvCache hold. */
int engine_sizes_check(const engine_options *o, const model *m, err *e);

/* Bytes of host memory for pages. */
size_t engine_sizes_host_bytes(const engine_options *o, const model *m);

/* Rows of logits that a step may have; the largest step. */
int engine_sizes_max_out(const engine_options *o);
forward_limits engine_sizes_of_step(const engine_options *o, const model *m);

/* -1, with e saying what takes how much memory and what would fit. To be called when the KvCache did not fit, for the
 * reason that e has. */
int engine_sizes_explain(const kv_cache *kv, const model *m, err *e);

/* n, but not outside of least and most. */
int engine_sizes_within(double n, int least, int most);

#endif
