/* cmd_generate.c - `punica generate`: prompts in, completions out, one continuous batch, no server
 *
 * Reads and checks everything first; then adds all prompts to an engine and steps it until none is
 * left, adding evicted ones again with the tokens they have; then prints in input order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "backend/devices.h"
#include "backend/group.h"
#include "base/mem.h"
#include "cli/adapter_set.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/prompts.h"
#include "engine/engine.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

typedef struct {
    const char *model_dir, *prompt, *prompts_file;
    option_list adapters;
    bool json;
    sampling how;
    const char *device, *weights, *kv;
    int tp, max_batch, threads, kv_pages;
} arguments;

/* How a prompt ended, and the logprobs of its output where asked for. */
typedef struct {
    bool failed;
    err error;
    finish_reason why;
    sample_result *drawn;       /* [output tokens] when logprobs are asked for */
    size_t n_drawn, drawn_cap;
} outcome;

typedef struct {
    backend *be;
    model *m;
    tokenizer *t;
    kv_form kv;
    adapter_set adapters;
    prompts in;
    outcome *out;               /* [in.n] */
    double seconds;             /* from the first step to the last */
} job;

static int parse(arguments *a, int argc, char **argv, err *e)
{
    *a = (arguments){.how = sampling_default(), .device = "cpu", .weights = "stored", .kv = "auto", .tp = 1, .max_batch = 32};
    const option options[] = {
        {"model", OPT_STRING, &a->model_dir, "DIR", "the base model: a Hugging Face model directory"},
        {"adapter", OPT_LIST, &a->adapters, "NAME=DIR", "a PEFT LoRA adapter; repeat for more"},
        {"prompt", OPT_STRING, &a->prompt, "TEXT", "complete this with the base and every adapter"},
        {"prompts", OPT_STRING, &a->prompts_file, "FILE", "complete these: JSON lines, - for standard input"},
        {"json", OPT_FLAG, &a->json, NULL, "write one JSON object a line, in input order"},
        {"Output and sampling, where a line does not say otherwise"},
        {"max-tokens", OPT_INT, &a->how.max_tokens, "N", "tokens to make at most (64)", 1, 1e9},
        {"ignore-eos", OPT_FLAG, &a->how.ignore_eos, NULL, "go on past end tokens"},
        {"temperature", OPT_FLOAT, &a->how.temperature, "T", "0: always the likeliest token (the default)", 0, 100},
        {"top-k", OPT_INT, &a->how.top_k, "K", "draw among the K likeliest (0: off)", 0, 1e9},
        {"top-p", OPT_FLOAT, &a->how.top_p, "P", "draw among the likeliest that sum to P (1: off)", 1e-6, 1},
        {"min-p", OPT_FLOAT, &a->how.min_p, "P", "drop tokens under P times the likeliest (0: off)", 0, 1},
        {"seed", OPT_U64, &a->how.seed, "N", "of the randomness (0)"},
        {"Engine"},
        {"device", OPT_STRING, &a->device, "NAME", DEVICE_HELP},
        {"tp", OPT_INT, &a->tp, "N", TP_HELP, 1, MAX_RANKS},
        {"weights", OPT_STRING, &a->weights, "FORM", WEIGHTS_HELP},
        {"kv", OPT_STRING, &a->kv, "FORM", KV_HELP},
        {"max-batch", OPT_INT, &a->max_batch, "N", "requests running together (32)", 1, 4096},
        {"threads", OPT_INT, &a->threads, "N", "CPU threads (all cores)", 1, 1024},
        {"kv-pages", OPT_INT, &a->kv_pages, "N", "KvCache pages of 16 tokens (enough for the batch)", 1, 1e8},
        {NULL}};
    const command_line c = {
        .usage = "punica generate --model DIR [--adapter NAME=DIR]... (--prompt TEXT | --prompts FILE)",
        .about = "Complete prompts, each with the base model or any of the adapters, all in one batch.\n\n"
                 "A line of a prompts file is an object: {\"adapter\": NAME or null, \"prompt\": TEXT or [ids]} and,\n"
                 "optionally, max_tokens, min_tokens, ignore_eos, temperature, top_k, top_p, min_p, seed,\n"
                 "repetition_penalty, presence_penalty, frequency_penalty, stop_token_ids, logprobs.",
        .options = options};
    int status = options_parse(&c, argc, argv, e);
    if (status)
        return status;
    if (!a->model_dir)
        return err_set(e, "--model DIR is needed; see punica generate --help");
    if (!a->prompt == !a->prompts_file)
        return err_set(e, "give either --prompt TEXT or --prompts FILE");
    return 0;
}

