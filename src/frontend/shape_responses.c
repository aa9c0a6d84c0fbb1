/* shape_responses.c - OpenAI's Responses (/v1/responses), stateless: clients send the whole conversation each time
 *
 *   instructions, input items ─▶ messages        text.format ─▶ response_format        tools, tool_choice ─▶ a chat's
 *
 * An answer is a list of items (reply_items.h): reasoning, a message, function calls. In a stream each of them is
 * announced, told piece by piece, and told once more when it is whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontend/api_shape.h"
#include "frontend/json_text.h"
#include "frontend/reply_items.h"
#include "frontend/shape_text.h"

/* Requests. */

static int check_stateless(const json_t *body, api_error *e)
{
    static const char *const asks[] = {"previous_response_id", "conversation", "prompt"};
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
        if (json_member(body, asks[i]))
            return api_error_set(e, 400, asks[i], "unsupported_parameter",
                                 "\"%s\" asks for something that was stored, and this server is stateless: it stores "
                                 "nothing. Send the whole conversation as \"input\"",
                                 asks[i]);
    if (json_is_true(json_member(body, "background")))
        return api_error_set(
            e, 400, "background", "unsupported_parameter",
            "\"background\" asks for an answer that is stored, and this server is stateless: it stores nothing");
    const json_t *top = json_member(body, "top_logprobs"), *cut = json_member(body, "truncation");
    if (top && json_integer_value(top) != 0)
        return api_error_set(e, 400, "top_logprobs", "unsupported_parameter",
                             "\"top_logprobs\" is not served here; /v1/chat/completions has it");
    const json_t *include = json_member(body, "include");
    if (include && !json_is_array(include))
        return api_error_set(e, 400, "include", NULL, "\"include\" must be a list");
    for (size_t i = 0; i < json_array_size(include); i++)
        if (json_says(json_array_get(include, i), "message.output_text.logprobs"))
            return api_error_set(e, 400, "include", "unsupported_parameter",
                                 "\"include\": logprobs are not served here; /v1/chat/completions has them");
    if (cut && !json_says(cut, "disabled"))
        return api_error_set(e, 400, "truncation", "unsupported_parameter", "\"truncation\" must be \"disabled\"");
    return 0;
}

/* Returns content as a chat has it: a string, or a list of texts. NULL with e set. */
static json_t *content_of(const json_t *v, size_t number, api_error *e)
{
    if (json_is_string(v))
        return json_incref((json_t *)v);
    json_t *parts = json_array();
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i), *type = json_member(part, "type");
        json_t *text = json_member(part, json_says(type, "refusal") ? "refusal" : "text");
        bool known = json_says(type, "input_text") || json_says(type, "output_text") || json_says(type, "text") ||
                     json_says(type, "refusal");
        if (!known || !json_is_string(text)) {
            json_decref(parts);
            api_error_set(e, 400, "input", NULL,
                          "item %zu of \"input\": of \"content\", only texts are served: {\"type\": \"input_text\", "
                          "\"text\": ...}",
                          number);
            return NULL;
        }
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    }
    if (json_is_array(v))
        return parts;
    json_decref(parts);
    api_error_set(e, 400, "input", NULL, "item %zu of \"input\" needs a \"content\": a string, or a list of parts",
                  number);
    return NULL;
}

static int add_text_item(json_t *messages, const json_t *item, size_t number, api_error *e)
{
    const json_t *role = json_member(item, "role");
    if (!json_says(role, "user") && !json_says(role, "assistant") && !json_says(role, "system") &&
        !json_says(role, "developer"))
        return api_error_set(e, 400, "input", NULL,
                             "item %zu of \"input\" needs a \"role\": user, assistant, system or developer", number);
    json_t *content = content_of(json_member(item, "content"), number, e);
    if (!content)
        return -1;
    const char *name = json_says(role, "developer") ? "system" : json_string_value(role);
    size_t n = json_array_size(messages);
    json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    if (json_says(role, "assistant") && last && json_object_get(last, "reasoning_content") &&
        !json_object_get(last, "tool_calls"))
        json_object_set_new(last, "content", content); /* the reasoning before it was this message's */
    else
        add_message(messages, name, content);
    return 0;
}

