/* shape_messages.c - Anthropic's Messages (/v1/messages, /v1/messages/count_tokens)
 *
 *   system, messages of blocks                                           ─▶ messages of a chat
 *   tools, tool_choice, stop_sequences, output_format, thinking          ─▶ a chat's
 *
 * One message may become several of a chat, where results of tools are messages of their own. An answer is a list of
 * blocks (reply_items.h): thinking, text, tool_use. A last message of the assistant is continued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontend/api_shape.h"
#include "frontend/json_text.h"
#include "frontend/reply_items.h"
#include "frontend/shape_text.h"

/* Requests. */

static int bad_content(size_t number, const char *what, api_error *e)
{
    return api_error_set(e, 400, "messages", NULL, "messages.%zu.content: %s", number, what);
}

/* Returns a string, or a list of text blocks, as a chat's content. NULL: it is neither. */
static json_t *texts_of(const json_t *v)
{
    if (json_is_string(v))
        return json_incref((json_t *)v);
    json_t *parts = json_array();
    bool ok = json_is_array(v);
    for (size_t i = 0; ok && i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i);
        json_t *text = json_member(block, "text");
        ok = json_says(json_member(block, "type"), "text") && json_is_string(text);
        if (ok)
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    }
    if (ok)
        return parts;
    json_decref(parts);
    return NULL;
}

static int add_system(json_t *messages, const json_t *system, api_error *e)
{
    if (!system)
        return 0;
    json_t *content = texts_of(system);
    if (!content)
        return api_error_set(e, 400, "system", NULL, "system: must be a string, or a list of text blocks");
    add_message(messages, "system", content);
    return 0;
}

static int add_result(json_t *messages, const json_t *block, size_t number, api_error *e)
{
    json_t *id = json_member(block, "tool_use_id"), *given = json_member(block, "content");
    json_t *content = given ? texts_of(given) : json_string("");
    if (!json_is_string(id) || !content) {
        json_decref(content);
        return bad_content(number, "a tool_result needs a \"tool_use_id\", and its \"content\" must be a text", e);
    }
    json_object_set(add_message(messages, "tool", content), "tool_call_id", id);
    return 0;
}

