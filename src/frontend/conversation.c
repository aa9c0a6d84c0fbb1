/* conversation.c - see conversation.h */
#include "frontend/conversation.h"

#include "base/buf.h"

/* Returns the texts of the parts, concatenated. */
static json_t *joined(const json_t *parts)
{
    buf all = {0};
    buf_add(&all, "", 0);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        buf_add(&all, json_string_value(text), json_string_length(text));
    }
    json_t *text = json_stringn(all.data, all.len);
    buf_free(&all);
    return text;
}

static json_t *content_for(const chat_template *c, json_t *content)
{
    if (json_is_array(content) && !chat_template_takes_parts(c))
        return joined(content);
    if (json_is_string(content) && chat_template_wants_parts(c))
        return json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    return json_incref(content);
}

/* Returns the call with its arguments parsed; unchanged where they are no JSON object, or have a number out of
 * range. */
static json_t *with_arguments(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function, "arguments");
    json_t *arguments = json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL);
    if (!json_is_object(arguments)) {
        json_decref(arguments);
        return json_incref(call);
    }
    json_t *new_call = json_copy(call), *new_function = json_copy(function);
    json_object_set_new(new_function, "arguments", arguments);
    json_object_set_new(new_call, "function", new_function);
    return new_call;
}

static json_t *message_for(const chat_template *c, const json_t *message)
{
    json_t *made = json_copy((json_t *)message), *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    if (content)
        json_object_set_new(made, "content", content_for(c, content));
    if (!json_is_array(calls))
        return made;
    json_t *new_calls = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++)
        json_array_append_new(new_calls, with_arguments(json_array_get(calls, i)));
    json_object_set_new(made, "tool_calls", new_calls);
    return made;
}

json_t *conversation_for(const chat_template *c, const json_t *messages)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++)
        json_array_append_new(all, message_for(c, json_array_get(messages, i)));
    return all;
}
