/* api_request.c - see api_request.h */
#include "frontend/api_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sampling_limits.h"
#include "grammar/grammar.h"

/* Numbers, from a table. */

typedef enum { NUMBER_FLOAT, NUMBER_INT } number_kind;

static const struct number {
    const char *name;
    number_kind kind;
    size_t at; /* in api_request */
    double min, max;
} numbers[] = {
    {"temperature", NUMBER_FLOAT, offsetof(api_request, sampling.temperature), 0, MAX_TEMPERATURE},
    {"top_p", NUMBER_FLOAT, offsetof(api_request, sampling.top_p), MIN_TOP_P, 1},
    {"min_p", NUMBER_FLOAT, offsetof(api_request, sampling.min_p), 0, 1},
    {"presence_penalty", NUMBER_FLOAT, offsetof(api_request, sampling.presence_penalty), -MAX_PENALTY, MAX_PENALTY},
    {"frequency_penalty", NUMBER_FLOAT, offsetof(api_request, sampling.frequency_penalty), -MAX_PENALTY, MAX_PENALTY},
    {"repetition_penalty", NUMBER_FLOAT, offsetof(api_request, sampling.repetition_penalty), MIN_REPETITION_PENALTY,
     MAX_REPETITION_PENALTY},
    {"top_k", NUMBER_INT, offsetof(api_request, sampling.top_k), -1, INT32_MAX},
    {"min_tokens", NUMBER_INT, offsetof(api_request, sampling.min_tokens), 0, INT32_MAX},
    {"priority", NUMBER_INT, offsetof(api_request, priority), INT32_MIN, INT32_MAX},
    {"n", NUMBER_INT, offsetof(api_request, n), 1, MAX_CHOICES},
    {"max_tokens", NUMBER_INT, offsetof(api_request, max_tokens), 0, INT32_MAX},
};

static int parse_number(api_request *r, const struct number *f, api_error *e)
{
    void *out = (char *)r + f->at;
    if (f->kind == NUMBER_INT) {
        long x = *(int *)out;
        if (json_get_int(r->input, f->name, (long)f->min, (long)f->max, &x, &e->what))
            return api_error_bad(e, f->name);
        *(int *)out = (int)x;
        return 0;
    }
    double x = *(float *)out;
    if (json_get_double(r->input, f->name, &x, &e->what))
        return api_error_bad(e, f->name);
    if (!(x >= f->min && x <= f->max))
        return api_error_set(e, 400, f->name, NULL, "\"%s\" is %g; it must be between %g and %g", f->name, x, f->min,
                             f->max);
    *(float *)out = (float)x;
    return 0;
}

static int parse_numbers(api_request *r, api_error *e)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (parse_number(r, &numbers[i], e))
            return -1;
    long most = r->max_tokens;
    if (r->chat && json_get_int(r->input, "max_completion_tokens", 0, INT32_MAX, &most, &e->what))
        return api_error_bad(e, "max_completion_tokens");
    r->max_tokens = (int)most;
    if (r->sampling.top_k < 0)
        r->sampling.top_k = 0;
    if (r->max_tokens > r->most_tokens)
        r->max_tokens = r->most_tokens;
    if (r->max_tokens >= 0 && r->sampling.min_tokens > r->max_tokens)
        return api_error_set(e, 400, "min_tokens", NULL,
                             "\"min_tokens\" is %d, more than the %d that may be made (max_tokens)",
                             r->sampling.min_tokens, r->max_tokens);
    return 0;
}

/* Any integer of 64 bits is a seed. It may be a real: all numbers are, in a document with one too large for an
 * integer. */
static int parse_seed(api_request *r, api_error *e)
{
    const json_t *seed = json_member(r->input, "seed");
    double x = json_number_value(seed);
    bool whole = json_is_real(seed) && x == floor(x) && fabs(x) < 0x1p63;
    if (seed && !json_is_integer(seed) && !whole)
        return api_error_set(e, 400, "seed", NULL, "\"seed\" must be an integer of at most 64 bits");
    r->has_seed = seed != NULL;
    r->sampling.seed = (uint64_t)(whole ? (int64_t)x : (int64_t)json_integer_value(seed));
    return 0;
}