static int add_use(json_t *messages, const json_t *block, size_t number, api_error *e)
{
    json_t *id = json_member(block, "id"), *name = json_member(block, "name"), *input = json_member(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return bad_content(number, "a tool_use needs an \"id\", a \"name\" and an \"input\"", e);
    char *text = json_dumps(input, 0);
    add_tool_call(assistant_turn(messages), id, name, json_string(text ? text : "{}"));
    free(text);
    return 0;
}

/* Adds a text block: to the last message if that has the same role, unless new_message. So an assistant's text joins
 * the reasoning before it. */
static void add_text(json_t *messages, const char *role, json_t *text, bool new_message)
{
    size_t n = json_array_size(messages);
    json_t *last = n ? json_array_get(messages, n - 1) : NULL,
           *content = last ? json_object_get(last, "content") : NULL;
    bool goes_on = !new_message && last && json_says(json_object_get(last, "role"), role);
    if (!goes_on)
        content = json_object_get(add_message(messages, role, json_array()), "content");
    else if (!json_is_array(content))
        json_object_set_new(last, "content", content = json_array());
    json_array_append_new(content, json_pack("{s:s, s:O}", "type", "text", "text", text));
}

static int add_block(json_t *messages, const char *role, const json_t *block, bool first, size_t number, api_error *e)
{
    const json_t *type = json_member(block, "type");
    json_t *text = json_member(block, "text"), *thinking = json_member(block, "thinking");
    if (json_says(type, "text") && json_is_string(text)) {
        add_text(messages, role, text, first);
        return 0;
    }
    if (json_says(type, "tool_result") && strcmp(role, "user") == 0)
        return add_result(messages, block, number, e);
    if (strcmp(role, "assistant") == 0 && first && (json_says(type, "thinking") || json_says(type, "tool_use")))
        add_message(messages, role, json_string(""));
    if (json_says(type, "tool_use") && strcmp(role, "assistant") == 0)
        return add_use(messages, block, number, e);
    if (json_says(type, "thinking") && json_is_string(thinking) && strcmp(role, "assistant") == 0) {
        json_object_set(assistant_turn(messages), "reasoning_content", thinking);
        return 0;
    }
    if (json_says(type, "redacted_thinking"))
        return 0;
    return bad_content(
        number,
        "only blocks of the types text, thinking, tool_use (of the assistant) and tool_result (of the user) are served",
        e);
}

static int add_one(json_t *messages, const json_t *message, size_t number, api_error *e)
{
    const json_t *role = json_member(message, "role"), *content = json_member(message, "content");
    if (!json_says(role, "user") && !json_says(role, "assistant"))
        return api_error_set(e, 400, "messages", NULL,
                             "messages.%zu.role: must be user or assistant; \"system\" is a field of the request",
                             number);
    if (json_is_string(content)) {
        add_message(messages, json_string_value(role), json_incref((json_t *)content));
        return 0;
    }
    if (!json_is_array(content) || json_array_size(content) == 0)
        return bad_content(number, "must be a string, or a list of at least one block", e);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (add_block(messages, json_string_value(role), json_array_get(content, i), i == 0, number, e))
            return -1;
    return 0;
}

static int translate_messages(json_t *body, api_error *e)
{
    const json_t *given = json_member(body, "messages");
    json_t *messages = json_array();
    int rc = add_system(messages, json_member(body, "system"), e);
    if (rc == 0 && (!json_is_array(given) || json_array_size(given) == 0))
        rc = api_error_set(e, 400, "messages", NULL, "messages: must be a list of at least one message");
    for (size_t i = 0; rc == 0 && i < json_array_size(given); i++)
        rc = add_one(messages, json_array_get(given, i), i, e);
    size_t n = json_array_size(messages);
    const json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    if (rc == 0 && json_says(json_object_get(last, "role"), "assistant") && !json_object_get(last, "tool_calls"))
        json_object_set_new(body, "continue_final_message", json_true());
    json_object_set_new(body, "messages", messages);
    json_object_del(body, "system");
    return rc;
}

static int translate_tools(json_t *body, api_error *e)
{
    const json_t *given = json_member(body, "tools");
    if (given && !json_is_array(given))
        return api_error_set(e, 400, "tools", NULL, "tools: must be a list");
    json_t *tools = json_array();
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *tool = json_array_get(given, i), *type = json_member(tool, "type");
        json_t *name = json_member(tool, "name"), *schema = json_member(tool, "input_schema"),
               *about = json_member(tool, "description");
        if ((type && !json_says(type, "custom")) || !json_is_string(name) || !json_is_object(schema)) {
            json_decref(tools);
            return api_error_set(e, 400, "tools", NULL,
                                 "tools.%zu: only tools with a \"name\" and an \"input_schema\" are served", i);
        }
        json_array_append_new(tools, json_pack("{s:s, s:{s:O, s:O*, s:O}}", "type", "function", "function", "name",
                                               name, "description", about, "parameters", schema));
    }
    if (given)
        json_object_set(body, "tools", tools);
    json_decref(tools);
    return 0;
}

static int translate_choice(json_t *body, api_error *e)
{
    const json_t *choice = json_member(body, "tool_choice"), *type = json_member(choice, "type");
    json_t *made = NULL;
    if (!choice)
        return 0;
    if (json_is_true(json_member(choice, "disable_parallel_tool_use")))
        json_object_set_new(body, "parallel_tool_calls", json_false());
    if (json_says(type, "auto") || json_says(type, "none"))
        made = json_incref((json_t *)type);
    else if (json_says(type, "any"))
        made = json_string("required");
    else if (json_says(type, "tool") && json_is_string(json_member(choice, "name")))
        made = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", json_member(choice, "name"));
    else
        return api_error_set(e, 400, "tool_choice", NULL,
                             "tool_choice: its \"type\" must be auto, any, none, or tool with a \"name\"");
    json_object_set_new(body, "tool_choice", made);
    return 0;
}

/* "output_format", or "format" in "output_config": {"type": "json_schema", "schema": ...} */
static int translate_format(json_t *body, api_error *e)
{
    json_t *format = json_member(body, "output_format"), *config = json_member(body, "output_config");
    if (config && !json_is_object(config))
        return api_error_set(e, 400, "output_config", NULL, "output_config: must be an object");
    if (!format)
        format = json_member(config, "format");
    json_t *schema = json_member(format, "schema");
    if (format && (!json_says(json_member(format, "type"), "json_schema") || !schema))
        return api_error_set(e, 400, "output_format", NULL,
                             "output_format: must be {\"type\": \"json_schema\", \"schema\": ...}");
    if (format)
        json_object_set_new(body, "response_format",
                            json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema));
    return 0;
}

