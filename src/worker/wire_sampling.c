/* wire_sampling.c - see wire_sampling.h */
#include "worker/wire_sampling.h"

#include <limits.h>
#include <string.h>

#include "net/wire.pb-c.h"

static int convert(sampling *out, const Sampling *s, uint32_t max_tokens, err *e)
{
    if (s->n_stop_ids > MAX_STOP_IDS)
        return err_set(e, "at most %d stop token ids are accepted", MAX_STOP_IDS);
    *out = (sampling){
        .temperature = s->temperature, .top_k = s->top_k, .top_p = s->top_p, .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty, .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty, .seed = s->seed,
        .max_tokens = max_tokens < INT_MAX ? (int)max_tokens : INT_MAX, .min_tokens = s->min_tokens,
        .ignore_eos = s->ignore_eos, .n_stop = (int)s->n_stop_ids,
        .n_logprobs = s->n_logprobs < 0 ? INT_MIN : s->n_logprobs - 1,          /* for the check to find */
    };
    if (s->n_stop_ids)
        memcpy(out->stop, s->stop_ids, s->n_stop_ids * sizeof *s->stop_ids);
    return sampling_check(out, e);
}

int wire_sampling_read(sampling *out, const void *bytes, size_t n, uint32_t max_tokens, err *e)
{
    Sampling *s = sampling__unpack(NULL, n, bytes);
    if (!s)
        return err_set(e, "the request's sampling cannot be read");
    int status = convert(out, s, max_tokens, e);
    sampling__free_unpacked(s, NULL);
    return status;
}

void wire_logprobs_write(buf *out, const sample_result *r, int n_top)
{
    TopLogprob top[MAX_LOGPROBS], *tops[MAX_LOGPROBS];
    for (int i = 0; i < n_top; i++) {
        top[i] = (TopLogprob)TOP_LOGPROB__INIT;
        top[i].token = r->top[i].token;
        top[i].logprob = r->top[i].logprob;
        tops[i] = &top[i];
    }
    Logprobs one = LOGPROBS__INIT, *all[] = {&one};
    one.logprob = r->logprob;
    one.n_top = (size_t)n_top;
    one.top = tops;
    LogprobList list = LOGPROB_LIST__INIT;
    list.n_tokens = 1;
    list.tokens = all;
    size_t n = logprob_list__get_packed_size(&list);
    CHECK(logprob_list__pack(&list, (uint8_t *)buf_extend(out, n)) == n);
}
