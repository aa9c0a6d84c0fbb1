/* tools.c - see tools.h */
#include "frontend/tools.h"

#include <string.h>

#define MAX_TOOLS 128

tools_format tools_format_of(const chat_template *c)
{
    if (chat_template_mentions(c, "[TOOL_CALLS]"))
        return TOOLS_MISTRAL;
    if (chat_template_mentions(c, "<tool_call>"))
        return chat_template_mentions(c, "<function=") ? TOOLS_NONE
                                                       : TOOLS_HERMES; /* Qwen3-Coder's is XML within the same tags */
    if (chat_template_mentions(c, "func_name1(") || chat_template_mentions(c, "<|python_start|>"))
        return TOOLS_PYTHONIC;
    if (chat_template_mentions(c, "\"parameters\"") || chat_template_mentions(c, "<|python_tag|>"))
        return TOOLS_LLAMA;
    return TOOLS_NONE;
}

static int check_tool(const json_t *tool, size_t number, api_error *e)
{
    const json_t *type = json_member(tool, "type"), *function = json_member(tool, "function"),
                 *parameters = json_member(function, "parameters");
    const char *name = json_string_value(json_member(function, "name"));
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return api_error_set(e, 400, "tools", NULL, "tool %zu must have the \"type\" function", number);
    if (!name || !*name || strlen(name) > 128 || strlen(name) != json_string_length(json_member(function, "name")))
        return api_error_set(e, 400, "tools", NULL, "the function of tool %zu needs a \"name\" of 1 to 128 characters",
                             number);
    if (parameters && !json_is_object(parameters))
        return api_error_set(e, 400, "tools", NULL, "the \"parameters\" of function \"%s\" must be a JSON Schema",
                             name);
    return 0;
}

static const json_t *find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_member(json_array_get(tools, i), "function");
        if (strcmp(json_string_value(json_member(function, "name")), name) == 0)
            return function;
    }
    return NULL;
}

static int parse_choice(const json_t *v, const json_t *tools, tools_choice *choice, const char **name, api_error *e)
{
    static const char *const words[] = {"none", "auto", "required"};
    for (int i = 0; json_is_string(v) && i < 3; i++)
        if (strcmp(json_string_value(v), words[i]) == 0) {
            *choice = (tools_choice)i;
            return 0;
        }
    *name = json_string_value(json_member(json_member(v, "function"), "name"));
    if (!*name)
        return api_error_set(
            e, 400, "tool_choice", NULL,
            "\"tool_choice\" must be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!find_tool(tools, *name))
        return api_error_set(e, 400, "tool_choice", NULL,
                             "\"tool_choice\" names \"%.100s\", which is not among \"tools\"", *name);
    *choice = CHOICE_NAMED;
    return 0;
}

int tools_parse(const json_t *input, tools_choice *choice, const char **name, api_error *e)
{
    const json_t *tools = json_member(input, "tools"), *chosen = json_member(input, "tool_choice");
    size_t n = json_array_size(tools);
    *choice = n ? CHOICE_AUTO : CHOICE_NONE;
    *name = NULL;
    if (tools && (!json_is_array(tools) || n > MAX_TOOLS))
        return api_error_set(e, 400, "tools", NULL, "\"tools\" must be a list of at most %d functions", MAX_TOOLS);
    for (size_t i = 0; i < n; i++)
        if (check_tool(json_array_get(tools, i), i, e))
            return -1;
    if (!chosen)
        return 0;
    if (parse_choice(chosen, tools, choice, name, e))
        return -1;
    if (n == 0 && *choice == CHOICE_REQUIRED)
        return api_error_set(e, 400, "tool_choice", NULL, "\"tool_choice\" needs \"tools\"");
    if (n == 0)
        *choice = CHOICE_NONE;
    return 0;
}

/* Moves the definitions of a function's schema to the root of ours: references in it count from its root. -1 with e set
 * when two functions differ in one. */
static int lift_definitions(json_t *root, json_t *parameters, api_error *e)
{
    static const char *const names[] = {"$defs", "definitions"};
    for (int i = 0; i < 2; i++) {
        json_t *own = json_object_get(parameters, names[i]), *all = json_object_get(root, names[i]), *v;
        const char *key;
        if (!json_is_object(own))
            continue;
        if (!all)
            json_object_set_new(root, names[i], all = json_object());
        json_object_foreach(own, key, v)
        {
            json_t *other = json_object_get(all, key);
            if (other && !json_equal(other, v))
                return api_error_set(e, 400, "tools", NULL,
                                     "two functions have different \"%s\" of the name \"%.100s\"", names[i], key);
            json_object_set(all, key, v);
        }
        json_object_del(parameters, names[i]);
    }
    return 0;
}

static json_t *parameters_of(const json_t *function)
{
    const json_t *p = json_member(function, "parameters");
    return p && json_object_size(p) ? json_deep_copy(p) : json_pack("{s:s, s:{}}", "type", "object", "properties");
}

json_t *tools_schema(const json_t *tools, const char *name, bool many, api_error *e)
{
    if (name)
        return parameters_of(find_tool(tools, name));
    json_t *calls = json_array(),
           *root = json_pack("{s:s, s:i, s:{s:o}}", "type", "array", "minItems", 1, "items", "anyOf", calls);
    if (!many)
        json_object_set_new(root, "maxItems", json_integer(1));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_member(json_array_get(tools, i), "function");
        json_t *parameters = parameters_of(function);
        int rc = lift_definitions(root, parameters, e);
        json_array_append_new(calls, json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object", "properties",
                                               "name", "const", json_member(function, "name"), "parameters", parameters,
                                               "required", "name", "parameters", "additionalProperties", 0));
        if (rc) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}
