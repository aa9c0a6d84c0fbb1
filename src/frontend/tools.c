/* tools.c - see tools.h */
#include "frontend/tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define MAX_TOOLS 128

tools_format tools_format_of(const chat_template *c)
{
    if (chat_template_mentions(c, "[TOOL_CALLS]"))
        return TOOLS_MISTRAL;
    if (chat_template_mentions(c, "<tool_call>"))
        return TOOLS_HERMES;
    if (chat_template_mentions(c, "func_name1(") || chat_template_mentions(c, "<|python_start|>"))
        return TOOLS_PYTHONIC;
    if (chat_template_mentions(c, "\"parameters\"") || chat_template_mentions(c, "<|python_tag|>"))
        return TOOLS_LLAMA;
    return TOOLS_NONE;
}

const char *tools_mark(tools_format f)
{
    return f == TOOLS_MISTRAL ? "[TOOL_CALLS]" : f == TOOLS_LLAMA ? "<|python_tag|>" : NULL;
}

/* Requests. */

static int check_tool(const json_t *tool, size_t number, api_error *e)
{
    const json_t *type = json_member(tool, "type"), *function = json_member(tool, "function"), *parameters = json_member(function, "parameters");
    const char *name = json_string_value(json_member(function, "name"));
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return api_error_set(e, 400, "tools", NULL, "tool %zu must have the \"type\" function", number);
    if (!name || !*name || strlen(name) > 128 || strlen(name) != json_string_length(json_member(function, "name")))
        return api_error_set(e, 400, "tools", NULL, "the function of tool %zu needs a \"name\" of 1 to 128 characters", number);
    if (parameters && !json_is_object(parameters))
        return api_error_set(e, 400, "tools", NULL, "the \"parameters\" of function \"%s\" must be a JSON Schema", name);
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
        return api_error_set(e, 400, "tool_choice", NULL,
                             "\"tool_choice\" must be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!find_tool(tools, *name))
        return api_error_set(e, 400, "tool_choice", NULL, "\"tool_choice\" names \"%.100s\", which is not among \"tools\"", *name);
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

/* References in a function's schema are from its root: what they lead to is moved to the root of ours. */
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
        json_object_foreach(own, key, v) {
            json_t *other = json_object_get(all, key);
            if (other && !json_equal(other, v))
                return api_error_set(e, 400, "tools", NULL, "two functions have different \"%s\" of the name \"%.100s\"", names[i], key);
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
    json_t *calls = json_array(), *root = json_pack("{s:s, s:i, s:{s:o}}", "type", "array", "minItems", 1, "items", "anyOf", calls);
    if (!many)
        json_object_set_new(root, "maxItems", json_integer(1));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_member(json_array_get(tools, i), "function");
        json_t *parameters = parameters_of(function);
        int rc = lift_definitions(root, parameters, e);
        json_array_append_new(calls, json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object", "properties", "name", "const",
                                               json_member(function, "name"), "parameters", parameters, "required", "name", "parameters",
                                               "additionalProperties", 0));
        if (rc) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

/* Outputs. */

void tool_calls_free(tool_calls *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->at[i].name);
        free(c->at[i].arguments);
    }
    free(c->at);
    *c = (tool_calls){0};
}

/* Takes arguments, a JSON text. */
static void add_call(tool_calls *found, const char *name, size_t n, char *arguments)
{
    found->at = xgrow(found->at, &found->cap, (size_t)found->n + 1, sizeof *found->at);
    found->at[found->n++] = (tool_call){xstrndup(name, n), arguments};
}

/* A call as {"name", "arguments" or "parameters"}; the number-th of the output, which may be there already. */
static bool add_object(tool_calls *found, int number, const json_t *v)
{
    const json_t *name = json_object_get(v, "name"), *arguments = json_object_get(v, "arguments");
    if (!arguments)
        arguments = json_object_get(v, "parameters");
    if (!json_is_string(name) || (arguments && !json_is_object(arguments) && !json_is_string(arguments)))
        return false;
    if (number < found->n)
        return true;
    char *text = json_is_string(arguments) ? xstrdup(json_string_value(arguments)) : arguments ? json_dumps(arguments, 0) : xstrdup("{}");
    add_call(found, json_string_value(name), json_string_length(name), text);
    return true;
}

/* The JSON value that text begins with, and where it ends; NULL: it is none, or not complete. */
static json_t *read_value(const char *text, size_t n, size_t *end)
{
    json_error_t where;
    json_t *v = json_loadb(text, n, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &where);
    *end = v ? (size_t)where.position : 0;
    return v;
}

static size_t skip_blanks(const char *text, size_t n, size_t at)
{
    while (at < n && isspace((unsigned char)text[at]))
        at++;
    return at;
}

static bool begins(const char *text, size_t n, size_t at, const char *with)
{
    return n - at >= strlen(with) && memcmp(text + at, with, strlen(with)) == 0;
}