/* vLLM's "cache_salt": pages of the KvCache are shared only with requests that have the same. */
static int parse_cache_salt(api_request *r, api_error *e)
{
    const char *salt = NULL;
    if (json_get_string(r->input, "cache_salt", &salt, &e->what))
        return api_error_bad(e, "cache_salt");
    if (salt && strlen(salt) > MAX_SALT)
        return api_error_set(e, 400, "cache_salt", NULL, "\"cache_salt\" has %zu bytes; %d are the most", strlen(salt),
                             MAX_SALT);
    if (salt)
        r->sampling.cache_salt = r->cache_salt = xstrdup(salt);
    return 0;
}

static int parse_flags(api_request *r, api_error *e)
{
    bool ignore_eos = false;
    if (json_get_bool(r->input, "stream", &r->stream, &e->what))
        return api_error_bad(e, "stream");
    if (json_get_bool(r->input, "ignore_eos", &ignore_eos, &e->what))
        return api_error_bad(e, "ignore_eos");
    if (json_get_bool(r->input, "echo", &r->echo, &e->what))
        return api_error_bad(e, "echo");
    if (r->echo && r->chat)
        return api_error_set(e, 400, "echo", "unsupported_parameter",
                             "\"echo\" is for prompts (/v1/completions), not for chats");
    if (json_get_bool(r->input, "return_token_strs", &r->token_strings, &e->what))
        return api_error_bad(e, "return_token_strs");
    if (json_get_bool(r->input, "add_special_tokens", &r->add_special, &e->what))
        return api_error_bad(e, "add_special_tokens");
    r->sampling.ignore_eos = ignore_eos;
    if (parse_cache_salt(r, e))
        return -1;
    if (json_get_bool(r->input, "include_stop_str_in_output", &r->include_stop, &e->what))
        return api_error_bad(e, "include_stop_str_in_output");
    const json_t *options = json_member(r->input, "stream_options");
    if (options && !json_is_object(options))
        return api_error_set(e, 400, "stream_options", NULL, "\"stream_options\" must be an object");
    if (options && !r->stream)
        return api_error_set(e, 400, "stream_options", NULL,
                             "\"stream_options\" is for streams only (\"stream\": true)");
    if (json_get_bool(options, "include_usage", &r->include_usage, &e->what))
        return api_error_bad(e, "stream_options.include_usage");
    return 0;
}

