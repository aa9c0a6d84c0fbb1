/* openapi.c - see openapi.h */
#include "frontend/openapi.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

/* Fields of a request: "name:type"; "!": needed. Types: s string, n number, i integer, b boolean, o object, a list, -
 * any. */
#define SAMPLING                                                                                                  \
    "cache_salt:s", "priority:i", "temperature:n", "top_p:n", "top_k:i", "min_p:n", "stream:b", "seed:i",         \
        "min_tokens:i", "ignore_eos:b", "presence_penalty:n", "frequency_penalty:n", "repetition_penalty:n",      \
        "stop_token_ids:a", "logit_bias:o", "bad_words:a", "allowed_token_ids:a", "include_stop_str_in_output:b", \
        "truncate_prompt_tokens:i", "structured_outputs:o", "guided_json:-", "guided_regex:s", "guided_choice:a", \
        "guided_grammar:s", "guided_json_object:b", "grammar:s", "json_schema:-"
#define TEMPLATE \
    "chat_template_kwargs:o", "reasoning_effort:s", "documents:a", "add_generation_prompt:b", "continue_final_message:b"

static const char *const completion[] = {"model:s!",
                                         "prompt:-!",
                                         "max_tokens:i",
                                         "n:i",
                                         "best_of:i",
                                         "stop:-",
                                         "echo:b",
                                         "logprobs:i",
                                         "prompt_logprobs:i",
                                         "add_special_tokens:b",
                                         "stream_options:o",
                                         "response_format:o",
                                         SAMPLING,
                                         NULL};
static const char *const chat[] = {"model:s!",
                                   "messages:a!",
                                   "max_tokens:i",
                                   "max_completion_tokens:i",
                                   "n:i",
                                   "best_of:i",
                                   "stop:-",
                                   "logprobs:b",
                                   "top_logprobs:i",
                                   "prompt_logprobs:i",
                                   "add_special_tokens:b",
                                   "stream_options:o",
                                   "response_format:o",
                                   "tools:a",
                                   "tool_choice:-",
                                   "parallel_tool_calls:b",
                                   TEMPLATE,
                                   SAMPLING,
                                   NULL};
static const char *const response[] = {"model:s!",
                                       "input:-!",
                                       "instructions:s",
                                       "max_output_tokens:i",
                                       "tools:a",
                                       "tool_choice:-",
                                       "parallel_tool_calls:b",
                                       "text:o",
                                       "reasoning:o",
                                       "include:a",
                                       "metadata:o",
                                       "stop:-",
                                       TEMPLATE,
                                       SAMPLING,
                                       NULL};
static const char *const message[] = {
    "model:s!",   "messages:a!",     "max_tokens:i!",   "system:-",   "stop_sequences:a", "tools:a", "tool_choice:o",
    "thinking:o", "output_format:o", "output_config:o", "metadata:o", TEMPLATE,           SAMPLING,  NULL};
static const char *const counted[] = {"model:s!",      "messages:a!", "system:-", "tools:a",
                                      "tool_choice:o", "thinking:o",  TEMPLATE,   NULL};

static const char *const tokenized[] = {
    "model:s", "prompt:s", "messages:a", "tools:a", "add_special_tokens:b", "return_token_strs:b", TEMPLATE, NULL};
static const char *const loaded[] = {"lora_name:s!", "lora_path:s!", "load_inplace:b", NULL};
static const char *const unloaded[] = {"lora_name:s!", NULL};
static const char *const detokenized[] = {"model:s", "tokens:a!", NULL};