static int read_prompts(job *j, const arguments *a, err *e)
{
    if (a->prompt) {
        if (prompts_add_text(&j->in, NULL, a->prompt, j->t, &a->how, e))
            return -1;
        for (int i = 0; i < j->adapters.n; i++)
            if (prompts_add_text(&j->in, j->adapters.name[i], a->prompt, j->t, &a->how, e))
                return -1;
        return 0;
    }
    if (strcmp(a->prompts_file, "-") == 0)
        return prompts_read(&j->in, stdin, "standard input", j->t, &a->how, e);
    FILE *f = fopen(a->prompts_file, "r");
    if (!f)
        return err_set(e, "cannot open %s: %s", a->prompts_file, strerror(errno));
    int status = prompts_read(&j->in, f, a->prompts_file, j->t, &a->how, e);
    fclose(f);
    return status;
}

/* Every prompt names an adapter we have. */
static int check_adapters(const job *j, err *e)
{
    for (int i = 0; i < j->in.n; i++) {
        const char *name = j->in.at[i].adapter;
        if (name && !adapter_set_has(&j->adapters, name))
            return err_set(e, "prompts line %d wants adapter \"%s\", which is not given (--adapter %s=DIR)", j->in.at[i].line, name, name);
    }
    return 0;
}

static int job_open(job *j, const arguments *a, err *e)
{
    dtype type;
    weights_form form;
    if (weights_form_find(a->weights, &form, e) || kv_form_find(a->kv, &j->kv, e) || model_weights_type(a->model_dir, &type, e) ||
        !(j->be = backend_open(a->device, a->tp, type, a->threads, e)))
        return -1;
    if (!(j->m = model_load(j->be, a->model_dir, form, e)) || !(j->t = tokenizer_load(a->model_dir, e)))
        return -1;
    if (adapter_set_open(&j->adapters, &a->adapters, &j->m->config, j->be, e) || read_prompts(j, a, e))
        return -1;
    j->out = XNEW_ARRAY(outcome, (size_t)j->in.n);
    return check_adapters(j, e);
}

static void job_close(job *j)
{
    for (int i = 0; j->out && i < j->in.n; i++)
        free(j->out[i].drawn);
    free(j->out);
    prompts_deinit(&j->in);
    adapter_set_close(&j->adapters);
    tokenizer_free(j->t);
    model_free(j->m);
    backend_close(j->be);
}

static int add_prompt(engine *g, const job *j, int i, err *e)
{
    const prompt *q = &j->in.at[i];
    engine_request r = {.id = (uint64_t)i, .arrival = (uint64_t)i, .adapter = q->adapter, .token = q->token,
                        .n_tokens = q->n_tokens, .n_prompt = q->n_prompt, .how = q->how};
    return engine_add(g, &r, e);
}

static void show_progress(const job *j, int n_done, uint64_t tokens, double seconds)
{
    enum { WIDTH = 30 };
    int full = j->in.n ? n_done * WIDTH / j->in.n : WIDTH;
    fprintf(stderr, "\r[%.*s%*s] %d/%d prompts, %llu tokens, %.1f tokens/s ", full, "##############################",
            WIDTH - full, "", n_done, j->in.n, (unsigned long long)tokens, seconds > 0 ? (double)tokens / seconds : 0);
    fflush(stderr);
}

/* What an event means for its prompt. True when the prompt is done. */
static bool take_event(engine *g, job *j, const event *ev)
{
    prompt *q = &j->in.at[ev->id];
    outcome *o = &j->out[ev->id];
    switch (ev->kind) {
    case EVENT_TOKEN:
        prompt_append(q, ev->drawn.token);
        if (q->how.n_logprobs >= 0) {
            o->drawn = xgrow(o->drawn, &o->drawn_cap, o->n_drawn + 1, sizeof *o->drawn);
            o->drawn[o->n_drawn++] = ev->drawn;
        }
        return false;
    case EVENT_EVICTED:
        o->failed = add_prompt(g, j, (int)ev->id, &o->error) != 0;
        return o->failed;
    case EVENT_FAILED:
        o->failed = true;
        o->error = ev->error;
        return true;
    case EVENT_FINISHED:
        o->why = ev->why;
        return true;
    }
    return false;
}

/* Steps until all is done. The last line of progress stays where nothing else tells it. */
static int run(engine *g, job *j, bool keep_progress, err *e)
{
    bool progress = isatty(STDERR_FILENO);
    double start = clock_now(), shown = 0;
    int n_done = 0;
    while (!engine_is_idle(g)) {
        const event *events;
        int n;
        if (engine_step(g, &events, &n, e))
            return -1;
        for (int i = 0; i < n; i++)
            n_done += take_event(g, j, &events[i]);
        double now = clock_now();
        if (progress && (now - shown > 0.1 || engine_is_idle(g))) {
            show_progress(j, n_done, engine_get_stats(g).tokens, now - start);
            shown = now;
        }
    }
    if (progress)
        fputs(keep_progress ? "\n" : "\r\033[K", stderr);
    j->seconds = clock_now() - start;
    return 0;
}

