/* sequence.c - see sequence.h */
#include "engine/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/mem.h"

static void append_token(sequence *s, int token)
{
    s->item.token = xgrow(s->item.token, &s->token_cap, (size_t)s->item.n_tokens + 1, sizeof *s->item.token);
    if (s->uses_history)
        token_counts_add(&s->history, token, s->item.n_tokens >= s->n_prompt);
    s->item.token[s->item.n_tokens++] = token;
}

int sequence_n_to_score(const engine_request *r)
{
    return r->sampling.n_prompt_logprobs >= 0 ? r->n_prompt - 1 : 0;
}

/* Ids outside the vocabulary are never drawn, and no mask has a bit for them. */
static void add_end_tokens(sequence *s, const int *id, int n, int vocab)
{
    for (int i = 0; i < n; i++)
        if (id[i] >= 0 && id[i] < vocab)
            s->end[s->n_end++] = id[i];
}

static void set_end_tokens(sequence *s, const model_config *c)
{
    add_end_tokens(s, c->eos, s->sampling.ignore_eos ? 0 : c->n_eos, c->vocab);
    add_end_tokens(s, s->sampling.stop, s->sampling.n_stop, c->vocab);
}

/* Tokens, prompt and output, that the request and the context allow. */
static int max_tokens_of(const engine_request *r, const model_config *c)
{
    int positions = c->max_positions;
    return r->sampling.max_tokens < positions - r->n_prompt ? r->n_prompt + r->sampling.max_tokens : positions;
}

/* The root of its pages: the adapter, which changes keys and values, and the salt, which limits who may share them. */
static kv_key root_of(const engine_request *r)
{
    digest d;
    kv_key key;
    const char *adapter = r->adapter ? r->adapter : "", *salt = r->cache_salt ? r->cache_salt : "";
    digest_of_parts(&d, (digest_part[]){{adapter, strlen(adapter) + 1}, {salt, strlen(salt)}}, 2);
    memcpy(&key, &d, sizeof key);
    key.part[0] |= 1;
    return key;
}

sequence *sequence_new(const engine_request *r, const model_config *c)
{
    sequence *s = XNEW(sequence);
    *s = (sequence){.item = {.id = r->id, .arrival = r->arrival, .limit = max_tokens_of(r, c), .root = root_of(r)},
                    .n_prompt = r->n_prompt,
                    .sampling = r->sampling};
    s->item.adapter = r->adapter ? xstrdup(r->adapter) : NULL;
    s->next_score = r->n_prompt - sequence_n_to_score(r) + r->n_scored;
    s->item.is_scored = s->next_score < s->n_prompt;
    s->uses_history =
        r->sampling.repetition_penalty != 1 || r->sampling.presence_penalty != 0 || r->sampling.frequency_penalty != 0;
    set_end_tokens(s, c);
    token_rules_copy(&s->rules, &r->rules);
    if (token_rules_mask(&s->rules))
        s->mask = XNEW_ARRAY(uint32_t, (size_t)guide_mask_words(c->vocab));
    for (int i = 0; i < r->n_tokens; i++)
        append_token(s, r->token[i]);
    return s;
}

void sequence_free(sequence *s)
{
    token_counts_deinit(&s->history);
    guide_state_free(s->state);
    token_rules_deinit(&s->rules);
    free(s->mask);
    free(s->item.adapter);
    free(s->item.token);
    free(s);
}

/* Returns whether the output ends with the token just appended. */
static bool is_finished(const sequence *s, finish_reason *why)
{
    *why = FINISH_STOP;
    for (int i = 0; i < s->n_end; i++)
        if (s->item.token[s->item.n_tokens - 1] == s->end[i])
            return true;
    *why = FINISH_LENGTH;
    return s->item.n_tokens >= s->item.limit;
}

bool sequence_add_drawn(sequence *s, int token, finish_reason *why)
{
    append_token(s, token);
    if (is_finished(s, why))
        return true;
    if (s->state)
        guide_state_add(s->state, token);
    return false;
}

/* Makes the grammar's state, if there is none yet, from the output so far. */
static void follow_output(sequence *s)
{
    if (!s->rules.grammar || s->state)
        return;
    s->state = guide_state_new(s->rules.grammar);
    for (int i = s->n_prompt; i < s->item.n_tokens; i++)
        guide_state_add(s->state, s->item.token[i]);
}

void sequence_fill_mask(sequence *s, int vocab)
{
    if (!s->mask)
        return;
    follow_output(s);
    s->stuck = !token_rules_fill(&s->rules, s->state, s->item.token, s->item.n_tokens, s->item.n_tokens - s->n_prompt,
                                 s->end, s->n_end, vocab, s->mask, &s->only_end);
}

sample_spec sequence_draw_spec(const sequence *s)
{
    const sampling_params *h = &s->sampling;
    int n_tokens = s->item.n_tokens + s->item.in_flight;
    bool too_early = n_tokens - s->n_prompt < h->min_tokens && !s->only_end;
    return (sample_spec){
        .temperature = h->temperature,
        .top_k = h->top_k,
        .top_p = h->top_p,
        .min_p = h->min_p,
        .repetition_penalty = h->repetition_penalty,
        .presence_penalty = h->presence_penalty,
        .frequency_penalty = h->frequency_penalty,
        .seed = h->seed,
        .position = (uint64_t)n_tokens,
        .n_seen = s->history.n,
        .seen = s->history.token,
        .seen_output = s->history.in_output,
        .n_banned = too_early ? s->n_end : 0,
        .banned = s->end,
        .mask = s->mask,
        .n_bias = s->rules.n_bias,
        .biased = s->rules.biased,
        .bias = s->rules.bias,
        .n_logprobs = h->n_logprobs,
    };
}

sample_spec sequence_score_spec(const sequence *s, int token)
{
    return (sample_spec){.top_p = 1,
                         .repetition_penalty = 1,
                         .n_logprobs = s->sampling.n_prompt_logprobs,
                         .given = true,
                         .token = s->item.token[token]};
}

void sequence_explain_failure(const sequence *s, err *e)
{
    const char *with = s->item.adapter ? " with adapter " : "", *adapter = s->item.adapter ? s->item.adapter : "";
    if (s->state && guide_state_is_exhausted(s->state))
        err_set(e, "the grammar is too ambiguous: following it takes more time or memory than a request has");
    else if (s->stuck)
        err_set(
            e,
            "no token of the vocabulary can follow the output so far, as the request's grammar or token lists demand");
    else
        err_set(e, "the model produced numbers that are not finite%s%s", with, adapter);
}