static const struct page {
    const char *path, *about, *answer;
    const char *const *fields; /* of the request's body; NULL: it has none */
    bool streams;
    const char *type; /* of the answer; NULL: JSON */
} pages[] = {
    {"/v1/completions", "Complete a text", "A text_completion; with \"stream\" its events", completion, true, NULL},
    {"/v1/chat/completions", "Answer a conversation", "A chat.completion; with \"stream\" chat.completion.chunk events",
     chat, true, NULL},
    {"/v1/responses", "Answer a conversation in the form of OpenAI's Responses; nothing is stored",
     "A response; with \"stream\" its events", response, true, NULL},
    {"/v1/messages", "Answer a conversation in the form of Anthropic's Messages",
     "A message; with \"stream\" its events", message, true, NULL},
    {"/v1/messages/count_tokens", "Count the tokens of a conversation in the form of Anthropic's Messages",
     "How many there are", counted, false, NULL},
    {"/v1/models", "List the base model and its adapters", "The list", NULL, false, NULL},
    {"/v1/models/", "Look at one model", "The model", NULL, false, NULL},
    {"/tokenize", "Make tokens of a text or a conversation", "The tokens", tokenized, false, NULL},
    {"/detokenize", "Make text of tokens", "The text", detokenized, false, NULL},
    {"/version", "Which version this is", "The version", NULL, false, NULL},
    {"/v1/load_lora_adapter", "Load an adapter from a source, as vLLM has it", "It is loaded", loaded, false, NULL},
    {"/v1/unload_lora_adapter", "Unload an adapter", "It is gone", unloaded, false, NULL},
    {"/v1/adapters", "List adapters and their versions", "The list", NULL, false, NULL},
    {"/v1/usage", "What the key's tenant has used", "Tokens by model and hour", NULL, false, NULL},
    {"/health", "Whether the server lives", "It does", NULL, false, NULL},
    {"/ready", "Whether requests would be served", "They would; 503: they would not", NULL, false, NULL},
    {"/metrics", "Figures for Prometheus", "The page", NULL, false, "text/plain"},
    {"/openapi.json", "This description", "The description", NULL, false, NULL},
};

static const struct page *find_page(const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

json_t *openapi_new(const char *version, bool keyed)
{
    json_t *error = json_pack("{s:s, s:{s:{s:s}}}", "type", "object", "properties", "error", "type", "object");
    json_t *api = json_pack("{s:s, s:{s:s, s:s, s:s}, s:{}, s:{s:{s:o}, s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}}}",
                            "openapi", "3.1.0", "info", "title", "punica", "version", version, "description",
                            "One base model and its LoRA adapters; \"model\" in a request names either. Members that "
                            "are not named here are ignored, or "
                            "refused where they would change an answer.",
                            "paths", "components", "schemas", "Error", error, "securitySchemes", "bearer", "type",
                            "http", "scheme", "bearer", "key", "type", "apiKey", "in", "header", "name", "x-api-key");
    if (keyed)
        json_object_set_new(api, "security", json_pack("[{s:[]}, {s:[]}]", "bearer", "key"));
    return api;
}

static json_t *type_of(char letter)
{
    static const char letters[] = "snibo", *const names[] = {"string", "number", "integer", "boolean", "object"};
    const char *at = strchr(letters, letter);
    if (letter == 'a')
        return json_pack("{s:s, s:{}}", "type", "array", "items");
    return at ? json_pack("{s:s}", "type", names[at - letters]) : json_object();
}

static json_t *schema_of(const char *const *fields)
{
    json_t *properties = json_object(), *needed = json_array();
    for (; *fields; fields++) {
        const char *colon = strchr(*fields, ':');
        json_object_setn_new(properties, *fields, (size_t)(colon - *fields), type_of(colon[1]));
        if (colon[2] == '!')
            json_array_append_new(needed, json_stringn(*fields, (size_t)(colon - *fields)));
    }
    return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required", needed);
}

static json_t *operation_of(const struct page *p, const char *path)
{
    json_t *content = json_pack("{s:{s:{}}}", p && p->type ? p->type : "application/json", "schema");
    if (p && p->streams)
        json_object_set_new(content, "text/event-stream", json_pack("{s:{s:s}}", "schema", "type", "string"));
    json_t *op =
        json_pack("{s:s, s:{s:{s:s, s:o}, s:{s:s, s:{s:{s:{s:s}}}}}}", "summary", p ? p->about : path, "responses",
                  "200", "description", p ? p->answer : "The answer", "content", content, "default", "description",
                  "What is wrong", "content", "application/json", "schema", "$ref", "#/components/schemas/Error");
    if (p && p->fields)
        json_object_set_new(op, "requestBody",
                            json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content", "application/json", "schema",
                                      schema_of(p->fields)));
    return op;
}

void openapi_add(json_t *api, const char *path, const char *method)
{
    const char *end = path + strlen(path);
    bool named = end > path && end[-1] == '/';
    buf name = {0};
    json_t *op = operation_of(find_page(path), path);
    buf_printf(&name, "%s%s", path, named ? "{name}" : "");
    if (named)
        json_object_set_new(op, "parameters",
                            json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "name", "in", "path", "required", 1,
                                      "schema", "type", "string"));
    json_object_set_new(json_object_get(api, "paths"), name.data,
                        json_pack("{s:o}", strcmp(method, "GET") == 0 ? "get" : "post", op));
    buf_free(&name);
}