/* Passes "thinking" on as "enable_thinking", the name by which templates know it. */
static int translate_thinking(json_t *body, api_error *e)
{
    const json_t *thinking = json_member(body, "thinking"), *type = json_member(thinking, "type");
    if (!thinking)
        return 0;
    if (!json_says(type, "enabled") && !json_says(type, "disabled") && !json_says(type, "adaptive"))
        return api_error_set(e, 400, "thinking", NULL, "thinking: its \"type\" must be enabled, disabled or adaptive");
    json_t *more = json_member(body, "chat_template_kwargs");
    if (!more)
        json_object_set_new(body, "chat_template_kwargs", more = json_object());
    if (json_is_object(more) && !json_object_get(more, "enable_thinking"))
        json_object_set_new(more, "enable_thinking", json_boolean(!json_says(type, "disabled")));
    return 0;
}

static int refuse_unserved(const json_t *body, api_error *e)
{
    static const char *const fields[] = {"mcp_servers", "container", "context_management"};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (json_member(body, fields[i]))
            return api_error_set(e, 400, fields[i], NULL, "%s: is not served here", fields[i]);
    return 0;
}

static int translate_prompt(json_t *body, char **repeated, api_error *e)
{
    static const char *const of_chats[] = {"n",    "logprobs",        "top_logprobs",          "prompt_logprobs",
                                           "echo", "response_format", "max_completion_tokens", NULL};
    (void)repeated;
    json_object_del(body, "stream_options");
    json_rename(body, "stop_sequences", "stop");
    if (refuse_fields_of_chats(body, of_chats, e) || refuse_unserved(body, e) || translate_messages(body, e) ||
        translate_tools(body, e) || translate_choice(body, e) || translate_format(body, e) ||
        translate_thinking(body, e))
        return -1;
    return 0;
}

static int translate(json_t *body, char **repeated, api_error *e)
{
    if (!json_member(body, "max_tokens"))
        return api_error_set(e, 400, "max_tokens", NULL, "max_tokens: is needed");
    return translate_prompt(body, repeated, e);
}

static json_t *error_json(const api_error *e)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},       {413, "request_too_large"},    {429, "rate_limit_error"},
                 {503, "overloaded_error"}};
    const char *type = e->status >= 500 ? "api_error" : "invalid_request_error";
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == e->status)
            type = types[i].type;
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message", json_text(e->what.msg));
}

static void write_error(const api_error *e, buf *out)
{
    json_add_take(out, error_json(e));
}

/* Answers. */

typedef struct {
    const api_head *h;
    reply_items items;
    const char *finish; /* static; NULL: not yet */
    char *stop;         /* the string that ended it; NULL: none did */
    api_usage begins;   /* what is known of its usage when it begins */
    bool begun;
    buf *out; /* where events go */
} message;

static const char *reason_of(const message *m)
{
    bool calls = m->items.n && m->items.at[m->items.n - 1].kind == ITEM_CALL;
    return !m->finish                         ? NULL
           : strcmp(m->finish, "length") == 0 ? "max_tokens"
           : calls                            ? "tool_use"
           : m->stop                          ? "stop_sequence"
                                              : "end_turn";
}

/* whole: with its content; else as its start announces it. */
static json_t *block_json(const reply_item *x, bool whole)
{
    json_t *text = json_stringn_nocheck(whole ? x->text.data : "", whole ? x->text.len : 0);
    if (x->kind == ITEM_REASONING)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", text, "signature", "");
    if (x->kind == ITEM_TEXT)
        return json_pack("{s:s, s:o}", "type", "text", "text", text);
    json_t *input = whole ? json_loadb(x->text.data, x->text.len, JSON_ALLOW_NUL, NULL) : NULL;
    json_decref(text);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", x->id, "name", x->name, "input",
                     json_is_object(input) ? input : json_object());
}

/* Unlike in OpenAI's, cached tokens are no part of "input_tokens". None are written to a cache because the client asks for
 * it, as it may there. */
