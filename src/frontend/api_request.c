/* api_request.c - see api_request.h */
#include "frontend/api_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Numbers, from a table. */

typedef enum { NUMBER_FLOAT, NUMBER_INT } number_kind;

static const struct number {
    const char *name;
    number_kind kind;
    size_t at;                  /* in api_request */
    double min, max;
} numbers[] = {
    {"temperature", NUMBER_FLOAT, offsetof(api_request, how.temperature), 0, 100},
    {"top_p", NUMBER_FLOAT, offsetof(api_request, how.top_p), 1e-6, 1},
    {"min_p", NUMBER_FLOAT, offsetof(api_request, how.min_p), 0, 1},
    {"presence_penalty", NUMBER_FLOAT, offsetof(api_request, how.presence_penalty), -2, 2},
    {"frequency_penalty", NUMBER_FLOAT, offsetof(api_request, how.frequency_penalty), -2, 2},
    {"repetition_penalty", NUMBER_FLOAT, offsetof(api_request, how.repetition_penalty), 1e-6, 100},
    {"top_k", NUMBER_INT, offsetof(api_request, how.top_k), -1, INT32_MAX},
    {"min_tokens", NUMBER_INT, offsetof(api_request, how.min_tokens), 0, INT32_MAX},
    {"n", NUMBER_INT, offsetof(api_request, n), 1, MAX_CHOICES},
    {"max_tokens", NUMBER_INT, offsetof(api_request, max_tokens), 1, INT32_MAX},
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
        return api_error_set(e, 400, f->name, NULL, "\"%s\" is %g; it must be between %g and %g", f->name, x, f->min, f->max);
    *(float *)out = (float)x;
    return 0;
}

static int parse_numbers(api_request *r, api_error *e)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (parse_number(r, &numbers[i], e))
            return -1;
    long most = r->max_tokens;
    if (r->chat && json_get_int(r->input, "max_completion_tokens", 1, INT32_MAX, &most, &e->what))
        return api_error_bad(e, "max_completion_tokens");
    r->max_tokens = (int)most;
    if (r->how.top_k < 0)
        r->how.top_k = 0;
    if (r->max_tokens > 0 && r->how.min_tokens > r->max_tokens)
        return api_error_set(e, 400, "min_tokens", NULL,
                             "\"min_tokens\" is %d, more than the %d that may be made (max_tokens)",
                             r->how.min_tokens, r->max_tokens);
    return 0;
}

/* Any integer of 64 bits is a seed. All are reals in a document with a number too large for an integer. */
static int parse_seed(api_request *r, api_error *e)
{
    const json_t *seed = json_member(r->input, "seed");
    double x = json_number_value(seed);
    bool whole = json_is_real(seed) && x == floor(x) && fabs(x) < 0x1p63;
    if (seed && !json_is_integer(seed) && !whole)
        return api_error_set(e, 400, "seed", NULL, "\"seed\" must be an integer of at most 64 bits");
    r->has_seed = seed != NULL;
    r->how.seed = (uint64_t)(whole ? (int64_t)x : (int64_t)json_integer_value(seed));
    return 0;
}