/* The prompt is scored for vLLM's "prompt_logprobs", or for "logprobs" of an echo: n_prompt_logprobs is the larger. */
static int parse_prompt_logprobs(api_request *r, api_error *e)
{
    long n = -1;
    if (json_get_int(r->input, "prompt_logprobs", 0, MAX_TOP, &n, &e->what))
        return api_error_bad(e, "prompt_logprobs");
    if (n >= 0 && r->stream)
        return api_error_set(e, 400, "prompt_logprobs", NULL,
                             "\"prompt_logprobs\" are not for streams (\"stream\": true)");
    r->prompt_logprobs = (int)n;
    r->sampling.n_prompt_logprobs = (int)n + 1;
    if (r->echo && r->sampling.n_logprobs > r->sampling.n_prompt_logprobs)
        r->sampling.n_prompt_logprobs = r->sampling.n_logprobs;
    const char *most =
        r->chat && json_member(r->input, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    if (r->max_tokens == 0 && !r->echo && n < 0)
        return api_error_set(e, 400, most, NULL,
                             "\"%s\" is 0; it must be 1 or more, unless the prompt is all that is wanted: "
                             "with \"echo\" or \"prompt_logprobs\"",
                             most);
    return 0;
}

/* n_logprobs is one more than how many are wanted; 0 is none. */
static int parse_logprobs(api_request *r, api_error *e)
{
    long n = -1;
    bool wanted = false;
    if (!r->chat) {
        if (json_get_int(r->input, "logprobs", 0, MAX_TOP, &n, &e->what))
            return api_error_bad(e, "logprobs");
    } else {
        if (json_get_bool(r->input, "logprobs", &wanted, &e->what))
            return api_error_bad(e, "logprobs");
        if (json_get_int(r->input, "top_logprobs", 0, MAX_TOP, &n, &e->what))
            return api_error_bad(e, "top_logprobs");
        if (n >= 0 && !wanted)
            return api_error_set(e, 400, "top_logprobs", NULL, "\"top_logprobs\" needs \"logprobs\": true");
        n = wanted && n < 0 ? 0 : n;
    }
    r->sampling.n_logprobs = (int)n + 1;
    return parse_prompt_logprobs(r, e);
}

static int add_stop(api_request *r, const json_t *s, api_error *e)
{
    if (!json_is_string(s))
        return api_error_set(e, 400, "stop", NULL, "\"stop\" must be a string or a list of strings");
    size_t n = json_string_length(s);
    if (n == 0 || n > MAX_STOP_LEN)
        return api_error_set(e, 400, "stop", NULL, "a \"stop\" string has 1 to %d bytes, not %zu", MAX_STOP_LEN, n);
    stop_string *to = &r->stop[r->n_stops++];
    *to = (stop_string){.text = xmalloc(n), .n = n};
    memcpy(to->text, json_string_value(s), n);
    return 0;
}

static int parse_stops(api_request *r, api_error *e)
{
    const json_t *stop = json_member(r->input, "stop");
    if (!stop)
        return 0;
    if (!json_is_array(stop))
        return add_stop(r, stop, e);
    if (json_array_size(stop) > MAX_STOPS)
        return api_error_set(e, 400, "stop", NULL, "at most %d \"stop\" strings are accepted", MAX_STOPS);
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (add_stop(r, json_array_get(stop, i), e))
            return -1;
    return 0;
}

/* Returns a token id, or -1 if v is none. Whether the vocabulary has it is checked later (prepare.c, constrain.c). */
static int id_of(const json_t *v)
{
    double x = json_number_value(v); /* ids are reals in a document with a number too large for an integer */
    return json_is_number(v) && x >= 0 && x <= INT32_MAX && x == floor(x) ? (int)x : -1;
}

static int parse_stop_ids(api_request *r, api_error *e)
{
    const json_t *list = json_member(r->input, "stop_token_ids");
    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > MAX_STOPS)
        return api_error_set(e, 400, "stop_token_ids", NULL,
                             "\"stop_token_ids\" must be a list of at most %d token ids", MAX_STOPS);
    for (size_t i = 0; i < json_array_size(list); i++)
        if ((r->stop_id[r->sampling.n_stop_ids++] = id_of(json_array_get(list, i))) < 0)
            return api_error_set(e, 400, "stop_token_ids", NULL, "\"stop_token_ids\" must be a list of token ids");
    return 0;
}

/* Lists of tokens. */

static int parse_bias(api_request *r, api_error *e)
{
    const json_t *list = json_member(r->input, "logit_bias");
    const char *key;
    json_t *value;
    if (list && (!json_is_object(list) || json_object_size(list) > MAX_BIASED))
        return api_error_set(e, 400, "logit_bias", NULL,
                             "\"logit_bias\" must be an object of at most %d token ids with numbers", MAX_BIASED);
    r->sampling.biased = XNEW_ARRAY(int32_t, json_object_size(list) + 1);
    r->sampling.bias = XNEW_ARRAY(float, json_object_size(list) + 1);
    json_object_foreach((json_t *)list, key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double bias = json_number_value(value);
        if (!*key || *end || id < 0 || id > INT32_MAX || !json_is_number(value) || !(bias >= -100 && bias <= 100))
            return api_error_set(e, 400, "logit_bias", NULL,
                                 "\"logit_bias\": \"%.40s\" must be a token id, and its bias between -100 and 100",
                                 key);
        r->sampling.biased[r->sampling.n_biased++] = (int32_t)id;
        r->sampling.bias[r->sampling.n_bias++] = (float)bias;
    }
    return 0;
}

