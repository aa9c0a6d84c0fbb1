/* wire_sampling.h - converts sampling parameters from the wire's form to the engine's, and log-probabilities back */
#ifndef PUNICA_WORKER_WIRE_SAMPLING_H
#define PUNICA_WORKER_WIRE_SAMPLING_H

#include "backend/backend.h"
#include "base/buf.h"
#include "engine/sampling.h"
#include "engine/token_rules.h"
#include "net/wire.pb-c.h"

/* A Sampling as it came, and its parts in the engine's form. */
typedef struct {
    Sampling *wire; /* its grammar is not compiled here; strings are "" where they are not set */
    sampling_params params;
    token_rules rules; /* without the grammar */
} wire_sampling;

/* Reads a packed Sampling; max_tokens travels beside it. Free with wire_sampling_deinit(). -1 with e set when it is
 * malformed, or a value is out of range; out then needs no deinit. */
int wire_sampling_read(wire_sampling *out, const void *bytes, size_t n, uint32_t max_tokens, err *e);
void wire_sampling_deinit(wire_sampling *s);

/* Appends a LogprobList of one token, with the n_top most likely tokens, or as many as there are. */
void wire_logprobs_write(buf *out, const sample_result *r, int n_top);

#endif