static int parse_flags(api_request *r, api_error *e)
{
    bool ignore_eos = false;
    if (json_get_bool(r->input, "stream", &r->stream, &e->what))
        return api_error_bad(e, "stream");
    if (json_get_bool(r->input, "ignore_eos", &ignore_eos, &e->what))
        return api_error_bad(e, "ignore_eos");
    if (!r->chat && json_get_bool(r->input, "echo", &r->echo, &e->what))
        return api_error_bad(e, "echo");
    r->how.ignore_eos = ignore_eos;
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

/* n_logprobs is one more than how many are wanted; 0 is none. */
static int parse_logprobs(api_request *r, api_error *e)
{
    long n = -1;
    bool wanted = false;
    if (!r->chat) {
        if (json_get_int(r->input, "logprobs", 0, MAX_TOP, &n, &e->what))
            return api_error_bad(e, "logprobs");
        if (r->echo && n >= 0)
            return api_error_set(e, 400, "echo", NULL, "\"echo\" together with \"logprobs\" is not served");
    } else {
        if (json_get_bool(r->input, "logprobs", &wanted, &e->what))
            return api_error_bad(e, "logprobs");
        if (json_get_int(r->input, "top_logprobs", 0, MAX_TOP, &n, &e->what))
            return api_error_bad(e, "top_logprobs");
        if (n >= 0 && !wanted)
            return api_error_set(e, 400, "top_logprobs", NULL, "\"top_logprobs\" needs \"logprobs\": true");
        n = wanted && n < 0 ? 0 : n;
    }
    r->how.n_logprobs = (int)n + 1;
    return 0;
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

/* A token id as a number, or -1. Whether the model has it is for the caller to say. */
static int id_of(const json_t *v)
{
    double x = json_number_value(v);        /* ids are reals in a document with a number too large for an integer */
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
        if ((r->stop_id[r->how.n_stop_ids++] = id_of(json_array_get(list, i))) < 0)
            return api_error_set(e, 400, "stop_token_ids", NULL, "\"stop_token_ids\" must be a list of token ids");
    return 0;
}

/* Known, not served: refused unless it asks for nothing. */
static int refuse_unserved(const api_request *r, api_error *e)
{
    static const char *const names[] = {"suffix", "logit_bias", "tools", "functions", "audio", "chat_template"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *v = json_member(r->input, names[i]);
        bool empty = !v || (json_is_string(v) && json_string_length(v) == 0) || (json_is_array(v) && json_array_size(v) == 0) ||
                     (json_is_object(v) && json_object_size(v) == 0);
        if (!empty)
            return api_error_set(e, 400, names[i], "unsupported_parameter", "\"%s\" is not served here", names[i]);
    }
    const json_t *format = json_member(json_member(r->input, "response_format"), "type");
    if (format && !(json_is_string(format) && strcmp(json_string_value(format), "text") == 0))
        return api_error_set(e, 400, "response_format", "unsupported_parameter",
                             "\"response_format\" other than text is not served here");
    long best_of = r->n;
    if (json_get_int(r->input, "best_of", 1, MAX_CHOICES, &best_of, &e->what))
        return api_error_bad(e, "best_of");
    if (best_of != r->n)
        return api_error_set(e, 400, "best_of", "unsupported_parameter",
                             "\"best_of\" other than \"n\" is not served here");
    return 0;
}

static int parse_model(api_request *r, api_error *e)
{
    const json_t *model = json_member(r->input, "model");
    if (!json_is_string(model))
        return api_error_set(e, 400, "model", NULL,
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
    if (n * (size_t)r->n > MAX_CHOICES)
        return api_error_set(e, 400, "prompt", NULL,
                             "%zu prompts with %d choices each are more than the %d choices of a call", n, r->n, MAX_CHOICES);
    r->prompt = XNEW_ARRAY(api_prompt, n);
    while (r->n_prompts < (int)n) {
        int i = r->n_prompts++;
        if (set_prompt(&r->prompt[i], many ? json_array_get(v, (size_t)i) : v, e))
            return -1;
    }
    return 0;
}

/* Messages: what they say is for the chat template to judge, but for this: there is a role, and content is a text, a list
 * of text parts, or nothing. */

static int check_parts(const json_t *content, size_t number, api_error *e)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *type = json_member(part, "type");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 || !json_is_string(json_member(part, "text")))
            return api_error_set(e, 400, "messages", NULL, "message %zu: only parts {\"type\": \"text\", \"text\": ...} are "
                                 "served in a \"content\"", number);
    }
    return 0;
}

static int check_message(const json_t *v, size_t number, api_error *e)
{
    const json_t *role = json_member(v, "role"), *content = json_member(v, "content");
    if (!json_is_string(role) || json_string_length(role) == 0)
        return api_error_set(e, 400, "messages", NULL, "message %zu needs a \"role\": system, user, assistant, ...", number);
    if (content && !json_is_string(content) && !json_is_array(content))
        return api_error_set(e, 400, "messages", NULL,
                             "the \"content\" of message %zu must be a string or a list of parts", number);
    return check_parts(content, number, e);
}

/* What else the chat template is told, with vLLM's names. */
static int parse_template_arguments(api_request *r, api_error *e)
{
    chat_input *c = &r->conversation;
    bool continues = false;
    if (json_get_bool(r->input, "continue_final_message", &continues, &e->what))
        return api_error_bad(e, "continue_final_message");
    c->continues = continues ? "content" : NULL;
    c->add_generation_prompt = !continues;
    if (json_get_bool(r->input, "add_generation_prompt", &c->add_generation_prompt, &e->what))
        return api_error_bad(e, "add_generation_prompt");
    c->documents = json_member(r->input, "documents");
    c->more = json_member(r->input, "chat_template_kwargs");
    if (c->more && !json_is_object(c->more))
        return api_error_set(e, 400, "chat_template_kwargs", NULL, "\"chat_template_kwargs\" must be an object");
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
    return parse_template_arguments(r, e);
}

static int parse_fields(api_request *r, api_error *e)
{
    if (parse_model(r, e) || parse_numbers(r, e) || parse_seed(r, e) || parse_flags(r, e) || parse_logprobs(r, e) ||
        parse_stops(r, e) || parse_stop_ids(r, e) || refuse_unserved(r, e))
        return -1;
    return r->chat ? parse_conversation(r, e) : parse_prompts(r, e);
}

int api_request_parse(api_request *r, bool chat, const char *body, size_t n, api_error *e)
{
    *r = (api_request){0};
    json_t *input = json_read_text(body, n, &e->what);
    return input ? api_request_take(r, chat, input, e) : api_error_bad(e, NULL);
}

int api_request_take(api_request *r, bool chat, json_t *input, api_error *e)
{
    *r = (api_request){.chat = chat, .n = 1, .max_tokens = chat ? 0 : 16, .how = SAMPLING__INIT};
    r->how.temperature = r->how.top_p = r->how.repetition_penalty = 1;
    r->how.stop_ids = r->stop_id;
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
    r->input = NULL;
    r->n_prompts = 0;
}

void api_request_deinit(api_request *r)
{
    api_request_drop_input(r);
    for (int i = 0; i < r->n_stops; i++)
        free(r->stop[i].text);
    free(r->model);
    *r = (api_request){0};
}