static int parse_allowed(api_request *r, api_error *e)
{
    const json_t *list = json_member(r->input, "allowed_token_ids");
    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return api_error_set(e, 400, "allowed_token_ids", NULL,
                             "\"allowed_token_ids\" must be a list of at least one token id");
    r->sampling.allowed_ids = XNEW_ARRAY(int32_t, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if ((r->sampling.allowed_ids[r->sampling.n_allowed_ids++] = id_of(json_array_get(list, i))) < 0)
            return api_error_set(e, 400, "allowed_token_ids", NULL,
                                 "\"allowed_token_ids\" must be a list of token ids");
    return 0;
}

static int parse_bad_words(api_request *r, api_error *e)
{
    r->bad_words = json_member(r->input, "bad_words");
    bool ok = !r->bad_words || (json_is_array(r->bad_words) && json_array_size(r->bad_words) <= MAX_BAD_WORDS);
    for (size_t i = 0; ok && i < json_array_size(r->bad_words); i++) {
        const json_t *word = json_array_get(r->bad_words, i);
        ok = json_is_string(word) && json_string_length(word) > 0 && json_string_length(word) <= MAX_STOP_LEN;
    }
    if (ok)
        return 0;
    return api_error_set(e, 400, "bad_words", NULL,
                         "\"bad_words\" must be a list of at most %d strings of 1 to %d bytes", MAX_BAD_WORDS,
                         MAX_STOP_LEN);
}

static int parse_truncation(api_request *r, api_error *e)
{
    long n = 0;
    if (json_get_int(r->input, "truncate_prompt_tokens", -1, INT32_MAX, &n, &e->what))
        return api_error_bad(e, "truncate_prompt_tokens");
    if (n == 0 && json_member(r->input, "truncate_prompt_tokens"))
        return api_error_set(e, 400, "truncate_prompt_tokens", NULL,
                             "\"truncate_prompt_tokens\" must be -1, or 1 or more");
    r->truncate = (int)n;
    return 0;
}

static int parse_token_lists(api_request *r, api_error *e)
{
    return parse_bias(r, e) || parse_allowed(r, e) || parse_bad_words(r, e) || parse_truncation(r, e) ? -1 : 0;
}

/* Grammars: by OpenAI's "response_format", vLLM's names, llama.cpp's. At most one. */

static int set_grammar(api_request *r, const char *field, grammar_kind kind, char *text, size_t n, api_error *e)
{
    if (r->grammar) {
        free(text);
        return api_error_set(e, 400, field, NULL, "\"%s\" and \"%s\" cannot both say what the output must be",
                             r->grammar_field, field);
    }
    r->grammar = text;
    r->grammar_field = field;
    r->sampling.grammar_kind = kind;
    r->sampling.grammar = (ProtobufCBinaryData){n, (uint8_t *)text};
    if (r->sampling.ignore_eos)
        return api_error_set(e, 400, "ignore_eos", NULL,
                             "\"ignore_eos\" does not go with \"%s\": the output ends where its grammar does", field);
    return 0;
}

static int set_grammar_json(api_request *r, const char *field, grammar_kind kind, const json_t *v, api_error *e)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return api_error_set(e, 400, field, NULL, "\"%s\" cannot be written as JSON", field);
    return set_grammar(r, field, kind, text, strlen(text), e);
}

static int set_grammar_text(api_request *r, const char *field, grammar_kind kind, const json_t *v, api_error *e)
{
    if (!json_is_string(v))
        return api_error_set(e, 400, field, NULL, "\"%s\" must be a string", field);
    size_t n = json_string_length(v);
    char *text = xmalloc(n + 1);
    memcpy(text, json_string_value(v), n + 1);
    return set_grammar(r, field, kind, text, n, e);
}

/* Sets a schema that is given as JSON, or as its text. */
static int set_schema(api_request *r, const char *field, const json_t *v, api_error *e)
{
    if (json_is_string(v))
        return set_grammar_text(r, field, GRAMMAR_SCHEMA, v, e);
    return set_grammar_json(r, field, GRAMMAR_SCHEMA, v, e);
}

static int parse_response_format(api_request *r, api_error *e)
{
    const char *field = "response_format";
    const json_t *format = json_member(r->input, field), *type = json_member(format, "type"),
                 *schema = json_member(format, "schema");
    const char *name = json_string_value(type);
    if (!format || (name && strcmp(name, "text") == 0))
        return 0;
    if (name && strcmp(name, "json_object") == 0)
        return schema ? set_schema(r, field, schema, e) : set_grammar(r, field, GRAMMAR_JSON, xstrdup(""), 0, e);
    if (!name || strcmp(name, "json_schema") != 0)
        return api_error_set(e, 400, field, "unsupported_parameter",
                             "\"response_format\" must have the \"type\" text, json_object or json_schema");
    const json_t *holder = json_member(format, "json_schema");
    schema = json_is_object(holder) ? json_object_get(holder, "schema") : schema;
    if (!schema)
        return api_error_set(e, 400, field, NULL, "\"response_format\": \"json_schema\" needs a \"schema\"");
    return set_schema(r, field, schema, e);
}

