/* chat.c - see chat.h */
#include "text/chat.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/jinja.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define MAX_FILE (16u << 20)

typedef struct {
    char *name;   /* "default", "tool_use", ... */
    char *source; /* [n_source] */
    size_t n_source;
    jinja *code;   /* NULL: it did not compile */
    char *problem; /* why not, or NULL */
} program;

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
enum { N_TOKENS = sizeof token_names / sizeof token_names[0] };

struct chat_template {
    program *program; /* [n_programs] */
    size_t n_programs, cap;
    char *token[N_TOKENS]; /* NULL: there is none */
    bool takes_parts, wants_parts;
};

/* Loading. */

static void add_program(chat_template *c, const char *name, const char *source, size_t n)
{
    err e;
    c->program = xgrow(c->program, &c->cap, c->n_programs + 1, sizeof *c->program);
    program *p = &c->program[c->n_programs++];
    *p = (program){
        .name = xstrdup(name), .source = xstrndup(source, n), .n_source = n, .code = jinja_compile(source, n, &e)};
    if (!p->code)
        p->problem = xasprintf("the model's chat template (%s) cannot be used: %s", name, e.msg);
}

static const program *find_program(const chat_template *c, const char *name)
{
    for (size_t i = 0; i < c->n_programs; i++)
        if (strcmp(c->program[i].name, name) == 0)
            return &c->program[i];
    return NULL;
}

