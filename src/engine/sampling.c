/* sampling.c - see sampling.h */
#include "engine/sampling.h"

#include <math.h>

#include "backend/backend.h"
#include "base/sampling_limits.h"

sampling_params sampling_default(void)
{
    return (sampling_params){
        .top_p = 1, .repetition_penalty = 1, .max_tokens = 64, .n_logprobs = -1, .n_prompt_logprobs = -1};
}

int sampling_check(const sampling_params *s, err *e)
{
    if (!(s->temperature >= 0 && s->temperature <= MAX_TEMPERATURE))
        return err_set(e, "temperature must be between 0 and %d", MAX_TEMPERATURE);
    if (s->top_k < 0)
        return err_set(e, "top_k must be 0 (off) or more");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(e, "top_p must be more than 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set(e, "min_p must be between 0 and 1");
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= MAX_REPETITION_PENALTY))
        return err_set(e, "repetition_penalty must be more than 0 and at most %d", MAX_REPETITION_PENALTY);
    if (!(fabsf(s->presence_penalty) <= MAX_PENALTY))
        return err_set(e, "presence_penalty must be between %d and %d", -MAX_PENALTY, MAX_PENALTY);
    if (!(fabsf(s->frequency_penalty) <= MAX_PENALTY))
        return err_set(e, "frequency_penalty must be between %d and %d", -MAX_PENALTY, MAX_PENALTY);
    if (s->max_tokens < (s->n_prompt_logprobs >= 0 ? 0 : 1))
        return err_set(e, "max_tokens must be 1 or more");
    if (s->min_tokens < 0 || s->min_tokens > s->max_tokens)
        return err_set(e, "min_tokens must be between 0 and max_tokens");
    if (s->n_stop < 0 || s->n_stop > MAX_STOP_IDS)
        return err_set(e, "at most %d stop token ids are accepted", MAX_STOP_IDS);
    if (s->n_logprobs < -1 || s->n_logprobs > MAX_LOGPROBS)
        return err_set(e, "logprobs must be between 0 and %d", MAX_LOGPROBS);
    if (s->n_prompt_logprobs < -1 || s->n_prompt_logprobs > MAX_LOGPROBS)
        return err_set(e, "logprobs of the prompt must be between 0 and %d", MAX_LOGPROBS);
    return 0;
}
