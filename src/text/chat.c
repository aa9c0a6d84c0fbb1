/* chat.c - see chat.h */
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define MAX_FILE (16u << 20)

typedef enum { FORM_NONE, FORM_UNKNOWN, FORM_CHATML, FORM_LLAMA2, FORM_LLAMA3 } form;

struct chat_template {
    form form;
    char *bos, *eos;            /* "": none, or not written */
    char *system;               /* ChatML: what stands for a missing system message, or NULL */
    bool trims;                 /* blanks around a content are left out */
    bool tells_date;            /* Llama 3.1: a preface with dates in the system message */
    bool asks_clock;            /* and it is today's */
};

static bool has(const char *program, const char *part)
{
    return strstr(program, part) != NULL;
}

/* Behind the end of a line, which in a string of the program is written out or as backslash and n; NULL: p is none. */
static const char *after_newline(const char *p)
{
    return p[0] == '\n' ? p + 1 : strncmp(p, "\\n", 2) == 0 ? p + 2 : NULL;
}

/* Whether an answer begins with the role's line and nothing else, and roles end with their line. */
static bool is_chatml(const char *program)
{
    static const char opening[] = "<|im_start|>assistant";
    if (has(program, "<|im_sep|>") || !has(program, "<|im_end|>"))
        return false;
    for (const char *p = program; (p = strstr(p, opening));) {
        p += strlen(opening);
        const char *end = after_newline(p);
        if (end && (*end == '\'' || *end == '"'))
            return true;
    }
    return false;
}

static form form_of(const char *program)
{
    if (!program)
        return FORM_NONE;
    if (is_chatml(program))
        return FORM_CHATML;
    if (has(program, "<|start_header_id|>") && has(program, "<|eot_id|>"))
        return FORM_LLAMA3;
    if (has(program, "[INST]") && has(program, "<<SYS>>"))
        return FORM_LLAMA2;
    return FORM_UNKNOWN;
}

/* The literal system message of a ChatML program: what stands between the markers without leaving the string. */
static char *default_system(const char *program)
{
    static const char begin[] = "<|im_start|>system";
    for (const char *p = program; (p = strstr(p, begin));) {
        p += strlen(begin);
        const char *text = after_newline(p);
        size_t n = text ? strcspn(text, "'\"{}\\<") : 0;
        if (n > 0 && strncmp(text + n, "<|im_end|>", strlen("<|im_end|>")) == 0)
            return xstrndup(text, n);
    }
    return NULL;
}

chat_template *chat_template_new(const char *program, const char *bos, const char *eos)
{
    chat_template *c = XNEW(chat_template);
    *c = (chat_template){.form = form_of(program), .bos = xstrdup(program && has(program, "bos_token") ? bos : ""), .eos = xstrdup(eos)};
    if (!program)
        return c;
    if (c->form == FORM_CHATML)
        c->system = default_system(program);
    c->trims = has(program, "| trim") || has(program, "|trim") || has(program, ".strip()");
    c->tells_date = has(program, "Cutting Knowledge Date: December 2023");
    c->asks_clock = has(program, "strftime_now");
    return c;
}

void chat_template_free(chat_template *c)
{
    if (!c)
        return;
    free(c->bos);
    free(c->eos);
    free(c->system);
    free(c);
}

/* A special token in tokenizer_config.json: a string, or an object with the string as "content". */
static const char *token_of(const json_t *config, const char *key)
{
    const json_t *token = json_member(config, key);
    if (json_is_object(token))
        token = json_member(token, "content");
    return json_is_string(token) ? json_string_value(token) : "";
}

/* "chat_template" is a program, or a list of named ones, of which the one named "default" counts. */
static const char *program_of(const json_t *config)
{
    const json_t *t = json_member(config, "chat_template");
    if (json_is_string(t))
        return json_string_value(t);
    for (size_t i = 0; i < json_array_size(t); i++) {
        const json_t *named = json_array_get(t, i), *name = json_member(named, "name");
        if (json_is_string(name) && strcmp(json_string_value(name), "default") == 0)
            return json_string_value(json_member(named, "template"));
    }
    return NULL;
}

static int read_program(const char *dir, buf *program, err *e)
{
    char *path = path_join(dir, "chat_template.jinja");
    int rc = file_exists(path) ? file_read(program, path, MAX_FILE, e) : 0;
    free(path);
    return rc;
}

static int read_config(const char *dir, json_t **config, err *e)
{
    char *path = path_join(dir, "tokenizer_config.json");
    *config = file_exists(path) ? json_read_file(path, MAX_FILE, e) : json_object();
    free(path);
    return *config ? 0 : -1;
}

chat_template *chat_template_load(const char *dir, err *e)
{
    buf program = {0};
    json_t *config = NULL;
    chat_template *c = NULL;
    if (read_program(dir, &program, e) == 0 && read_config(dir, &config, e) == 0)
        c = chat_template_new(program.data ? program.data : program_of(config), token_of(config, "bos_token"),
                              token_of(config, "eos_token"));
    json_decref(config);
    buf_free(&program);
    return c;
}

