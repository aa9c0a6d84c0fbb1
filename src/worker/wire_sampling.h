/* wire_sampling.h - sampling and its results between the engine's form and the wire's */
#ifndef PUNICA_WORKER_WIRE_SAMPLING_H
#define PUNICA_WORKER_WIRE_SAMPLING_H

#include "backend/backend.h"
#include "base/buf.h"
#include "engine/sampling.h"

/* A packed Sampling; max_tokens travels beside it. -1 with e set when it is none, or a value is out of range. */
int wire_sampling_read(sampling *out, const void *bytes, size_t n, uint32_t max_tokens, err *e);

/* Append a LogprobList of one token with its n_top most likely. */
void wire_logprobs_write(buf *out, const sample_result *r, int n_top);

#endif
