/* sampling.h - the sampling parameters of a request, as the engine keeps them
 *
 * They have three forms, one for each layer: Sampling (net/wire.proto) from a client's JSON to the worker, where lists
 * and a grammar's text travel with them; sampling_params here, numbers of a fixed size, with token_rules.h for the
 * lists; sample_spec (backend/backend.h) for one draw, with the sequence's state. */
#ifndef PUNICA_ENGINE_SAMPLING_H
#define PUNICA_ENGINE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define MAX_STOP_IDS 16

typedef struct {
    float temperature; /* 0: greedy */
    int top_k;         /* 0: off */
    float top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed;
    /* Of output, over all attempts of a request; max_tokens may be 0 if the prompt is scored. */
    int max_tokens, min_tokens;
    bool ignore_eos;
    int n_stop, stop[MAX_STOP_IDS]; /* further token ids that end the output */
    int n_logprobs;                 /* -1: none; 0: the chosen token's; n: and the n most likely */
    int n_prompt_logprobs;          /* the same for each token of the prompt but the first: these are scored */
} sampling_params;

sampling_params sampling_default(void);

/* -1 when a value is out of range; e names it. */
int sampling_check(const sampling_params *s, err *e);

#endif
