/* cmd_template.c - punica template: conversations to prompts, a JSON value a line */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "frontend/json_text.h"
#include "text/chat.h"

typedef struct {
    const char *model, *file;
    double now;
} settings;

/* Reads "continue_final_message": true means the field "content", a string names another. */
static int read_continues(const json_t *line, const char **field, err *e)
{
    const json_t *v = json_member(line, "continue_final_message");
    if (v && !json_is_boolean(v) && !json_is_string(v))
        return err_set(e, "\"continue_final_message\" must be true, false or a field's name");
    *field = json_is_string(v) ? json_string_value(v) : json_is_true(v) ? "content" : NULL;
    return 0;
}

/* Returns the template's variables: all members of the line that are not arguments of their own. The caller owns it. */
static json_t *other_variables(const json_t *line)
{
    static const char *const own[] = {
        "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"};
    json_t *more = json_copy((json_t *)line);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        json_object_del(more, own[i]);
    const json_t *kwargs = json_object_get(line, "chat_template_kwargs");
    if (json_is_object(kwargs))
        json_object_update(more, (json_t *)kwargs);
    return more;
}

static int write_prompt(const chat_template *c, time_t now, const json_t *line, buf *out, err *e)
{
    chat_input in = {0};
    if (!json_is_object(line))
        return err_set(e, "expected an object: {\"messages\": [...], ...}");
    if (json_get_bool(line, "add_generation_prompt", &in.add_generation_prompt, e) ||
        read_continues(line, &in.continues, e))
        return -1;
    json_t *more = other_variables(line);
    in.messages = json_object_get(line, "messages");
    in.tools = json_object_get(line, "tools");
    in.documents = json_object_get(line, "documents");
    in.more = more;
    int rc = chat_template_write(c, &in, now, out, NULL, e);
    json_decref(more);
    return rc;
}

/* Parses a line. Numbers stay exact, since a template may write them. */
static json_t *parse_line(const char *text, size_t n, err *e)
{
    json_error_t where;
    json_t *line = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);
    if (!line)
        err_set(e, "not valid JSON: %s (column %d)", where.text, where.column);
    return line;
}

/* Writes the prompt as a JSON string, or {"error": ...}. */
static void answer_line(const chat_template *c, const settings *s, const char *text, size_t n)
{
    buf prompt = {0};
    err e;
    buf_add(&prompt, "", 0);
    json_t *line = parse_line(text, n, &e);
    int rc = line ? write_prompt(c, s->now >= 0 ? (time_t)s->now : (time_t)clock_wall(), line, &prompt, &e) : -1;
    json_t *answer = rc == 0 ? json_stringn(prompt.data, prompt.len) : json_pack("{s:o}", "error", json_text(e.msg));
    char *dump = json_dumps(answer, JSON_ENCODE_ANY | JSON_ENSURE_ASCII); /* no U+2028, which ends a line for some */
    puts(dump);
    free(dump);
    json_decref(answer);
    json_decref(line);
    buf_free(&prompt);
}

static int run_lines(const chat_template *c, const settings *s, err *e)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    errno = 0;
    while ((n = getline(&line, &cap, stdin)) >= 0)
        answer_line(c, s, line, (size_t)n);
    free(line);
    return ferror(stdin) ? err_set(e, "cannot read standard input: %s", strerror(errno)) : 0;
}

int cmd_template(int argc, char **argv)
{
    settings s = {.now = -1};
    err e;
    const option options[] = {
        {"model", OPT_STRING, &s.model, "DIR", "the model's directory: chat_template.jinja, tokenizer_config.json"},
        {"chat-template", OPT_STRING, &s.file, "FILE", "a Jinja program to use instead of the model's own"},
        {"now", OPT_DOUBLE, &s.now, "SECONDS", "what strftime_now tells, in seconds since 1970 (the clock)", 0, 1e12},
        {NULL},
    };
    const command_line line = {
        .usage = "punica template --model DIR [--chat-template FILE] [--now SECONDS]",
        .about = "Writes conversations as the model's chat template does: what the model gets to see.\n\n"
                 "Reads one JSON object a line, with the arguments of Transformers' apply_chat_template:\n"
                 "  {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"add_generation_prompt\": true}\n"
                 "Also known are \"tools\", \"documents\" and \"continue_final_message\"; every other member is a "
                 "variable of the\n"
                 "template (\"enable_thinking\": false), as are those of \"chat_template_kwargs\".\n\n"
                 "Writes one line for each: the prompt as a JSON string, or {\"error\": \"...\"} where the template "
                 "refuses.",
        .options = options,
    };
    int rc = options_parse(&line, argc, argv, &e);
    if (rc)
        return rc > 0 ? 0 : command_fail(e.msg);
    if (!s.model)
        return command_fail("--model DIR is needed; see punica template --help");
    chat_template *c = chat_template_load(s.model, s.file, &e);
    if (!c)
        return command_fail(e.msg);
    rc = run_lines(c, &s, &e);
    chat_template_free(c);
    return rc ? command_fail(e.msg) : 0;
}
