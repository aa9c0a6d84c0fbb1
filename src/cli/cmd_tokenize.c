/* cmd_tokenize.c - punica tokenize: text to token ids and back, a JSON value a line */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

typedef struct {
    const char *model;
    bool no_special, decode, keep_special;
} settings;

/* Parses a line as JSON, with bytes that are not UTF-8 replaced. NULL with e set when it is not JSON. */
static json_t *parse_line(const char *line, size_t n, err *e)
{
    buf repaired = {0};
    utf8_tail tail = {0};
    utf8_repair(&tail, line, n, &repaired);
    utf8_repair_end(&tail, &repaired);
    json_t *value = json_read_text(repaired.data ? repaired.data : "", repaired.len, e);
    buf_free(&repaired);
    return value;
}

static int encode_line(const tokenizer *t, const settings *s, const json_t *value, buf *out, err *e)
{
    if (!json_is_string(value))
        return err_set(e, "expected a JSON string");
    ids tokens = {0};
    int rc = tokenizer_encode(t, json_string_value(value), json_string_length(value), !s->no_special, &tokens, e);
    buf_add_char(out, '[');
    for (size_t i = 0; i < tokens.n; i++)
        buf_printf(out, "%s%d", i ? ", " : "", tokens.items[i]);
    buf_add_char(out, ']');
    ids_free(&tokens);
    return rc;
}

static int read_ids(const json_t *value, ids *tokens, err *e)
{
    if (!json_is_array(value))
        return err_set(e, "expected a JSON array of token ids");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id))
            return err_set(e, "element %zu is not an integer", i);
        json_int_t n = json_integer_value(id);
        ids_add(tokens, n >= 0 && n <= 0x7fffffff ? (int)n : -1);
    }
    return 0;
}

static int decode_line(const tokenizer *t, const settings *s, const json_t *value, buf *out, err *e)
{
    ids tokens = {0};
    buf text = {0};
    int rc = read_ids(value, &tokens, e);
    if (rc == 0) {
        tokenizer_decode(t, tokens.items, tokens.n, !s->keep_special, &text);
        json_t *string = json_stringn(text.data ? text.data : "", text.len);
        char *dump = json_dumps(string, JSON_ENCODE_ANY);
        buf_add_str(out, dump);
        free(dump);
        json_decref(string);
    }
    buf_free(&text);
    ids_free(&tokens);
    return rc;
}

static int run_line(const tokenizer *t, const settings *s, const char *line, size_t n, err *e)
{
    buf out = {0};
    json_t *value = parse_line(line, n, e);
    int rc = !value ? -1 : s->decode ? decode_line(t, s, value, &out, e) : encode_line(t, s, value, &out, e);
    json_decref(value);
    if (rc == 0) {
        buf_add_char(&out, '\n');
        fwrite(out.data, 1, out.len, stdout);
    }
    buf_free(&out);
    return rc;
}

static int run_lines(const tokenizer *t, const settings *s, err *e)
{
    char *line = NULL;
    size_t cap = 0, n_line = 0;
    ssize_t n;
    int rc = 0;
    errno = 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
        n_line++;
        rc = run_line(t, s, line, (size_t)n, e);
        if (rc)
            err_wrap(e, "line %zu", n_line);
    }
    if (rc == 0 && ferror(stdin))
        rc = err_set(e, "cannot read standard input: %s", strerror(errno));
    free(line);
    return rc;
}

int cmd_tokenize(int argc, char **argv)
{
    settings s = {0};
    err e;
    const option options[] = {
        {"model", OPT_STRING, &s.model, "DIR", "directory with tokenizer.json"},
        {"no-special", OPT_FLAG, &s.no_special, NULL, "do not add the special tokens around the text"},
        {"decode", OPT_FLAG, &s.decode, NULL, "ids to text"},
        {"keep-special", OPT_FLAG, &s.keep_special, NULL, "with --decode: write special tokens too"},
        {NULL},
    };
    const command_line line = {
        .usage = "punica tokenize --model DIR [--no-special] [--decode [--keep-special]]",
        .about = "Reads one JSON string a line and writes one JSON array of token ids a line; with --decode\n"
                 "the other way round.",
        .options = options,
    };
    int rc = options_parse(&line, argc, argv, &e);
    if (rc)
        return rc > 0 ? 0 : command_fail(e.msg);
    if (!s.model)
        return command_fail("--model DIR is needed; see punica tokenize --help");
    if (s.keep_special && !s.decode)
        return command_fail("--keep-special goes with --decode");
    if (s.no_special && s.decode)
        return command_fail("--no-special does not go with --decode");
    tokenizer *t = tokenizer_load(s.model, &e);
    if (!t)
        return command_fail(e.msg);
    rc = run_lines(t, &s, &e);
    tokenizer_free(t);
    return rc ? command_fail(e.msg) : 0;
}
