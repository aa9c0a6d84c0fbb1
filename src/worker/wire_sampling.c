/* wire_sampling.c - see wire_sampling.h */
#include "worker/wire_sampling.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int convert(sampling_params *out, const Sampling *s, uint32_t max_tokens, err *e)
{
    if (s->n_stop_ids > MAX_STOP_IDS)
        return err_set(e, "at most %d stop token ids are accepted", MAX_STOP_IDS);
    *out = (sampling_params){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .seed = s->seed,
        .max_tokens = max_tokens < INT_MAX ? (int)max_tokens : INT_MAX,
        .min_tokens = s->min_tokens,
        .ignore_eos = s->ignore_eos,
        .n_stop = (int)s->n_stop_ids,
        .n_logprobs = s->n_logprobs < 0 ? INT_MIN : s->n_logprobs - 1, /* sampling_check() refuses INT_MIN */
        .n_prompt_logprobs = s->n_prompt_logprobs < 0 ? INT_MIN : s->n_prompt_logprobs - 1,
    };
    if (s->n_stop_ids)
        memcpy(out->stop, s->stop_ids, s->n_stop_ids * sizeof *s->stop_ids);
    return sampling_check(out, e);
}

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *p = xcalloc(n ? n : 1, size);
    if (n)
        memcpy(p, from, n * size);
    return p;
}

/* Reads the bad words: their lengths, and their tokens one behind the other. */
static int read_bad_words(token_rules *r, const Sampling *s, err *e)
{
    size_t at = 0;
    r->bad_indptr = XNEW_ARRAY(int, s->n_bad_lengths + 1);
    r->bad = copy_of(s->bad_ids, s->n_bad_ids, sizeof *r->bad);
    for (size_t i = 0; i < s->n_bad_lengths; i++) {
        if (s->bad_lengths[i] == 0 || s->bad_lengths[i] > s->n_bad_ids - at)
            return err_set(e, "the request's bad words cannot be read");
        r->bad_indptr[i + 1] = (int)(at += s->bad_lengths[i]);
    }
    r->n_bad = (int)s->n_bad_lengths;
    return 0;
}

static int read_rules(token_rules *r, const Sampling *s, err *e)
{
    if (s->n_biased != s->n_bias || s->n_bias > INT_MAX / 4 || s->n_allowed_ids > INT_MAX / 4 ||
        s->n_bad_ids > INT_MAX / 4)
        return err_set(e, "the request's token lists cannot be read");
    r->n_bias = (int)s->n_bias;
    r->biased = copy_of(s->biased, s->n_biased, sizeof *r->biased);
    r->bias = copy_of(s->bias, s->n_bias, sizeof *r->bias);
    r->n_allowed = (int)s->n_allowed_ids;
    r->allowed = copy_of(s->allowed_ids, s->n_allowed_ids, sizeof *r->allowed);
    return read_bad_words(r, s, e);
}

void wire_sampling_deinit(wire_sampling *s)
{
    token_rules_deinit(&s->rules);
    sampling__free_unpacked(s->wire, NULL);
    *s = (wire_sampling){0};
}

int wire_sampling_read(wire_sampling *out, const void *bytes, size_t n, uint32_t max_tokens, err *e)
{
    *out = (wire_sampling){.wire = sampling__unpack(NULL, n, bytes)};
    if (!out->wire)
        return err_set(e, "the request's sampling cannot be read");
    if (convert(&out->params, out->wire, max_tokens, e) || read_rules(&out->rules, out->wire, e)) {
        wire_sampling_deinit(out);
        return -1;
    }
    return 0;
}

void wire_logprobs_write(buf *out, const sample_result *r, int n_top)
{
    TopLogprob top[MAX_LOGPROBS], *tops[MAX_LOGPROBS];
    while (n_top > 0 && r->top[n_top - 1].token < 0)
        n_top--;
    for (int i = 0; i < n_top; i++) {
        top[i] = (TopLogprob)TOP_LOGPROB__INIT;
        top[i].token = r->top[i].token;
        top[i].logprob = r->top[i].logprob;
        tops[i] = &top[i];
    }
    Logprobs one = LOGPROBS__INIT, *all[] = {&one};
    one.logprob = r->logprob;
    one.rank = r->rank;
    one.n_top = (size_t)n_top;
    one.top = tops;
    LogprobList list = LOGPROB_LIST__INIT;
    list.n_tokens = 1;
    list.tokens = all;
    size_t n = logprob_list__get_packed_size(&list);
    CHECK(logprob_list__pack(&list, (uint8_t *)buf_extend(out, n)) == n);
}