static int add_call_item(json_t *messages, const json_t *item, size_t number, api_error *e)
{
    json_t *id = json_member(item, "call_id"), *name = json_member(item, "name"),
           *arguments = json_member(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return api_error_set(
            e, 400, "input", NULL,
            "item %zu of \"input\": a function_call needs \"call_id\", \"name\" and \"arguments\", all strings",
            number);
    add_tool_call(assistant_turn(messages), id, name, json_incref(arguments));
    return 0;
}

static int add_output_item(json_t *messages, const json_t *item, size_t number, api_error *e)
{
    json_t *id = json_member(item, "call_id"), *content = NULL;
    if (!json_is_string(id))
        return api_error_set(e, 400, "input", NULL, "item %zu of \"input\": a function_call_output needs a \"call_id\"",
                             number);
    if (!(content = content_of(json_member(item, "output"), number, e)))
        return -1;
    json_object_set(add_message(messages, "tool", content), "tool_call_id", id);
    return 0;
}

/* Adds reasoning, which begins an assistant's turn. */
static void add_reasoning_item(json_t *messages, const json_t *item)
{
    buf all = {0};
    const json_t *parts = json_member(item, "content");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_member(json_array_get(parts, i), "text");
        buf_add(&all, json_string_value(text), json_string_length(text));
    }
    if (all.len)
        json_object_set_new(add_message(messages, "assistant", json_string("")), "reasoning_content",
                            json_stringn(all.data, all.len));
    buf_free(&all);
}

static int add_item(json_t *messages, const json_t *item, size_t number, api_error *e)
{
    const json_t *type = json_member(item, "type");
    if (!json_is_object(item) || (type && !json_is_string(type)))
        return api_error_set(e, 400, "input", NULL,
                             "item %zu of \"input\" must be an object with a \"type\", or a message", number);
    if (!type || json_says(type, "message"))
        return add_text_item(messages, item, number, e);
    if (json_says(type, "function_call"))
        return add_call_item(messages, item, number, e);
    if (json_says(type, "function_call_output"))
        return add_output_item(messages, item, number, e);
    if (json_says(type, "reasoning")) {
        add_reasoning_item(messages, item);
        return 0;
    }
    if (json_says(type, "item_reference"))
        return api_error_set(
            e, 400, "input", NULL,
            "item %zu of \"input\" refers to one that was stored, and this server is stateless: it stores nothing",
            number);
    return api_error_set(e, 400, "input", NULL, "item %zu of \"input\": \"%.40s\" is not served here", number,
                         json_string_value(type));
}

static int translate_input(json_t *body, api_error *e)
{
    json_t *messages = json_array(), *instructions = json_member(body, "instructions");
    const json_t *input = json_member(body, "input");
    json_object_set_new(body, "messages", messages);
    if (instructions && !json_is_string(instructions))
        return api_error_set(e, 400, "instructions", NULL, "\"instructions\" must be a string");
    if (instructions)
        add_message(messages, "system", json_incref(instructions));
    if (json_is_string(input))
        add_message(messages, "user", json_incref((json_t *)input));
    else if (!json_is_array(input) || json_array_size(input) == 0)
        return api_error_set(e, 400, "input", NULL, "\"input\" is needed: a string, or a list of items");
    for (size_t i = 0; i < json_array_size(input); i++)
        if (add_item(messages, json_array_get(input, i), i, e))
            return -1;
    return 0;
}