/* Parses one of vLLM's constraints: a member of "structured_outputs", or a guided_... of the body itself. */
static int parse_guided(api_request *r, const json_t *in, const char *key, const char *field, api_error *e)
{
    const json_t *v = json_member(in, key);
    const char *what = strncmp(key, "guided_", 7) == 0 ? key + 7 : key;
    if (!v)
        return 0;
    if (strcmp(what, "json") == 0)
        return set_schema(r, field, v, e);
    if (strcmp(what, "regex") == 0)
        return set_grammar_text(r, field, GRAMMAR_REGEX, v, e);
    if (strcmp(what, "choice") == 0)
        return set_grammar_json(r, field, GRAMMAR_CHOICE, v, e);
    if (strcmp(what, "grammar") == 0)
        return set_grammar_text(r, field, GRAMMAR_GBNF, v, e);
    if (!json_is_boolean(v))
        return api_error_set(e, 400, field, NULL, "\"%s\" must be true or false", key);
    return json_is_true(v) ? set_grammar(r, field, GRAMMAR_JSON, xstrdup(""), 0, e) : 0;
}

static int parse_structured_outputs(api_request *r, api_error *e)
{
    const json_t *in = json_member(r->input, "structured_outputs");
    static const char *const known[] = {"json", "regex", "choice", "grammar", "json_object"};
    if (!in)
        return 0;
    if (!json_is_object(in))
        return api_error_set(e, 400, "structured_outputs", NULL, "\"structured_outputs\" must be an object");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)in, key, v)
    {
        bool ok = json_is_null(v) || json_is_false(v);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            ok = ok || strcmp(key, known[i]) == 0;
        if (!ok)
            return api_error_set(e, 400, "structured_outputs", "unsupported_parameter",
                                 "\"structured_outputs\": \"%.40s\" is not served here", key);
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (parse_guided(r, in, known[i], "structured_outputs", e))
            return -1;
    return r->grammar
               ? 0
               : api_error_set(e, 400, "structured_outputs", NULL, "\"structured_outputs\" says nothing of the output");
}

static int parse_grammar(api_request *r, api_error *e)
{
    static const char *const guided[] = {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                                         "guided_json_object"};
    const json_t *gbnf = json_member(r->input, "grammar"), *schema = json_member(r->input, "json_schema");
    if (parse_response_format(r, e) || parse_structured_outputs(r, e))
        return -1;
    for (size_t i = 0; i < sizeof guided / sizeof guided[0]; i++)
        if (parse_guided(r, r->input, guided[i], guided[i], e))
            return -1;
    if (json_is_string(gbnf) && json_string_length(gbnf) == 0)
        gbnf = NULL;
    if (gbnf && set_grammar_text(r, "grammar", GRAMMAR_GBNF, gbnf, e))
        return -1;
    return schema ? set_schema(r, "json_schema", schema, e) : 0;
}

/* Fields that are known and not served: refused unless they ask for nothing. */

/* Which value asks for nothing: something empty, false, true, 0, 1, or any number up to 0; and null in every case. */
typedef enum { IDLE_EMPTY, IDLE_FALSE, IDLE_TRUE, IDLE_ZERO, IDLE_ONE, IDLE_BELOW } idle;

static bool is_idle(const json_t *v, idle kind)
{
    switch (kind) {
    case IDLE_EMPTY:
        return (json_is_string(v) && json_string_length(v) == 0) || (json_is_array(v) && json_array_size(v) == 0) ||
               (json_is_object(v) && json_object_size(v) == 0);
    case IDLE_FALSE: return json_is_false(v);
    case IDLE_TRUE: return json_is_true(v);
    case IDLE_ZERO: return json_is_number(v) && json_number_value(v) == 0;
    case IDLE_ONE: return json_is_number(v) && json_number_value(v) == 1;
    case IDLE_BELOW: return json_is_number(v) && json_number_value(v) <= 0;
    }
    return false;
}

