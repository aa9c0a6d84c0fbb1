/* wire_sampling.h - sampling and its results between the engine's form and the wire's */
#ifndef PUNICA_WORKER_WIRE_SAMPLING_H
#define PUNICA_WORKER_WIRE_SAMPLING_H

#include "backend/backend.h"
#include "base/buf.h"
#include "engine/sampling.h"
#include "engine/token_rules.h"

/* What a request says of its tokens. */
typedef struct {
    sampling_params params;
    token_rules rules; /* its grammar is not compiled here: */
    grammar_kind kind;
    char *grammar; /* [n_grammar] its text */
    size_t n_grammar;
    char *cache_salt;
    char *adapter_id, *adapter_source; /* "": it is on every host, or nowhere else */
    bool trusted_source;
} wire_sampling;

/* A packed Sampling; max_tokens travels beside it. -1 with e set when it is none, or a value is out of range; out then
 * needs no deinit. */
int wire_sampling_read(wire_sampling *out, const void *bytes, size_t n, uint32_t max_tokens, err *e);
void wire_sampling_deinit(wire_sampling *s);

/* Append a LogprobList of one token with its n_top most likely, or as many as there are. */
void wire_logprobs_write(buf *out, const sample_result *r, int n_top);

#endif