static int read_program(chat_template *c, const char *name, const char *path, err *e)
{
    buf source = {0};
    int rc = file_read(&source, path, MAX_FILE, e);
    if (rc == 0)
        add_program(c, name, source.data ? source.data : "", source.len);
    buf_free(&source);
    return rc;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_jinja(const struct dirent *f)
{
    size_t n = strlen(f->d_name), end = strlen(".jinja");
    return n > end && strcmp(f->d_name + n - end, ".jinja") == 0;
}

/* Reads additional_chat_templates/NAME.jinja. */
static int read_more_programs(chat_template *c, const char *dir, err *e)
{
    struct dirent **file;
    char *folder = path_join(dir, "additional_chat_templates");
    int n = file_is_dir(folder) ? scandir(folder, &file, is_jinja, by_name) : 0, rc = 0;
    for (int i = 0; i < n; i++) {
        char *path = path_join(folder, file[i]->d_name), *name = xstrndup(file[i]->d_name, strlen(file[i]->d_name) - 6);
        if (rc == 0)
            rc = read_program(c, name, path, e);
        free(path);
        free(name);
        free(file[i]);
    }
    if (n > 0)
        free(file);
    free(folder);
    return rc;
}

static int read_program_files(chat_template *c, const char *dir, err *e)
{
    char *path = path_join(dir, "chat_template.jinja");
    int rc = file_exists(path) ? read_program(c, "default", path, e) : 0;
    free(path);
    return rc ? rc : read_more_programs(c, dir, e);
}

static void add_from_json(chat_template *c, const char *name, const json_t *source)
{
    if (name && json_is_string(source))
        add_program(c, name, json_string_value(source), json_string_length(source));
}

/* Adds "chat_template" of the configuration: one program, or several by name. */
static void add_configured(chat_template *c, const json_t *config)
{
    const json_t *t = json_member(config, "chat_template");
    add_from_json(c, "default", t);
    for (size_t i = 0; i < json_array_size(t); i++) {
        const json_t *named = json_array_get(t, i);
        add_from_json(c, json_string_value(json_member(named, "name")), json_member(named, "template"));
    }
    for (void *i = json_object_iter((json_t *)t); i; i = json_object_iter_next((json_t *)t, i))
        add_from_json(c, json_object_iter_key(i), json_object_iter_value(i));
}

/* Sets a special token, unless it is set: a string, or an object with the string as "content". */
static void set_token(chat_template *c, int i, const json_t *config)
{
    const json_t *token = json_member(config, token_names[i]);
    if (json_is_object(token))
        token = json_member(token, "content");
    if (json_is_string(token) && !c->token[i])
        c->token[i] = xstrdup(json_string_value(token));
}

static json_t *read_config(const char *dir, const char *name, err *e)
{
    char *path = path_join(dir, name);
    json_t *config = file_exists(path) ? json_read_file(path, MAX_FILE, e) : json_object();
    free(path);
    return config;
}

/* Older tokenizers have their tokens in special_tokens_map.json, which takes precedence unless the configuration has
 * "added_tokens_decoder". */
static int read_tokens(chat_template *c, const char *dir, const json_t *config, err *e)
{
    bool tells_all = json_object_get(config, "added_tokens_decoder");
    json_t *older = tells_all ? json_object() : read_config(dir, "special_tokens_map.json", e);
    for (int i = 0; i < N_TOKENS && older; i++) {
        set_token(c, i, older);
        set_token(c, i, config);
    }
    int rc = older ? 0 : -1;
    json_decref(older);
    return rc;
}

/* Reads a directory's tokens and programs, the latter from files or else from the configuration. */
static int read_dir(chat_template *c, const char *dir, bool with_programs, err *e)
{
    json_t *config = read_config(dir, "tokenizer_config.json", e);
    int rc = config ? read_tokens(c, dir, config, e) : -1;
    if (rc == 0 && with_programs)
        rc = read_program_files(c, dir, e);
    if (rc == 0 && with_programs && c->n_programs == 0)
        add_configured(c, config);
    json_decref(config);
    return rc;
}

/* Which forms of content the template understands. */

#define WORDS "some words of a user"

/* Returns whether the prompt of these messages has WORDS as text, not inside the repr or JSON of a list of parts. */
static bool shows(const chat_template *c, const char *messages)
{
    err e;
    buf out = {0};
    json_t *list = json_read_text(messages, strlen(messages), &e);
    const chat_input in = {.messages = list, .add_generation_prompt = true};
    bool is = chat_template_write(c, &in, 0, &out, NULL, &e) == 0 && strstr(out.data, WORDS) &&
              !strstr(out.data, "'type'") && !strstr(out.data, "\"type\"");
    json_decref(list);
    buf_free(&out);
    return is;
}

static void try_parts(chat_template *c)
{
    bool text = shows(c, "[{\"role\": \"user\", \"content\": \"" WORDS "\"}]");
    c->takes_parts = shows(c, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"" WORDS "\"}]}]");
    c->wants_parts = c->takes_parts && !text;
}

/* Making. */

chat_template *chat_template_new(const char *source, const char *bos, const char *eos)
{
    chat_template *c = XNEW(chat_template);
    c->token[0] = xstrdup(bos);
    c->token[1] = xstrdup(eos);
    if (source)
        add_program(c, "default", source, strlen(source));
    try_parts(c);
    return c;
}

chat_template *chat_template_load(const char *dir, const char *file, err *e)
{
    chat_template *c = XNEW(chat_template);
    int rc = read_dir(c, dir, !file, e);
    if (rc == 0 && file)
        rc = read_program(c, "default", file, e);
    if (rc == 0 && file && c->program[0].problem)
        rc = err_set(e, "%s: %s", file, c->program[0].problem);
    if (rc == 0) {
        try_parts(c);
        return c;
    }
    chat_template_free(c);
    return NULL;
}

chat_template *chat_template_load_over(const char *dir, const chat_template *base, err *e)
{
    chat_template *c = XNEW(chat_template);
    e->msg[0] = '\0';
    int rc = read_dir(c, dir, true, e);
    if (rc || c->n_programs == 0) {
        chat_template_free(c);
        return NULL;
    }
    for (int i = 0; i < N_TOKENS; i++)
        if (!c->token[i] && base->token[i])
            c->token[i] = xstrdup(base->token[i]);
    try_parts(c);
    return c;
}

void chat_template_free(chat_template *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_programs; i++) {
        free(c->program[i].name);
        free(c->program[i].source);
        free(c->program[i].problem);
        jinja_free(c->program[i].code);
    }
    for (int i = 0; i < N_TOKENS; i++)
        free(c->token[i]);
    free(c->program);
    free(c);
}

bool chat_template_mentions(const chat_template *c, const char *text)
{
    for (size_t i = 0; i < c->n_programs; i++)
        if (memmem(c->program[i].source, c->program[i].n_source, text, strlen(text)))
            return true;
    return false;
}

bool chat_template_takes_parts(const chat_template *c)
{
    return c->takes_parts;
}

bool chat_template_wants_parts(const chat_template *c)
{
    return c->wants_parts;
}

/* Writing. */

static bool is_given(const json_t *v)
{
    return v && !json_is_null(v);
}

/* The program for tools where there are tools, else the usual one. */
static const program *choose_program(const chat_template *c, bool has_tools, const char **problem)
{
    const program *p = has_tools ? find_program(c, "tool_use") : NULL;
    if (!p)
        p = find_program(c, "default");
    *problem =
        p ? p->problem
        : c->n_programs
            ? "this model has several chat templates, and none is named \"default\""
            : "this model has no chat template: use /v1/completions, or put a chat_template.jinja into its directory";
    return p;
}

const char *chat_template_problem(const chat_template *c)
{
    const char *problem;
    choose_program(c, false, &problem);
    return problem;
}