static int refuse_unserved(const api_request *r, api_error *e)
{
    static const struct {
        const char *name;
        idle kind;
    } fields[] = {
        {"suffix", IDLE_EMPTY},
        {"functions", IDLE_EMPTY},
        {"audio", IDLE_EMPTY},
        {"chat_template", IDLE_EMPTY},
        {"lora", IDLE_EMPTY},
        {"logits_processors", IDLE_EMPTY},
        {"prompt_embeds", IDLE_EMPTY},
        {"guided_whitespace_pattern", IDLE_EMPTY},
        {"structural_tag", IDLE_EMPTY},
        {"web_search_options", IDLE_EMPTY},
        {"dry_sequence_breakers", IDLE_EMPTY},
        {"use_beam_search", IDLE_FALSE},
        {"return_tokens_as_token_ids", IDLE_FALSE},
        {"return_token_ids", IDLE_FALSE},
        {"skip_special_tokens", IDLE_TRUE},
        {"mirostat", IDLE_ZERO},
        {"xtc_probability", IDLE_ZERO},
        {"dry_multiplier", IDLE_ZERO},
        {"dynatemp_range", IDLE_ZERO},
        {"top_a", IDLE_ZERO},
        {"tfs_z", IDLE_ONE},
        {"typical_p", IDLE_ONE},
        {"length_penalty", IDLE_ONE},
        {"repeat_penalty", IDLE_ONE},
        {"n_predict", IDLE_BELOW},
        {"top_n_sigma", IDLE_BELOW},
        {"t_max_predict_ms", IDLE_BELOW},
        {"n_indent", IDLE_BELOW},
        {"samplers", IDLE_EMPTY},
        {"num_beams", IDLE_ONE},
        {"no_repeat_ngram_size", IDLE_ZERO},
        {"epsilon_cutoff", IDLE_ZERO},
        {"eta_cutoff", IDLE_ZERO},
        {"smoothing_factor", IDLE_ZERO},
        {"penalty_alpha", IDLE_ZERO},
        {"regex", IDLE_EMPTY},
        {"ebnf", IDLE_EMPTY},
        {"stop_regex", IDLE_EMPTY},
        {"custom_logit_processor", IDLE_EMPTY},
        {"lora_path", IDLE_EMPTY},
        {"adapter_id", IDLE_EMPTY},
        {"watermark", IDLE_FALSE},
        {"repetition_detection", IDLE_EMPTY},
        {"thinking_token_budget", IDLE_BELOW},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *v = json_member(r->input, fields[i].name);
        if (v && !is_idle(v, fields[i].kind))
            return api_error_set(e, 400, fields[i].name, "unsupported_parameter", "\"%s\" is not served here",
                                 fields[i].name);
    }
    const json_t *tools = json_member(r->input, "tools");
    if (tools && !r->chat && !is_idle(tools, IDLE_EMPTY))
        return api_error_set(e, 400, "tools", "unsupported_parameter",
                             "\"tools\" are for chats (/v1/chat/completions)");
    return 0;
}

/* Outputs that are chosen from more cannot be streamed: which are the likeliest is known at the end. */
static int parse_best_of(api_request *r, api_error *e)
{
    long best_of = r->n;
    if (json_get_int(r->input, "best_of", 1, MAX_CHOICES, &best_of, &e->what))
        return api_error_bad(e, "best_of");
    if (best_of < r->n)
        return api_error_set(e, 400, "best_of", NULL,
                             "\"best_of\" is %ld, less than the %d choices that are wanted (n)", best_of, r->n);
    if (best_of > r->n && r->stream)
        return api_error_set(e, 400, "best_of", NULL,
                             "\"best_of\" more than \"n\" is not for streams (\"stream\": true)");
    r->best_of = (int)best_of;
    return 0;
}

static int parse_model(api_request *r, api_error *e)
{
    const json_t *model = json_member(r->input, "model");
    if (!json_is_string(model))
        return api_error_set(
            e, 400, "model", NULL,
            "\"model\" is needed: the name of an adapter or of the base model (GET /v1/models lists them)");
    if (strlen(json_string_value(model)) != json_string_length(model))
        return api_error_set(e, 404, "model", "model_not_found", "there is no such model");
    r->model = xstrdup(json_string_value(model));
    return 0;
}

/* Prompts: a string, token ids, or a list of either. */

static int set_ids(api_prompt *p, const json_t *list, api_error *e)
{
    size_t n = json_array_size(list);
    p->id = XNEW_ARRAY(int, n ? n : 1);
    for (; p->n_ids < n; p->n_ids++)
        if ((p->id[p->n_ids] = id_of(json_array_get(list, p->n_ids))) < 0)
            return api_error_set(e, 400, "prompt", NULL, "element %zu of the prompt is no token id", p->n_ids);
    return 0;
}

