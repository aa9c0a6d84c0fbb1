/* completions.c - see completions.h */
#include "cli/completions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"

void completions_init(completions *c, const prompts *in, const tokenizer *t, bool json)
{
    *c = (completions){
        .in = in, .t = t, .out = XNEW_ARRAY(outcome, (size_t)in->n), .json = json, .width = 6, .n_live = -1};
    for (int i = 0; i < in->n; i++)
        if (in->at[i].adapter && (int)strlen(in->at[i].adapter) > c->width)
            c->width = (int)strlen(in->at[i].adapter);
    if (in->n != 1 || json)
        return;
    c->n_live = in->at[0].n_tokens;
    detokenizer_init(&c->live, t, true, in->at[0].token, (size_t)in->at[0].n_prompt);
}

void completions_deinit(completions *c)
{
    for (int i = 0; c->out && i < c->in->n; i++)
        free(c->out[i].drawn);
    free(c->out);
    if (c->n_live >= 0)
        detokenizer_deinit(&c->live);
}

/* Returns how many tokens prompt and output have, without the one that ended it. */
static int end_of_text(const completions *c, int i)
{
    const outcome *o = &c->out[i];
    return c->in->at[i].n_tokens - (o->done && !o->failed && o->why == FINISH_STOP);
}

/* Adds the output as text: what its tokens add to the prompt's text, without the one that ended it. */
static void output_text(const completions *c, int i, buf *text)
{
    const prompt *q = &c->in->at[i];
    int end = end_of_text(c, i);
    detokenizer d;
    detokenizer_init(&d, c->t, true, q->token, (size_t)q->n_prompt);
    for (int k = q->n_prompt; k < end; k++)
        detokenizer_add(&d, q->token[k], text);
    detokenizer_finish(&d, text);
    detokenizer_deinit(&d);
}

static json_t *id_array(const int *id, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_integer(id[i]));
    return a;
}

static json_t *logprob_array(const outcome *o, int n_top)
{
    json_t *a = json_array();
    for (size_t i = 0; i < o->n_drawn; i++) {
        const sample_result *r = &o->drawn[i];
        json_t *top = json_array();
        for (int k = 0; k < n_top; k++)
            json_array_append_new(
                top, json_pack("{s:i, s:f}", "token_id", r->top[k].token, "logprob", (double)r->top[k].logprob));
        json_array_append_new(
            a, json_pack("{s:i, s:f, s:o}", "token_id", r->token, "logprob", (double)r->logprob, "top", top));
    }
    return a;
}

static const char *reason(const outcome *o)
{
    return o->failed ? "error" : !o->done ? "cut off" : o->why == FINISH_STOP ? "stop" : "length";
}

static void print_json(const completions *c, int i)
{
    const prompt *q = &c->in->at[i];
    const outcome *o = &c->out[i];
    buf text = {0};
    output_text(c, i, &text);
    json_t *line = json_object();
    json_object_set_new(line, "adapter", q->adapter ? json_string(q->adapter) : json_null());
    json_object_set_new(line, "prompt_token_ids", id_array(q->token, q->n_prompt));
    json_object_set_new(line, "token_ids", id_array(q->token + q->n_prompt, q->n_tokens - q->n_prompt));
    json_object_set_new(line, "text", json_stringn(text.data ? text.data : "", text.len));
    json_object_set_new(line, "finish_reason", json_string(reason(o)));
    if (o->failed)
        json_object_set_new(line, "error", json_string(o->error.msg));
    if (q->sampling.n_logprobs >= 0)
        json_object_set_new(line, "logprobs", logprob_array(o, q->sampling.n_logprobs));
    json_dumpf(line, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    fputc('\n', stdout);
    json_decref(line);
    buf_free(&text);
}

/* Returns the terminal columns that UTF-8 text takes: two for a character beyond the basic plane (emoji, mostly). */
static int columns(const char *text, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        n += ((c & 0xc0) != 0x80) + (c >= 0xf0);
    }
    return n;
}

/* Returns 0 where standard output is no terminal: lines are then not wrapped. */
static int terminal_columns(void)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

/* Prints text in lines of at most `limit` columns, broken at blanks; 0 or less: no limit. The cursor is where the first
 * line begins; further ones begin behind a margin. */
static void print_wrapped(const char *text, size_t len, int margin, int limit)
{
    int used = 0;
    for (size_t i = 0, end; i < len; i = end) {
        for (end = i + 1; end < len && text[end] != ' ' && text[end] != '\n';)
            end++;
        int wide = columns(text + i, end - i);
        if (text[i] == '\n' || (limit > 0 && used > 0 && used + wide > limit)) {
            printf("\n%-*s | ", margin, "");
            used = 0;
            i += text[i] == '\n' || text[i] == ' ';
        }
        used += columns(text + i, end - i);
        fwrite(text + i, 1, end - i, stdout);
    }
}

/* Prints "name | text", with further lines of the text under the first. The blank between prompt and answer is left
 * out. */
static void print_plain(const completions *c, int i)
{
    const prompt *q = &c->in->at[i];
    int width = c->width;
    buf text = {0};
    output_text(c, i, &text);
    printf("%-*s | ", width, q->adapter ? q->adapter : "(base)");
    if (text.len > 0) {
        size_t skip = text.data[0] == ' ';
        print_wrapped(text.data + skip, text.len - skip, width, terminal_columns() - width - 3);
    }
    putchar('\n');
    if (c->out[i].failed)
        printf("%-*s | failed: %s\n", width, "", c->out[i].error.msg);
    buf_free(&text);
}

/* Writes what has come of the only one. The last token is held back: it may be an end token. */
static void write_live(completions *c, bool is_end)
{
    const prompt *q = &c->in->at[0];
    int end = c->out[0].done || is_end ? end_of_text(c, 0) : q->n_tokens - 1;
    buf text = {0};
    for (; c->n_live < end; c->n_live++)
        detokenizer_add(&c->live, q->token[c->n_live], &text);
    if (is_end || c->out[0].done)
        detokenizer_finish(&c->live, &text);
    if (text.len)
        fwrite(text.data, 1, text.len, stdout);
    buf_free(&text);
    if (!c->out[0].done && !is_end)
        return;
    putchar('\n');
    if (c->out[0].failed)
        printf("failed: %s\n", c->out[0].error.msg);
    c->n_written = 1;
}

static void write_next(completions *c)
{
    if (c->json)
        print_json(c, c->n_written);
    else
        print_plain(c, c->n_written);
    c->n_written++;
}

static bool is_done(const completions *c)
{
    return c->n_written < c->in->n && c->out[c->n_written].done;
}

bool completions_has_news(const completions *c)
{
    return is_done(c) || (c->n_live >= 0 && c->n_written == 0);
}

void completions_write(completions *c)
{
    if (c->n_live >= 0 && c->n_written == 0)
        write_live(c, false);
    while (is_done(c))
        write_next(c);
    fflush(stdout);
}

int completions_finish(completions *c)
{
    int n_failed = 0;
    if (c->n_live >= 0 && c->n_written == 0)
        write_live(c, true);
    while (c->n_written < c->in->n)
        write_next(c);
    fflush(stdout);
    for (int i = 0; i < c->in->n; i++)
        n_failed += c->out[i].failed;
    return n_failed;
}