static int check_objects(const json_t *list, const char *name, err *e)
{
    if (!is_given(list))
        return 0;
    if (!json_is_array(list))
        return err_set(e, "\"%s\" must be a list of objects", name);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return err_set(e, "element %zu of \"%s\" must be an object", i, name);
    return 0;
}

static int check_input(const chat_input *in, err *e)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (!is_given(in->messages) || json_array_size(in->messages) == 0)
        return err_set(e, "\"messages\" must be a list of at least one message");
    if (check_objects(in->messages, "messages", e) || check_objects(in->tools, "tools", e) ||
        check_objects(in->documents, "documents", e))
        return -1;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (in->more && json_object_get(in->more, own[i]))
            return err_set(e, "\"%s\" cannot be a variable of the template's own", own[i]);
    if (in->continues && in->add_generation_prompt)
        return err_set(e, "\"continue_final_message\" and \"add_generation_prompt\" do not go together");
    return 0;
}

static const char *const reasoning[] = {"reasoning_content", "thinking", "reasoning"};
enum { N_REASONING = 3 };

/* Returns the message as templates get it, owned by the caller. Members that are null are left out: clients send
 * "content": null beside tool calls, which many templates would write as "None", while they can do without the member.
 * Reasoning goes by several names; templates find it under the two that they read. */
static json_t *message_for_template(json_t *message)
{
    const json_t *found = NULL;
    for (int i = 0; i < N_REASONING && !found; i++)
        found = json_member(message, reasoning[i]);
    json_t *copy = json_object(), *value;
    const char *key;
    if (found)
        json_object_set(copy, "thinking", (json_t *)found);
    json_object_foreach(message, key, value) if (!json_is_null(value)) json_object_set(copy, key, value);
    if (found)
        json_object_set(copy, "reasoning_content", (json_t *)found);
    return copy;
}

static json_t *copy_messages(const json_t *messages)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++)
        json_array_append_new(all, message_for_template(json_array_get(messages, i)));
    return all;
}

/* Marks the end of the text to be continued. A blank follows it: a template that trims drops the blank. */
#define OPEN_END "PUNICA_OPEN_END"

static json_t *with_open_end(const json_t *s)
{
    buf text = {0};
    buf_add(&text, json_string_value(s), json_string_length(s));
    buf_add_str(&text, OPEN_END " ");
    json_t *marked = json_stringn(text.data, text.len);
    buf_free(&text);
    return marked;
}

/* Marks the end of the last text part and puts its text without the mark into was. */
static int mark_parts(json_t *parts, buf *was, err *e)
{
    for (size_t i = json_array_size(parts); i-- > 0;) {
        json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        if (!json_is_string(text))
            continue;
        buf_add(was, json_string_value(text), json_string_length(text));
        json_t *copy = json_copy(part);
        json_object_set_new(copy, "text", with_open_end(text));
        json_array_set_new(parts, i, copy);
        return 0;
    }
    return err_set(e, "the last message has no text to continue");
}

static bool source_has(const program *p, const char *field)
{
    return memmem(p->source, p->n_source, field, strlen(field)) != NULL;
}

/* Marks the end of a field of the last message and puts its text without the mark into was. Reasoning is marked under
 * all the names that the message has it under. Fails if the program's source has none of the field's names. */
static int mark_end(const program *p, json_t *messages, const char *field, buf *was, err *e)
{
    size_t last = json_array_size(messages) - 1;
    json_t *message = json_copy(json_array_get(messages, last)), *text = json_member(message, field);
    json_array_set_new(messages, last, message);
    if (!text)
        return err_set(e, "the last message has no \"%s\" to continue", field);
    bool is_reasoning = false, known = source_has(p, field);
    for (int i = 0; i < N_REASONING; i++)
        is_reasoning |= strcmp(field, reasoning[i]) == 0;
    for (int i = 0; i < N_REASONING && is_reasoning; i++)
        known |= source_has(p, reasoning[i]) && json_equal(json_object_get(message, reasoning[i]), text);
    if (!known)
        return err_set(e, "the chat template does not know the field \"%s\" that is to be continued", field);
    if (json_is_array(text)) {
        json_t *parts = json_copy(text);
        json_object_set_new(message, field, parts);
        return mark_parts(parts, was, e);
    }
    if (!json_is_string(text))
        return err_set(e, "the \"%s\" of the last message must be a text to be continued", field);
    buf_add(was, json_string_value(text), json_string_length(text));
    json_t *marked = with_open_end(text), *before = json_incref(text);
    json_object_set(message, field, marked);
    for (int i = 0; i < N_REASONING && is_reasoning; i++)
        if (json_equal(json_object_get(message, reasoning[i]), before))
            json_object_set(message, reasoning[i], marked);
    json_decref(before);
    json_decref(marked);
    return 0;
}