static int set_prompt(api_prompt *p, const json_t *v, api_error *e)
{
    if (json_is_array(v))
        return set_ids(p, v, e);
    if (!json_is_string(v))
        return api_error_set(e, 400, "prompt", NULL,
                             "\"prompt\" must be a string, a list of strings, token ids, or a list of token id lists");
    p->text = json_string_value(v);
    p->n = json_string_length(v);
    return 0;
}

static int parse_prompts(api_request *r, api_error *e)
{
    const json_t *v = json_member(r->input, "prompt"), *first = json_array_get(v, 0);
    if (!v)
        return api_error_set(e, 400, "prompt", NULL, "\"prompt\" is needed");
    bool many = json_is_string(first) || json_is_array(first);
    size_t n = many ? json_array_size(v) : 1;
    if (n * (size_t)r->best_of > MAX_CHOICES)
        return api_error_set(e, 400, "prompt", NULL,
                             "%zu prompts with %d choices each are more than the %d choices of a call", n, r->best_of,
                             MAX_CHOICES);
    r->prompt = XNEW_ARRAY(api_prompt, n);
    while (r->n_prompts < (int)n) {
        int i = r->n_prompts++;
        if (set_prompt(&r->prompt[i], many ? json_array_get(v, (size_t)i) : v, e))
            return -1;
    }
    return 0;
}

/* Messages: the chat template judges what they say. Only this is checked: there is a role, and content is a text, a
 * list of text parts, or nothing. */

static int check_parts(const json_t *content, size_t number, api_error *e)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *type = json_member(part, "type");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 ||
            !json_is_string(json_member(part, "text")))
            return api_error_set(e, 400, "messages", NULL,
                                 "message %zu: only parts {\"type\": \"text\", \"text\": ...} are "
                                 "served in a \"content\"",
                                 number);
    }
    return 0;
}

static int check_calls(const json_t *calls, size_t number, api_error *e)
{
    bool ok = !calls || json_is_array(calls);
    for (size_t i = 0; ok && i < json_array_size(calls); i++)
        ok = json_is_object(json_member(json_array_get(calls, i), "function"));
    if (ok)
        return 0;
    return api_error_set(
        e, 400, "messages", NULL,
        "message %zu: \"tool_calls\" must be a list of {\"id\": ..., \"type\": \"function\", \"function\": "
        "{\"name\": ..., \"arguments\": ...}}",
        number);
}

static int check_message(const json_t *v, size_t number, api_error *e)
{
    const json_t *role = json_member(v, "role"), *content = json_member(v, "content");
    if (!json_is_string(role) || json_string_length(role) == 0)
        return api_error_set(e, 400, "messages", NULL, "message %zu needs a \"role\": system, user, assistant, ...",
                             number);
    if (content && !json_is_string(content) && !json_is_array(content))
        return api_error_set(e, 400, "messages", NULL,
                             "the \"content\" of message %zu must be a string or a list of parts", number);
    return check_parts(content, number, e) || check_calls(json_member(v, "tool_calls"), number, e) ? -1 : 0;
}

/* Parses what else the chat template is told, by vLLM's names. */
static int parse_template_arguments(api_request *r, api_error *e)
{
    chat_input *c = &r->conversation;
    const char *effort = NULL;
    bool continues = false;
    if (json_get_string(r->input, "reasoning_effort", &effort, &e->what))
        return api_error_bad(e, "reasoning_effort");
    if (json_get_bool(r->input, "continue_final_message", &continues, &e->what))
        return api_error_bad(e, "continue_final_message");
    c->continues = continues ? "content" : NULL;
    c->add_generation_prompt = !continues;
    if (json_get_bool(r->input, "add_generation_prompt", &c->add_generation_prompt, &e->what))
        return api_error_bad(e, "add_generation_prompt");
    c->documents = json_member(r->input, "documents");
    json_t *more = json_member(r->input, "chat_template_kwargs");
    if (more && !json_is_object(more))
        return api_error_set(e, 400, "chat_template_kwargs", NULL, "\"chat_template_kwargs\" must be an object");
    if (effort && !more)
        json_object_set_new(r->input, "chat_template_kwargs", more = json_object());
    if (effort && !json_object_get(more, "reasoning_effort"))
        json_object_set_new(more, "reasoning_effort", json_string(effort));
    c->more = more;
    return 0;
}