static int translate_tools(json_t *body, api_error *e)
{
    const json_t *given = json_member(body, "tools");
    json_t *tools = json_array(), *choice = json_member(body, "tool_choice");
    for (size_t i = 0; i < json_array_size(given); i++) {
        json_t *tool = json_array_get(given, i), *function;
        if (!json_says(json_member(tool, "type"), "function")) {
            const char *type = json_string_value(json_member(tool, "type"));
            json_decref(tools);
            return api_error_set(e, 400, "tools", "unsupported_parameter",
                                 "tool %zu: \"%.40s\" is not served here; functions are", i, type ? type : "");
        }
        function = json_copy(tool);
        json_object_del(function, "type");
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    if (json_is_array(given))
        json_object_set(body, "tools", tools);
    json_decref(tools);
    if (json_is_object(choice) && json_says(json_member(choice, "type"), "function"))
        json_object_set_new(
            body, "tool_choice",
            json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name", json_member(choice, "name")));
    else if (json_is_object(choice))
        return api_error_set(e, 400, "tool_choice", NULL,
                             "\"tool_choice\" must be none, auto, required or {\"type\": \"function\", \"name\": ...}");
    return 0;
}

static int translate_format(json_t *body, api_error *e)
{
    json_t *text = json_member(body, "text"), *format = json_member(text, "format");
    if (text && !json_is_object(text))
        return api_error_set(e, 400, "text", NULL, "\"text\" must be an object");
    if (format && !json_is_object(format))
        return api_error_set(e, 400, "text.format", NULL, "\"text.format\" must be an object");
    if (json_says(json_member(format, "type"), "json_schema"))
        json_object_set_new(body, "response_format",
                            json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format));
    else if (format)
        json_object_set(body, "response_format", format);
    json_object_del(body, "text");
    return 0;
}

/* Passes the effort of "reasoning" on by the name that chats have for it. */
static int translate_reasoning(json_t *body, api_error *e)
{
    json_t *reasoning = json_member(body, "reasoning"), *effort = json_member(reasoning, "effort");
    if (reasoning && !json_is_object(reasoning))
        return api_error_set(e, 400, "reasoning", NULL, "\"reasoning\" must be an object");
    if (effort)
        json_object_set(body, "reasoning_effort", effort);
    return 0;
}

/* Returns what a response repeats of its request, as members of an object. Owned by the caller. */
static char *repeated_of(const json_t *body)
{
    static const struct {
        const char *name, *otherwise;
    } fields[] = {{"instructions", "null"},
                  {"max_output_tokens", "null"},
                  {"metadata", "{}"},
                  {"parallel_tool_calls", "true"},
                  {"reasoning", "null"},
                  {"temperature", "1.0"},
                  {"text", "{\"format\":{\"type\":\"text\"}}"},
                  {"tool_choice", "\"auto\""},
                  {"tools", "[]"},
                  {"top_p", "1.0"},
                  {"user", "null"}};
    buf out = {0};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        json_t *v = json_member(body, fields[i].name);
        char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        buf_printf(&out, ",\"%s\":", fields[i].name);
        buf_add_str(&out, text ? text : fields[i].otherwise);
        free(text);
    }
    return buf_take(&out);
}

static int translate(json_t *body, char **repeated, api_error *e)
{
    static const char *const of_chats[] = {"n", "logprobs", "prompt_logprobs", "echo", "messages", "response_format",
                                           NULL};
    if (refuse_fields_of_chats(body, of_chats, e))
        return -1;
    json_object_del(body, "stream_options");
    *repeated = repeated_of(body);
    if (check_stateless(body, e) || translate_input(body, e) || translate_tools(body, e) || translate_format(body, e) ||
        translate_reasoning(body, e))
        return -1;
    json_object_del(body, "max_tokens");
    json_object_del(body, "top_logprobs");
    json_rename(body, "max_output_tokens", "max_completion_tokens");
    return 0;
}

/* Writes an error with the field's name in this shape, where chats have another. */
static void write_error(const api_error *e, buf *out)
{
    static const char *const names[][2] = {{"messages", "input"},
                                           {"response_format", "text.format"},
                                           {"max_completion_tokens", "max_output_tokens"},
                                           {"max_tokens", "max_output_tokens"}};
    api_error own = *e;
    for (size_t i = 0; e->param && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(e->param, names[i][0]) == 0)
            own.param = names[i][1];
    api_error_write(&own, out);
}

/* Answers. */

typedef struct {
    const api_head *h;
    reply_items items;
    const char *finish; /* static; NULL: not yet */
    int sequence;       /* number of the next event */
    buf *out;           /* where events go */
} response;