static const char *find_text(const char *text, size_t n, size_t at, const char *what)
{
    return n > at ? memmem(text + at, n - at, what, strlen(what)) : NULL;
}

/* Up to where text cannot be the beginning of the mark. */
static size_t before_mark(const char *text, size_t n, const char *mark)
{
    size_t len = strlen(mark), at = n >= len ? n - len + 1 : 0;
    while (at < n && memcmp(text + at, mark, n - at) != 0)
        at++;
    return at;
}

/* <tool_call> JSON </tool_call>, again and again. What is no call makes all of it content. */
static size_t find_hermes(const char *text, size_t n, bool whole, tool_calls *found)
{
    const char *mark = "<tool_call>", *first = find_text(text, n, 0, mark);
    if (!first)
        return whole ? n : before_mark(text, n, mark);
    size_t content = (size_t)(first - text), at = content;
    for (int number = 0; at < n && begins(text, n, at, mark); number++) {
        size_t end, from = skip_blanks(text, n, at + strlen(mark));
        json_t *v = read_value(text + from, n - from, &end);
        size_t behind = skip_blanks(text, n, from + end);
        bool closed = v && begins(text, n, behind, "</tool_call>"), ok = (closed || whole) && v && add_object(found, number, v);
        json_decref(v);
        if (!ok)
            return whole && found->n == 0 ? n : content;
        at = closed ? skip_blanks(text, n, behind + strlen("</tool_call>")) : n;
    }
    return content;
}

/* All of the output is calls, or none is. */
static size_t find_llama(const char *text, size_t n, bool whole, tool_calls *found)
{
    const char *mark = tools_mark(TOOLS_LLAMA);
    size_t at = skip_blanks(text, n, 0);
    bool marked = begins(text, n, at, mark);
    at += marked ? strlen(mark) : 0;
    at = skip_blanks(text, n, at);
    if (at < n && text[at] != '{' && !(n - at < strlen(mark) && memcmp(text + at, mark, n - at) == 0))
        return n;
    if (!whole)
        return 0;
    for (int number = 0; at < n && text[at] == '{'; number++) {
        size_t end;
        json_t *v = read_value(text + at, n - at, &end);
        bool ok = v && add_object(found, number, v);
        json_decref(v);
        if (!ok)
            break;
        at = skip_blanks(text, n, at + end);
        at = at < n && text[at] == ';' ? skip_blanks(text, n, at + 1) : at;
    }
    return found->n ? 0 : n;
}

static size_t find_mistral(const char *text, size_t n, bool whole, tool_calls *found)
{
    const char *mark = tools_mark(TOOLS_MISTRAL), *first = find_text(text, n, 0, mark);
    if (!first)
        return whole ? n : before_mark(text, n, mark);
    size_t content = (size_t)(first - text), at = content;
    for (int number = 0; at < n && begins(text, n, at, mark);) {
        size_t end, from = skip_blanks(text, n, at + strlen(mark));
        const char *args = find_text(text, n, from, "[ARGS]");
        bool list = from < n && text[from] == '[';
        if (!list && !args)
            break;
        size_t json = list ? from : (size_t)(args - text) + strlen("[ARGS]");
        json_t *v = read_value(text + json, n - json, &end);
        for (size_t i = 0; list && i < json_array_size(v); i++)
            number += add_object(found, number, json_array_get(v, i));
        if (!list && json_is_object(v) && number++ >= found->n)
            add_call(found, text + from, (size_t)(args - text) - from, json_dumps(v, 0));
        bool ok = v != NULL;
        json_decref(v);
        if (!ok)
            break;
        at = skip_blanks(text, n, json + end);
    }
    return whole && found->n == 0 ? n : content;
}

/* Python's literals, as far as calls have them. */
typedef struct { const char *at, *end; buf out; bool ok; int depth; } python;

static void skip_space(python *p)
{
    while (p->at < p->end && isspace((unsigned char)*p->at))
        p->at++;
}

static bool take(python *p, char c)
{
    skip_space(p);
    bool there = p->at < p->end && *p->at == c;
    p->at += there;
    return there;
}

static bool take_word(python *p, const char *word, const char *json)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    buf_add_str(&p->out, json);
    return true;
}

static void add_escaped(buf *out, char c)
{
    if (c == '"' || c == '\\')
        buf_add_char(out, '\\');
    if ((unsigned char)c < 0x20)
        buf_printf(out, "\\u%04x", (unsigned char)c);
    else
        buf_add_char(out, c);
}