static json_t *usage_json(const api_usage *u)
{
    return json_pack("{s:I, s:i, s:I, s:I}", "input_tokens", (json_int_t)(u->prompt - u->cached),
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", (json_int_t)u->cached,
                     "output_tokens", (json_int_t)u->completion);
}

static json_t *message_json(const message *m, const api_usage *u)
{
    json_t *blocks = json_array();
    for (int i = 0; i < m->items.n; i++)
        json_array_append_new(blocks, block_json(&m->items.at[i], true));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", m->h->id, "type", "message", "role",
                     "assistant", "model", m->h->model, "content", blocks, "stop_reason", reason_of(m), "stop_sequence",
                     m->stop, "usage", usage_json(u));
}

static void take_finish(message *m, const api_choice *c)
{
    m->finish = c->finish;
    if (c->stop && !m->stop)
        m->stop = xstrndup(c->stop, c->n_stop);
}

static void write_whole(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u)
{
    (void)n;
    message m = {.h = h};
    take_finish(&m, c);
    reply_items_add(&m.items, c, NULL, NULL);
    json_add_take(out, message_json(&m, u));
    reply_items_free(&m.items);
    free(m.stop);
}

static void write_count(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u)
{
    (void)h;
    (void)c;
    (void)n;
    json_add_take(out, json_pack("{s:I}", "input_tokens", (json_int_t)u->prompt));
}

/* Events. */

static void begin_block(void *ctx, int i)
{
    message *m = ctx;
    add_event(m->out, "content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", i, "content_block",
                        block_json(&m->items.at[i], false)));
}

static void more_of_block(void *ctx, int i, const char *text, size_t n)
{
    static const char *const names[][2] = {[ITEM_REASONING] = {"thinking_delta", "thinking"},
                                           [ITEM_TEXT] = {"text_delta", "text"},
                                           [ITEM_CALL] = {"input_json_delta", "partial_json"}};
    message *m = ctx;
    const char *const *name = names[m->items.at[i].kind];
    add_event(m->out, "content_block_delta",
              json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", i, "delta", "type", name[0],
                        name[1], json_stringn_nocheck(text, n)));
}

static void end_block(void *ctx, int i)
{
    message *m = ctx;
    add_event(m->out, "content_block_stop", json_pack("{s:s, s:i}", "type", "content_block_stop", "index", i));
}

static const item_events events = {.begin = begin_block, .more = more_of_block, .end = end_block};

static void *stream_new(const api_head *h, const api_usage *u)
{
    message *m = XNEW(message);
    *m = (message){.h = h, .begins = {.prompt = u->prompt, .cached = u->cached}};
    return m;
}

static void stream_add(void *ctx, buf *out, const api_choice *news)
{
    message *m = ctx;
    m->out = out;
    if (!m->begun)
        add_event(out, "message_start",
                  json_pack("{s:s, s:o}", "type", "message_start", "message", message_json(m, &m->begins)));
    m->begun = true;
    take_finish(m, news);
    reply_items_add(&m->items, news, &events, m);
}

static void stream_end(void *ctx, buf *out, const api_usage *u)
{
    message *m = ctx;
    m->out = out;
    reply_items_close(&m->items, &events, m);
    add_event(out, "message_delta",
              json_pack("{s:s, s:{s:s?, s:s?}, s:o}", "type", "message_delta", "delta", "stop_reason", reason_of(m),
                        "stop_sequence", m->stop, "usage", usage_json(u)));
    add_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void stream_fail(void *ctx, buf *out, const api_error *e)
{
    (void)ctx;
    add_event(out, "error", error_json(e));
}

static void stream_free(void *ctx)
{
    message *m = ctx;
    reply_items_free(&m->items);
    free(m->stop);
    free(m);
}

const api_shape shape_messages = {.id_prefix = "msg_",
                                  .chat = true,
                                  .translate = translate,
                                  .write = write_whole,
                                  .write_error = write_error,
                                  .stream_new = stream_new,
                                  .stream_add = stream_add,
                                  .stream_end = stream_end,
                                  .stream_fail = stream_fail,
                                  .stream_free = stream_free};
const api_shape shape_count_tokens = {.id_prefix = "msg_",
                                      .chat = true,
                                      .prompt_only = true,
                                      .translate = translate_prompt,
                                      .write = write_count,
                                      .write_error = write_error};