/* Makes an item's id: that of the response with another prefix, and a number. */
static void item_id(const response *r, int i, char id[48])
{
    static const char *const prefix[] = {[ITEM_REASONING] = "rs", [ITEM_TEXT] = "msg", [ITEM_CALL] = "fc"};
    const char *call = strchr(r->h->id, '_');
    snprintf(id, 48, "%s%s%02d", prefix[r->items.at[i].kind], call ? call : "", i);
}

static json_t *string_of(const buf *text)
{
    return json_stringn_nocheck(text->len ? text->data : "", text->len);
}

static json_t *part_of(const reply_item *x, bool whole)
{
    json_t *text = whole ? string_of(&x->text) : json_string("");
    if (x->kind == ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations", "logprobs");
}

static json_t *item_json(const response *r, int i, bool whole)
{
    const reply_item *x = &r->items.at[i];
    bool cut = whole && i == r->items.n - 1 && r->finish && strcmp(r->finish, "length") == 0;
    const char *status = !whole ? "in_progress" : cut ? "incomplete" : "completed";
    char id[48];
    item_id(r, i, id);
    if (x->kind == ITEM_CALL)
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "function_call", "status", status,
                         "call_id", x->id, "name", x->name, "arguments", whole ? string_of(&x->text) : json_string(""));
    json_t *content = whole ? json_pack("[o]", part_of(x, true)) : json_array();
    if (x->kind == ITEM_REASONING)
        return json_pack("{s:s, s:s, s:s, s:[], s:o}", "id", id, "type", "reasoning", "status", status, "summary",
                         "content", content);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status, "role", "assistant",
                     "content", content);
}

static json_t *usage_json(const api_usage *u)
{
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u->prompt, "input_tokens_details",
                     "cached_tokens", (json_int_t)u->cached, "output_tokens", (json_int_t)u->completion,
                     "output_tokens_details", "reasoning_tokens", (json_int_t)u->reasoning, "total_tokens",
                     (json_int_t)(u->prompt + u->completion));
}

/* Appends the response as it stands. u: NULL until it is complete; e: NULL unless it failed. */
static void write_response(const response *r, buf *out, const api_usage *u, const api_error *e)
{
    bool cut = u && r->finish && strcmp(r->finish, "length") == 0;
    const char *status = e ? "failed" : !u ? "in_progress" : cut ? "incomplete" : "completed";
    json_t *items = json_array(),
           *error =
               e ? json_pack("{s:s, s:o}", "code", "server_error", "message", json_text(e->what.msg)) : json_null();
    for (int i = 0; u && i < r->items.n; i++)
        json_array_append_new(items, item_json(r, i, true));
    json_add_take(out,
                  json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s, s:o, s:n, s:b, s:s, s:o}", "id", r->h->id, "object",
                            "response", "created_at", (json_int_t)r->h->created, "status", status, "error", error,
                            "incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
                            "model", r->h->model, "output", items, "previous_response_id", "store", 0, "truncation",
                            "disabled", "usage", u ? usage_json(u) : json_null()));
    out->len--; /* the closing brace */
    buf_add_str(out, r->h->repeated ? r->h->repeated : "");
    buf_add_str(out, "}");
}

static void write_whole(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u)
{
    response r = {.h = h, .finish = n ? c->finish : NULL};
    reply_items_add(&r.items, c, NULL, NULL);
    write_response(&r, out, u, NULL);
    reply_items_free(&r.items);
}

/* Events. */

/* Appends an event of item i, adding to data, which is taken, what all of them have. */
static void add_item_event(response *r, const char *type, int i, json_t *data)
{
    char id[48];
    item_id(r, i, id);
    if (!json_object_get(data, "item"))
        json_object_set_new(data, "item_id", json_string(id));
    json_object_set_new(data, "output_index", json_integer(i));
    if (r->items.at[i].kind != ITEM_CALL && !json_object_get(data, "item"))
        json_object_set_new(data, "content_index", json_integer(0));
    json_object_set_new(data, "sequence_number", json_integer(r->sequence++));
    json_object_set_new(data, "type", json_string(type));
    add_event(r->out, type, data);
}