/* Makes a grammar of a call that is demanded. */
static int demand_call(api_request *r, const char *name, api_error *e)
{
    bool many = true;
    if (json_get_bool(r->input, "parallel_tool_calls", &many, &e->what))
        return api_error_bad(e, "parallel_tool_calls");
    r->parts.one_call = !many;
    if (r->tool_choice == CHOICE_NONE || r->tool_choice == CHOICE_AUTO)
        return 0;
    r->parts.tools = name ? TOOLS_NAMED : TOOLS_REQUIRED;
    r->parts.tool_name = r->tool_name = name ? xstrdup(name) : NULL;
    json_t *schema = tools_schema(json_member(r->input, "tools"), name, many, e);
    if (!schema)
        return -1;
    int rc = set_grammar_json(r, "tools", GRAMMAR_SCHEMA, schema, e);
    json_decref(schema);
    return rc;
}

static int parse_tools(api_request *r, api_error *e)
{
    const char *name;
    if (tools_parse(r->input, &r->tool_choice, &name, e) || demand_call(r, name, e))
        return -1;
    r->conversation.tools = r->tool_choice == CHOICE_NONE ? NULL : json_member(r->input, "tools");
    return 0;
}

static int parse_conversation(api_request *r, api_error *e)
{
    const json_t *list = json_member(r->input, "messages");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return api_error_set(e, 400, "messages", NULL, "\"messages\" must be a list of at least one message");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (check_message(json_array_get(list, i), i, e))
            return -1;
    r->conversation.messages = list;
    return parse_tools(r, e) || parse_template_arguments(r, e) ? -1 : 0;
}

static int parse_fields(api_request *r, api_error *e)
{
    if (parse_model(r, e) || parse_numbers(r, e) || parse_seed(r, e) || parse_flags(r, e) || parse_logprobs(r, e) ||
        parse_stops(r, e) || parse_stop_ids(r, e) || parse_token_lists(r, e) || parse_grammar(r, e) ||
        refuse_unserved(r, e) || parse_best_of(r, e))
        return -1;
    return r->chat ? parse_conversation(r, e) : parse_prompts(r, e);
}

int api_request_parse(api_request *r, bool chat, const char *body, size_t n, api_error *e)
{
    *r = (api_request){0};
    json_t *input = json_read_text(body, n, &e->what);
    return input ? api_request_take(r, chat, input, NULL, e) : api_error_bad(e, NULL);
}

static void set_defaults(api_request *r, const sampling_defaults *d)
{
    r->sampling.temperature = d->temperature;
    r->sampling.top_p = d->top_p;
    r->sampling.top_k = d->top_k;
    r->sampling.min_p = d->min_p;
    r->sampling.repetition_penalty = d->repetition_penalty;
    r->most_tokens = d->max_tokens;
    if (r->max_tokens < 0 && d->max_tokens < INT32_MAX)
        r->max_tokens = d->max_tokens;
}

int api_request_take(api_request *r, bool chat, json_t *input, const sampling_defaults *d, api_error *e)
{
    *r = (api_request){.chat = chat,
                       .n = 1,
                       .best_of = 1,
                       .max_tokens = chat ? -1 : 16,
                       .add_special = !chat,
                       .sampling = SAMPLING__INIT};
    const sampling_defaults usual = sampling_defaults_openai();
    set_defaults(r, d ? d : &usual);
    r->sampling.stop_ids = r->stop_id;
    r->input = input;
    int rc;
    if (!json_is_object(input))
        rc = api_error_set(e, 400, NULL, NULL, "the body must be a JSON object");
    else
        rc = parse_fields(r, e);
    if (rc)
        api_request_deinit(r);
    return rc;
}

void api_request_drop_input(api_request *r)
{
    for (int i = 0; i < r->n_prompts; i++)
        free(r->prompt[i].id);
    free(r->prompt);
    json_decref(r->input);
    r->prompt = NULL;
    r->conversation = (chat_input){0};
    r->bad_words = NULL;
    r->input = NULL;
    r->n_prompts = 0;
}

void api_request_deinit(api_request *r)
{
    api_request_drop_input(r);
    for (int i = 0; i < r->n_stops; i++)
        free(r->stop[i].text);
    free(r->model);
    free(r->grammar);
    free(r->cache_salt);
    free(r->tool_name);
    free(r->repeated);
    free(r->sampling.biased);
    free(r->sampling.bias);
    free(r->sampling.allowed_ids);
    free(r->sampling.bad_ids);
    free(r->sampling.bad_lengths);
    *r = (api_request){0};
}