static void read_string(python *p)
{
    char quote = *p->at++;
    buf_add_char(&p->out, '"');
    while (p->at < p->end && *p->at != quote) {
        char c = *p->at++;
        if (c == '\\' && p->at < p->end) {
            c = *p->at++;
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        add_escaped(&p->out, c);
    }
    p->ok = p->ok && p->at < p->end;
    p->at += p->at < p->end;
    buf_add_char(&p->out, '"');
}

static void read_python(python *p);

/* Items up to `close`; pairs: with names and colons. */
static void read_items(python *p, char close, bool pairs)
{
    buf_add_char(&p->out, pairs ? '{' : '[');
    for (bool first = true; p->ok && !take(p, close); first = false) {
        if (!first && !take(p, ',')) {
            p->ok = false;
            return;
        }
        if (!first && take(p, close))
            break;
        if (!first)
            buf_add_str(&p->out, ", ");
        read_python(p);
        if (pairs) {
            p->ok = p->ok && take(p, ':');
            buf_add_str(&p->out, ": ");
            read_python(p);
        }
    }
    buf_add_char(&p->out, pairs ? '}' : ']');
}

static void read_number(python *p)
{
    const char *from = p->at;
    while (p->at < p->end && (isdigit((unsigned char)*p->at) || strchr("+-.eE", *p->at)))
        p->at++;
    p->ok = p->ok && p->at > from;
    buf_add(&p->out, from, (size_t)(p->at - from));
}

static void read_python(python *p)
{
    skip_space(p);
    if (!p->ok || p->at >= p->end || ++p->depth > 64) {
        p->ok = false;
        return;
    }
    if (*p->at == '"' || *p->at == '\'')
        read_string(p);
    else if (take(p, '['))
        read_items(p, ']', false);
    else if (take(p, '('))
        read_items(p, ')', false);
    else if (take(p, '{'))
        read_items(p, '}', true);
    else if (!take_word(p, "True", "true") && !take_word(p, "False", "false") && !take_word(p, "None", "null") &&
             !take_word(p, "true", "true") && !take_word(p, "false", "false") && !take_word(p, "null", "null"))
        read_number(p);
    p->depth--;
}

static bool read_name(python *p, const char **name, size_t *n)
{
    skip_space(p);
    *name = p->at;
    while (p->at < p->end && (isalnum((unsigned char)*p->at) || strchr("_.-", *p->at)))
        p->at++;
    *n = (size_t)(p->at - *name);
    return *n > 0;
}

/* name(key=value, ...) */
static bool read_call(python *p, tool_calls *found)
{
    const char *name, *key;
    size_t n, n_key;
    if (!read_name(p, &name, &n) || !take(p, '('))
        return false;
    buf_clear(&p->out);
    buf_add_char(&p->out, '{');
    for (bool first = true; !take(p, ')'); first = false) {
        if ((!first && !take(p, ',')) || !read_name(p, &key, &n_key) || !take(p, '='))
            return false;
        buf_printf(&p->out, "%s\"%.*s\": ", first ? "" : ", ", (int)n_key, key);
        read_python(p);
        if (!p->ok)
            return false;
    }
    buf_add_char(&p->out, '}');
    json_t *check = json_loadb(p->out.data, p->out.len, 0, NULL);
    json_decref(check);
    if (!check)
        return false;
    add_call(found, name, n, xstrdup(p->out.data));
    return true;
}

static size_t find_pythonic(const char *text, size_t n, bool whole, tool_calls *found)
{
    size_t at = skip_blanks(text, n, 0);
    if (at < n && text[at] != '[')
        return n;
    if (!whole)
        return 0;
    python p = {.at = text + at, .end = text + n, .ok = true};
    tool_calls calls = {0};
    bool ok = take(&p, '[');
    while (ok && (ok = read_call(&p, &calls)) && take(&p, ','))
        ;
    ok = ok && take(&p, ']');
    buf_free(&p.out);
    if (!ok) {
        tool_calls_free(&calls);
        return n;
    }
    tool_calls_free(found);
    *found = calls;
    return 0;
}

/* A list of calls, by the grammar; or the arguments of one. */
static size_t find_demanded(tools_format f, const char *name, const char *text, size_t n, bool whole, tool_calls *found)
{
    size_t end;
    if (!whole || found->n)
        return 0;
    if (f == TOOLS_NAMED) {
        add_call(found, name, strlen(name), xstrndup(text, n));
        return 0;
    }
    json_t *list = read_value(text, n, &end);
    for (size_t i = 0; i < json_array_size(list); i++)
        add_object(found, (int)i, json_array_get(list, i));
    json_decref(list);
    return found->n ? 0 : n;
}

size_t tools_find(tools_format f, const char *name, const char *text, size_t n, bool whole, tool_calls *found)
{
    switch (f) {
    case TOOLS_HERMES: return find_hermes(text, n, whole, found);
    case TOOLS_LLAMA: return find_llama(text, n, whole, found);
    case TOOLS_PYTHONIC: return find_pythonic(text, n, whole, found);
    case TOOLS_MISTRAL: return find_mistral(text, n, whole, found);
    case TOOLS_REQUIRED: case TOOLS_NAMED: return find_demanded(f, name, text, n, whole, found);
    case TOOLS_NONE: break;
    }
    return n;
}