/* Finds the bounds of s without the white space at its end and, if left, at its start, as Python's rstrip() and
 * strip(). */
static void bounds_of(const char *s, size_t n, bool left, size_t *from, size_t *to)
{
    *from = 0;
    *to = n;
    while (left && *from < *to) {
        const char *p = s + *from;
        if (!unicode_is_blank(utf8_next(&p)))
            break;
        *from = (size_t)(p - s);
    }
    while (*to > *from) {
        const char *last = utf8_back(s + *to), *p = last;
        if (!unicode_is_blank(utf8_next(&p)))
            break;
        *to = (size_t)(last - s);
    }
}

static const char *find_last(const char *s, size_t n, const char *what)
{
    const char *found = NULL, *end = s + n;
    for (const char *p = s; (p = memmem(p, (size_t)(end - p), what, strlen(what))); p++)
        found = p;
    return found;
}

/* Cuts the text off where the last message's own text ends. */
static int cut_open_end(buf *text, const buf *was, err *e)
{
    size_t from, to;
    bounds_of(was->data, was->len, true, &from, &to);
    const char *end = find_last(text->data, text->len, OPEN_END);
    if (!end || (to > from && !memmem(text->data, text->len, was->data + from, to - from)))
        return err_set(e, "the last message cannot be continued: the chat template does not write it as it is");
    size_t n = (size_t)(end - text->data);
    if (text->data[n + strlen(OPEN_END)] != ' ') /* the template trims: the text ends with its last word */
        bounds_of(text->data, n, false, &from, &n);
    text->len = n;
    text->data[n] = '\0';
    return 0;
}

/* Returns the special tokens as variables: bos_token, ... Their text is the template's own. Variables of the same names
 * that a client gives take precedence, and their text is not. */
static json_t *token_variables(const chat_template *c)
{
    json_t *all = json_object();
    for (int i = 0; i < N_TOKENS; i++)
        if (c->token[i])
            json_object_set_new(all, token_names[i], json_string(c->token[i]));
    return all;
}

static json_t *variables_of(const chat_input *in, json_t *messages)
{
    json_t *all = json_object();
    if (in->more)
        json_object_update(all, (json_t *)in->more);
    json_object_set(all, "messages", messages);
    json_object_set_new(all, "tools", in->tools ? json_incref((json_t *)in->tools) : json_null());
    json_object_set_new(all, "documents", in->documents ? json_incref((json_t *)in->documents) : json_null());
    json_object_set_new(all, "add_generation_prompt", json_boolean(in->add_generation_prompt));
    return all;
}

/* Templates take 100 to 1000 steps per message; a million steps take some 40 ms. */
static jinja_limits limits_for(const chat_input *in)
{
    const long for_each = 2000, most = 20000000;
    jinja_limits limits = jinja_default_limits;
    limits.steps += (long)json_array_size(in->messages) * for_each;
    if (limits.steps > most)
        limits.steps = most;
    return limits;
}

int chat_template_write(const chat_template *c, const chat_input *in, time_t now, buf *out, text_spans *own, err *e)
{
    const char *problem;
    const program *p = choose_program(c, is_given(in->tools), &problem);
    if (problem)
        return err_set(e, "%s", problem);
    if (check_input(in, e))
        return -1;
    buf text = {0}, was = {0};
    buf_add(&text, "", 0);
    buf_add(&was, "", 0);
    text_spans parts = {0};
    json_t *messages = copy_messages(in->messages), *variables = NULL, *tokens = token_variables(c);
    int rc = in->continues ? mark_end(p, messages, in->continues, &was, e) : 0;
    if (rc == 0) {
        const jinja_limits limits = limits_for(in);
        variables = variables_of(in, messages);
        rc = jinja_render(p->code, &(jinja_input){variables, tokens, now}, &limits, &text, &parts, e);
    }
    if (rc == 0 && in->continues)
        rc = cut_open_end(&text, &was, e);
    for (size_t i = 0; rc == 0 && own && i < parts.n && parts.at[i].from < text.len; i++) /* it may have been cut off */
        text_spans_add(own, out->len + parts.at[i].from,
                       out->len + (parts.at[i].to < text.len ? parts.at[i].to : text.len));
    if (rc == 0)
        buf_add(out, text.data, text.len);
    text_spans_free(&parts);
    json_decref(tokens);
    json_decref(variables);
    json_decref(messages);
    buf_free(&was);
    buf_free(&text);
    return rc;
}