/* The output as text: what the tokens add to the prompt's text, without the token that ended it. */
static void output_text(const job *j, int i, buf *text)
{
    const prompt *q = &j->in.at[i];
    int end = q->n_tokens;
    if (!j->out[i].failed && j->out[i].why == FINISH_STOP)
        end--;
    detokenizer d;
    detokenizer_init(&d, j->t, true, q->token, (size_t)q->n_prompt);
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
            json_array_append_new(top, json_pack("{s:i, s:f}", "token_id", r->top[k].token, "logprob", (double)r->top[k].logprob));
        json_array_append_new(a, json_pack("{s:i, s:f, s:o}", "token_id", r->token, "logprob", (double)r->logprob, "top", top));
    }
    return a;
}

static void print_json(const job *j, int i)
{
    const prompt *q = &j->in.at[i];
    const outcome *o = &j->out[i];
    buf text = {0};
    output_text(j, i, &text);
    json_t *line = json_object();
    json_object_set_new(line, "adapter", q->adapter ? json_string(q->adapter) : json_null());
    json_object_set_new(line, "prompt_token_ids", id_array(q->token, q->n_prompt));
    json_object_set_new(line, "token_ids", id_array(q->token + q->n_prompt, q->n_tokens - q->n_prompt));
    json_object_set_new(line, "text", json_stringn(text.data ? text.data : "", text.len));
    json_object_set_new(line, "finish_reason", json_string(o->failed ? "error" : o->why == FINISH_STOP ? "stop" : "length"));
    if (o->failed)
        json_object_set_new(line, "error", json_string(o->error.msg));
    if (q->how.n_logprobs >= 0)
        json_object_set_new(line, "logprobs", logprob_array(o, q->how.n_logprobs));
    json_dumpf(line, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    fputc('\n', stdout);
    json_decref(line);
    buf_free(&text);
}

/* Columns of a terminal that UTF-8 text takes: two for a character beyond the basic plane (emoji, mostly). */
static int columns(const char *text, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        n += ((c & 0xc0) != 0x80) + (c >= 0xf0);
    }
    return n;
}

/* 0 where standard output is no terminal: lines are then as long as they are. */
static int terminal_columns(void)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

/* Text in lines of at most `limit` columns, broken at blanks; 0: no limit. The cursor is where the first
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

/* "name | text", further lines of the text under the first. The blank that parts an answer from its
 * prompt is left out. */
static void print_plain(const job *j, int i, int width)
{
    const prompt *q = &j->in.at[i];
    buf text = {0};
    output_text(j, i, &text);
    printf("%-*s | ", width, q->adapter ? q->adapter : "(base)");
    if (text.len > 0) {
        size_t skip = text.data[0] == ' ';
        print_wrapped(text.data + skip, text.len - skip, width, terminal_columns() - width - 3);
    }
    putchar('\n');
    if (j->out[i].failed)
        printf("%-*s | failed: %s\n", width, "", j->out[i].error.msg);
    buf_free(&text);
}

static void print_facts(const job *j, const engine_stats *s)
{
    printf("\n%d request%s, %d adapter%s, one base model: %llu tokens in %llu steps, %.2f s, %.0f tokens/s\n",
           j->in.n, j->in.n == 1 ? "" : "s", j->adapters.n, j->adapters.n == 1 ? "" : "s",
           (unsigned long long)s->tokens, (unsigned long long)s->steps, j->seconds,
           j->seconds > 0 ? (double)s->tokens / j->seconds : 0);
}

static int print_all(const job *j, const engine_stats *s, bool json)
{
    int width = 6, failed = 0;
    for (int i = 0; i < j->in.n; i++)
        if (j->in.at[i].adapter && (int)strlen(j->in.at[i].adapter) > width)
            width = (int)strlen(j->in.at[i].adapter);
    for (int i = 0; i < j->in.n; i++) {
        if (json)
            print_json(j, i);
        else
            print_plain(j, i, width);
        failed += j->out[i].failed;
    }
    if (!json)
        print_facts(j, s);
    return failed ? 1 : 0;
}

int cmd_generate(int argc, char **argv)
{
    arguments a;
    job j = {0};
    engine *g = NULL;
    err e;
    int code = 2, parsed = parse(&a, argc, argv, &e);
    if (parsed > 0)
        code = 0;
    if (parsed || job_open(&j, &a, &e))
        goto out;

    engine_options o = engine_options_default();
    o.max_batch = a.max_batch;
    o.n_pages = a.kv_pages;
    o.kv = j.kv;
    o.n_adapter_slots = a.max_batch > 32 ? 2 * a.max_batch : 64;
    o.adapters = adapter_set_source(&j.adapters);
    if (!(g = engine_new(j.m, &o, &e)))
        goto out;
    for (int i = 0; i < j.in.n; i++)
        if (add_prompt(g, &j, i, &e)) {
            if (j.in.at[i].line)
                err_wrap(&e, "prompts line %d", j.in.at[i].line);
            goto out;
        }
    if (run(g, &j, a.json, &e) == 0) {
        engine_stats s = engine_get_stats(g);
        code = print_all(&j, &s, a.json);
    }
out:
    if (code == 2)
        command_fail(e.msg);
    engine_free(g);
    job_close(&j);
    free(a.adapters.items);
    return code;
}