const char *chat_template_form(const chat_template *c)
{
    switch (c->form) {
    case FORM_CHATML: return "ChatML";
    case FORM_LLAMA2: return "Llama 2";
    case FORM_LLAMA3: return "Llama 3";
    default: return NULL;
    }
}

/* Python's str.strip(): without white space at both ends. Content that is not UTF-8 does not get here. */
static void add_trimmed(buf *out, const char *text, size_t n)
{
    const char *end = text + n;
    while (text < end) {
        const char *next = text;
        if (!unicode_is_space(utf8_next(&next)))
            break;
        text = next;
    }
    while (end > text) {
        const char *last = utf8_back(end), *p = last;
        if (!unicode_is_space(utf8_next(&p)))
            break;
        end = last;
    }
    buf_add(out, text, (size_t)(end - text));
}

static void add_content(const chat_template *c, buf *out, const chat_message *m)
{
    if (c->trims)
        add_trimmed(out, m->content, m->n);
    else
        buf_add(out, m->content, m->n);
}

static bool is_role(const chat_message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

static void write_chatml(const chat_template *c, const chat_message *m, int n, buf *out)
{
    buf_add_str(out, c->bos);
    if (c->system && !is_role(&m[0], "system"))
        buf_printf(out, "<|im_start|>system\n%s<|im_end|>\n", c->system);
    for (int i = 0; i < n; i++) {
        buf_printf(out, "<|im_start|>%s\n", m[i].role);
        add_content(c, out, &m[i]);
        buf_add_str(out, "<|im_end|>\n");
    }
    buf_add_str(out, "<|im_start|>assistant\n");
}

static void begin_llama3(buf *out, const char *role)
{
    buf_printf(out, "<|start_header_id|>%s<|end_header_id|>\n\n", role);
}

static void add_preface(const chat_template *c, time_t now, buf *out)
{
    char today[32] = "26 Jul 2024";
    struct tm tm;
    if (c->asks_clock && localtime_r(&now, &tm))
        strftime(today, sizeof today, "%d %b %Y", &tm);
    buf_printf(out, "Cutting Knowledge Date: December 2023\nToday Date: %s\n\n", today);
}

static void write_llama3(const chat_template *c, const chat_message *m, int n, time_t now, buf *out)
{
    buf_add_str(out, c->bos);
    bool has_system = is_role(&m[0], "system");
    if (c->tells_date && !has_system) {
        begin_llama3(out, "system");
        add_preface(c, now, out);
        buf_add_str(out, "<|eot_id|>");
    }
    for (int i = 0; i < n; i++) {
        begin_llama3(out, m[i].role);
        if (i == 0 && has_system && c->tells_date)
            add_preface(c, now, out);
        add_content(c, out, &m[i]);
        buf_add_str(out, "<|eot_id|>");
    }
    begin_llama3(out, "assistant");
}

static void add_user_llama2(const chat_template *c, const chat_message *system, const chat_message *user, buf *out)
{
    buf content = {0};
    if (system) {
        buf_add_str(&content, "<<SYS>>\n");
        buf_add(&content, system->content, system->n);
        buf_add_str(&content, "\n<</SYS>>\n\n");
    }
    buf_add(&content, user->content, user->n);
    buf_printf(out, "%s[INST] ", c->bos);
    add_content(c, out, &(chat_message){.content = content.data, .n = content.len});
    buf_add_str(out, " [/INST]");
    buf_free(&content);
}

static int write_llama2(const chat_template *c, const chat_message *m, int n, buf *out, err *e)
{
    const chat_message *system = is_role(&m[0], "system") ? m : NULL;
    for (int i = system ? 1 : 0, turn = 0; i < n; i++, turn++) {
        if (!is_role(&m[i], turn % 2 ? "assistant" : "user"))
            return err_set(e, "message %d has role \"%s\": this model's chat template (Llama 2) wants user and assistant in "
                           "turn, after at most one system message", i, m[i].role);
        if (turn % 2 == 0) {
            add_user_llama2(c, turn == 0 ? system : NULL, &m[i], out);
        } else {
            buf_add_char(out, ' ');
            add_content(c, out, &m[i]);
            buf_printf(out, " %s", c->eos);
        }
    }
    if (is_role(&m[n - 1], "user"))
        return 0;
    return err_set(e, "the last message must be the user's: this model's chat template (Llama 2) has no other opening for "
                   "an answer");
}

int chat_template_write(const chat_template *c, const chat_message *m, int n, time_t now, buf *out, err *e)
{
    size_t before = out->len;
    if (n < 1)
        return err_set(e, "there are no messages");
    switch (c->form) {
    case FORM_NONE:
        return err_set(e, "this model has no chat template: use /v1/completions, or put a chat_template.jinja into its "
                       "directory");
    case FORM_UNKNOWN:
        return err_set(e, "this model's chat template is of no form known here (ChatML, Llama 2, Llama 3): use "
                       "/v1/completions");
    case FORM_CHATML:
        write_chatml(c, m, n, out);
        return 0;
    case FORM_LLAMA3:
        write_llama3(c, m, n, now, out);
        return 0;
    case FORM_LLAMA2:
        break;
    }
    if (write_llama2(c, m, n, out, e)) {
        out->len = before;
        return -1;
    }
    return 0;
}
