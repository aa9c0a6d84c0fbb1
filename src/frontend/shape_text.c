/* shape_text.c - see shape_text.h */
#include "frontend/shape_text.h"

#include <string.h>

#include "frontend/json_text.h"

bool json_says(const json_t *v, const char *text)
{
    return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

void json_rename(json_t *object, const char *from, const char *to)
{
    json_t *v = json_member(object, from);
    if (v)
        json_object_set(object, to, v);
    else
        json_object_del(object, to);
    json_object_del(object, from);
}

int refuse_fields_of_chats(json_t *body, const char *const *fields, api_error *e)
{
    for (; *fields; fields++) {
        const json_t *v = json_member(body, *fields);
        bool idle =
            !v || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 1 && strcmp(*fields, "n") == 0);
        if (!idle)
            return api_error_set(e, 400, *fields, "unsupported_parameter",
                                 "\"%s\" is a field of /v1/chat/completions, and not served here", *fields);
        json_object_del(body, *fields);
    }
    return 0;
}

json_t *add_message(json_t *messages, const char *role, json_t *content)
{
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    json_array_append_new(messages, m);
    return m;
}

json_t *assistant_turn(json_t *messages)
{
    size_t n = json_array_size(messages);
    json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    return last && json_says(json_object_get(last, "role"), "assistant")
               ? last
               : add_message(messages, "assistant", json_string(""));
}

void add_tool_call(json_t *message, json_t *id, json_t *name, json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls)
        json_object_set_new(message, "tool_calls", calls = json_array());
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name",
                                           name, "arguments", arguments));
}

void add_event(buf *out, const char *name, json_t *data)
{
    buf_printf(out, "event: %s\ndata: ", name);
    json_add_take(out, data);
    buf_add_str(out, "\n\n");
}