static void tell_response(response *r, const char *type, const api_usage *u, const api_error *e)
{
    buf_printf(r->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d,\"response\":", type, type,
               r->sequence++);
    write_response(r, r->out, u, e);
    buf_add_str(r->out, "}\n\n");
}

static void begin_item(void *ctx, int i)
{
    response *r = ctx;
    add_item_event(r, "response.output_item.added", i, json_pack("{s:o}", "item", item_json(r, i, false)));
    if (r->items.at[i].kind != ITEM_CALL)
        add_item_event(r, "response.content_part.added", i,
                       json_pack("{s:o}", "part", part_of(&r->items.at[i], false)));
}

static void more_of_item(void *ctx, int i, const char *text, size_t n)
{
    static const char *const types[] = {[ITEM_REASONING] = "response.reasoning_text.delta",
                                        [ITEM_TEXT] = "response.output_text.delta",
                                        [ITEM_CALL] = "response.function_call_arguments.delta"};
    response *r = ctx;
    item_kind kind = r->items.at[i].kind;
    json_t *data = json_pack("{s:o}", "delta", json_stringn_nocheck(text, n));
    if (kind == ITEM_TEXT)
        json_object_set_new(data, "logprobs", json_array());
    add_item_event(r, types[kind], i, data);
}

static void end_item(void *ctx, int i)
{
    static const char *const types[] = {[ITEM_REASONING] = "response.reasoning_text.done",
                                        [ITEM_TEXT] = "response.output_text.done",
                                        [ITEM_CALL] = "response.function_call_arguments.done"};
    response *r = ctx;
    const reply_item *x = &r->items.at[i];
    json_t *data = json_pack("{s:o}", x->kind == ITEM_CALL ? "arguments" : "text", string_of(&x->text));
    if (x->kind == ITEM_CALL)
        json_object_set_new(data, "name", json_string(x->name));
    if (x->kind == ITEM_TEXT)
        json_object_set_new(data, "logprobs", json_array());
    add_item_event(r, types[x->kind], i, data);
    if (x->kind != ITEM_CALL)
        add_item_event(r, "response.content_part.done", i, json_pack("{s:o}", "part", part_of(x, true)));
    add_item_event(r, "response.output_item.done", i, json_pack("{s:o}", "item", item_json(r, i, true)));
}

static const item_events events = {.begin = begin_item, .more = more_of_item, .end = end_item};

static void *stream_new(const api_head *h, const api_usage *u)
{
    (void)u;
    response *r = XNEW(response);
    r->h = h;
    return r;
}

static void announce(response *r)
{
    if (r->sequence > 0)
        return;
    tell_response(r, "response.created", NULL, NULL);
    tell_response(r, "response.in_progress", NULL, NULL);
}

static void stream_add(void *ctx, buf *out, const api_choice *news)
{
    response *r = ctx;
    r->out = out;
    r->finish = news->finish;
    announce(r);
    reply_items_add(&r->items, news, &events, r);
}

static void stream_end(void *ctx, buf *out, const api_usage *u)
{
    response *r = ctx;
    r->out = out;
    reply_items_close(&r->items, &events, r);
    bool cut = r->finish && strcmp(r->finish, "length") == 0;
    tell_response(r, cut ? "response.incomplete" : "response.completed", u, NULL);
}

static void stream_fail(void *ctx, buf *out, const api_error *e)
{
    response *r = ctx;
    r->out = out;
    announce(r);
    tell_response(r, "response.failed", NULL, e);
}

static void stream_free(void *ctx)
{
    response *r = ctx;
    reply_items_free(&r->items);
    free(r);
}

const api_shape shape_responses = {.id_prefix = "resp_",
                                   .chat = true,
                                   .translate = translate,
                                   .write = write_whole,
                                   .write_error = write_error,
                                   .stream_new = stream_new,
                                   .stream_add = stream_add,
                                   .stream_end = stream_end,
                                   .stream_fail = stream_fail,
                                   .stream_free = stream_free};
