/* prompts.c - see prompts.h */
#include "cli/prompts.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

static prompt *add(prompts *p, const char *adapter, const sampling_params *sampling)
{
    p->at = xgrow(p->at, &p->cap, (size_t)p->n + 1, sizeof *p->at);
    prompt *q = &p->at[p->n++];
    *q = (prompt){.adapter = adapter ? xstrdup(adapter) : NULL, .sampling = *sampling};
    return q;
}

void prompt_append(prompt *q, int token)
{
    q->token = xgrow(q->token, &q->token_cap, (size_t)q->n_tokens + 1, sizeof *q->token);
    q->token[q->n_tokens++] = token;
}

static int set_text(prompt *q, const char *text, size_t n, const tokenizer *t, err *e)
{
    ids encoded = {0};
    int status = tokenizer_encode(t, text, n, true, &encoded, e);
    for (size_t i = 0; status == 0 && i < encoded.n; i++)
        prompt_append(q, encoded.items[i]);
    q->n_prompt = q->n_tokens;
    ids_free(&encoded);
    return status;
}

int prompts_add_text(prompts *p, const char *adapter, const char *text, const tokenizer *t,
                     const sampling_params *sampling, err *e)
{
    return set_text(add(p, adapter, sampling), text, strlen(text), t, e);
}

static int read_id(const json_t *v, const char *key, int *out, err *e)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT_MAX)
        return err_set(e, "\"%s\" must hold token ids", key);
    *out = (int)json_integer_value(v);
    return 0;
}

static int read_prompt(prompt *q, const json_t *line, const tokenizer *t, err *e)
{
    const json_t *v = json_member(line, "prompt");
    if (json_is_string(v))
        return set_text(q, json_string_value(v), json_string_length(v), t, e);
    if (!json_is_array(v))
        return err_set(e, "\"prompt\" must be a string or an array of token ids");
    for (size_t i = 0; i < json_array_size(v); i++) {
        int token = 0;
        if (read_id(json_array_get(v, i), "prompt", &token, e))
            return -1;
        prompt_append(q, token);
    }
    q->n_prompt = q->n_tokens;
    return 0;
}

static int read_stop_ids(sampling_params *s, const json_t *line, err *e)
{
    const json_t *v = json_member(line, "stop_token_ids");
    if (!v)
        return 0;
    if (!json_is_array(v) || json_array_size(v) > MAX_STOP_IDS)
        return err_set(e, "\"stop_token_ids\" must be an array of at most %d token ids", MAX_STOP_IDS);
    s->n_stop = 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (read_id(json_array_get(v, i), "stop_token_ids", &s->stop[s->n_stop++], e))
            return -1;
    return 0;
}

static int read_float(const json_t *line, const char *key, float *out, err *e)
{
    double x = (double)*out;
    if (json_get_double(line, key, &x, e))
        return -1;
    *out = (float)x;
    return 0;
}

static int read_int(const json_t *line, const char *key, int *out, err *e)
{
    long x = *out;
    if (json_get_int(line, key, INT_MIN, INT_MAX, &x, e))
        return -1;
    *out = (int)x;
    return 0;
}

static int read_sampling(sampling_params *s, const json_t *line, err *e)
{
    long seed = -1;
    if (read_float(line, "temperature", &s->temperature, e) || read_int(line, "top_k", &s->top_k, e) ||
        read_float(line, "top_p", &s->top_p, e) || read_float(line, "min_p", &s->min_p, e) ||
        read_float(line, "repetition_penalty", &s->repetition_penalty, e) ||
        read_float(line, "presence_penalty", &s->presence_penalty, e) ||
        read_float(line, "frequency_penalty", &s->frequency_penalty, e) ||
        read_int(line, "max_tokens", &s->max_tokens, e) || read_int(line, "min_tokens", &s->min_tokens, e) ||
        json_get_bool(line, "ignore_eos", &s->ignore_eos, e) || read_int(line, "logprobs", &s->n_logprobs, e) ||
        json_get_int(line, "seed", 0, LONG_MAX, &seed, e) || read_stop_ids(s, line, e))
        return -1;
    if (seed >= 0)
        s->seed = (uint64_t)seed;
    return sampling_check(s, e);
}

/* Refuses unknown members: a misspelt parameter must not go unnoticed. */
static int check_keys(const json_t *line, err *e)
{
    static const char *const known[] = {"adapter",
                                        "prompt",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "max_tokens",
                                        "min_tokens",
                                        "ignore_eos",
                                        "logprobs",
                                        "seed",
                                        "stop_token_ids"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
            found = strcmp(key, known[i]) == 0;
        if (!found)
            return err_set(e, "unknown member \"%s\"", key);
    }
    return 0;
}

static int read_line(prompts *p, const char *text, size_t n, const tokenizer *t, const sampling_params *defaults,
                     err *e)
{
    json_t *line = json_read_text(text, n, e);
    if (!line)
        return -1;
    int status = -1;
    const char *adapter = NULL;
    if (!json_is_object(line))
        err_set(e, "each line must be a JSON object");
    else if (check_keys(line, e) == 0 && json_get_string(line, "adapter", &adapter, e) == 0) {
        int index = p->n;
        prompt *q = add(p, adapter, defaults);
        q->sampling.seed = rng_u64(defaults->seed, (uint64_t)index);
        status = read_sampling(&q->sampling, line, e) || read_prompt(q, line, t, e) ? -1 : 0;
    }
    json_decref(line);
    return status;
}

int prompts_read(prompts *p, FILE *in, const char *name, const tokenizer *t, const sampling_params *defaults, err *e)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int status = 0;
    for (int number = 1; status == 0 && (n = getline(&line, &cap, in)) >= 0; number++) {
        if (strspn(line, " \t\r\n") == (size_t)n)
            continue;
        status = read_line(p, line, (size_t)n, t, defaults, e);
        if (status)
            err_wrap(e, "%s line %d", name, number);
        else
            p->at[p->n - 1].line = number;
    }
    if (status == 0 && ferror(in))
        status = err_set(e, "cannot read %s: %s", name, strerror(errno));
    free(line);
    return status;
}

void prompts_deinit(prompts *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->at[i].adapter);
        free(p->at[i].token);
    }
    free(p->at);
    *p = (prompts){0};
}
