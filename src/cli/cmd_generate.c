/* cmd_generate.c - `punica generate`: prompts in, completions out, one continuous batch, no server
 *
 * Reads and checks everything first; then adds all prompts to an engine and steps it until none is
 * left. Evicted ones are added again with the tokens they have; what is done is written. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "backend/devices.h"
#include "base/mem.h"
#include "base/sampling_limits.h"
#include "cli/commands.h"
#include "cli/completions.h"
#include "cli/engine_args.h"
#include "cli/local_engine.h"
#include "cli/prompts.h"

#define NOTHING "there is nothing to complete: give --prompt TEXT or --prompts FILE, or the text on standard input"

typedef struct {
    local_engine_args engine;
    const char *prompt, *prompts_file;
    bool json;
    sampling_params sampling;
} generate_args;

typedef struct {
    local_engine l;
    prompts in;
    completions out;
    double seconds; /* from the first step to the last */
} batch_job;

static int parse(generate_args *a, int argc, char **argv, err *e)
{
    *a = (generate_args){.sampling = sampling_default(), .engine = local_engine_args_default()};
    local_engine_args *l = &a->engine;
    const option options[] = {
        MODEL_OPTION(l),
        ADAPTER_OPTION(&l->adapters),
        {"prompt", OPT_STRING, &a->prompt, "TEXT", "complete this with the base and every adapter (standard input)"},
        {"prompts", OPT_STRING, &a->prompts_file, "FILE", "complete these: JSON lines, - for standard input"},
        {"json", OPT_FLAG, &a->json, NULL, "write one JSON object a line, in input order"},
        {"Output and sampling, where a line does not say otherwise"},
        {"max-tokens", OPT_INT, &a->sampling.max_tokens, "N", "tokens to make at most (%)", 1, 1e9},
        {"ignore-eos", OPT_FLAG, &a->sampling.ignore_eos, NULL, "go on past end tokens"},
        {"temperature", OPT_FLOAT, &a->sampling.temperature, "T", "0: always the likeliest token (%)", 0,
         MAX_TEMPERATURE},
        {"top-k", OPT_INT, &a->sampling.top_k, "K", "draw among the K likeliest; 0: off (%)", 0, 1e9},
        {"top-p", OPT_FLOAT, &a->sampling.top_p, "P", "draw among the likeliest that sum to P; 1: off (%)", MIN_TOP_P,
         1},
        {"min-p", OPT_FLOAT, &a->sampling.min_p, "P", "drop tokens under P times the likeliest; 0: off (%)", 0, 1},
        {"seed", OPT_U64, &a->sampling.seed, "N", "of the randomness (%)"},
        {"Engine"},
        DEVICE_OPTION(l),
        TP_OPTION(l),
        WEIGHTS_OPTION(l),
        KV_OPTION(l),
        MAX_BATCH_OPTION(l),
        ITL_TARGET_OPTION(l),
        THREADS_OPTION(l),
        MEMORY_SHARE_OPTION(l),
        NO_PREFIX_CACHE_OPTION(l),
        KV_PAGES_OPTION(l),
        {NULL}};
    const command_line c = {
        .usage = "punica generate --model DIR [--adapter NAME=DIR]... [--prompt TEXT | --prompts FILE]",
        .about =
            "Complete prompts, each with the base model or any of the adapters, all in one batch. What is done is\n"
            "written at once, in the order of the prompts; Ctrl-C ends it with what there is.\n\n"
            "A line of a prompts file is an object: {\"adapter\": NAME or null, \"prompt\": TEXT or [ids]} and,\n"
            "optionally, max_tokens, min_tokens, ignore_eos, temperature, top_k, top_p, min_p, seed,\n"
            "repetition_penalty, presence_penalty, frequency_penalty, stop_token_ids, logprobs.",
        .options = options};
    int status = options_parse(&c, argc, argv, e);
    if (status)
        return status;
    if (!l->model_dir)
        return err_set(e, "--model DIR is needed; see punica generate --help");
    if (a->prompt && a->prompts_file)
        return err_set(e, "give either --prompt TEXT or --prompts FILE");
    if (!a->prompt && !a->prompts_file && isatty(STDIN_FILENO))
        return err_set(e, NOTHING);
    return 0;
}

/* Adds the text as a prompt of the base and of every adapter. */
static int add_text(batch_job *j, const generate_args *a, const char *text, err *e)
{
    if (prompts_add_text(&j->in, NULL, text, j->l.t, &a->sampling, e))
        return -1;
    for (int i = 0; i < j->l.adapters.n; i++)
        if (prompts_add_text(&j->in, j->l.adapters.name[i], text, j->l.t, &a->sampling, e))
            return -1;
    return 0;
}

/* Adds standard input as one text, without a newline at its end. */
static int add_input(batch_job *j, const generate_args *a, err *e)
{
    buf text = {0};
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, stdin)) > 0;)
        buf_add(&text, part, n);
    buf_add_char(&text, '\0');
    size_t n = text.len - 1;
    if (n > 0 && text.data[n - 1] == '\n')
        text.data[n - 1] = '\0';
    int status = n == 0                      ? err_set(e, NOTHING)
                 : strlen(text.data) + 1 < n ? err_set(e, "standard input: a prompt has no NUL in it")
                                             : add_text(j, a, text.data, e);
    buf_free(&text);
    return status;
}

static int read_prompts(batch_job *j, const generate_args *a, err *e)
{
    if (a->prompt)
        return add_text(j, a, a->prompt, e);
    if (!a->prompts_file)
        return add_input(j, a, e);
    if (strcmp(a->prompts_file, "-") == 0)
        return prompts_read(&j->in, stdin, "standard input", j->l.t, &a->sampling, e);
    FILE *f = fopen(a->prompts_file, "r");
    if (!f)
        return err_set(e, "cannot open %s: %s", a->prompts_file, strerror(errno));
    int status = prompts_read(&j->in, f, a->prompts_file, j->l.t, &a->sampling, e);
    fclose(f);
    return status;
}

/* Checks that every prompt names an adapter that was given. */
static int check_adapters(const batch_job *j, err *e)
{
    for (int i = 0; i < j->in.n; i++) {
        const char *name = j->in.at[i].adapter;
        if (name && !adapter_set_has(&j->l.adapters, name))
            return err_set(e, "prompts line %d wants adapter \"%s\", which is not given (--adapter %s=DIR)",
                           j->in.at[i].line, name, name);
    }
    return 0;
}

static int batch_job_open(batch_job *j, const generate_args *a, err *e)
{
    if (local_engine_open(&j->l, &a->engine, e) || read_prompts(j, a, e) || check_adapters(j, e))
        return -1;
    completions_init(&j->out, &j->in, j->l.t, a->json);
    return 0;
}

static void batch_job_close(batch_job *j)
{
    completions_deinit(&j->out);
    prompts_deinit(&j->in);
    local_engine_close(&j->l);
}

static int add_prompt(const batch_job *j, int i, err *e)
{
    const prompt *q = &j->in.at[i];
    engine_request r = {.id = (uint64_t)i,
                        .arrival = (uint64_t)i,
                        .adapter = q->adapter,
                        .token = q->token,
                        .n_tokens = q->n_tokens,
                        .n_prompt = q->n_prompt,
                        .sampling = q->sampling};
    return engine_add(j->l.g, &r, e);
}

static void show_progress(const batch_job *j, int n_done, uint64_t tokens, double seconds)
{
    enum { WIDTH = 30 };
    int full = j->in.n ? n_done * WIDTH / j->in.n : WIDTH;
    fprintf(stderr, "\r[%.*s%*s] %d/%d prompts, %llu tokens, %.1f tokens/s ", full, "##############################",
            WIDTH - full, "", n_done, j->in.n, (unsigned long long)tokens, seconds > 0 ? (double)tokens / seconds : 0);
    fflush(stderr);
}

/* Handles an event. True when its prompt is done. */
static bool on_event(batch_job *j, const event *ev)
{
    prompt *q = &j->in.at[ev->id];
    outcome *o = &j->out.out[ev->id];
    switch (ev->kind) {
    case EVENT_SCORE: /* nobody asks for it here */ return false;
    case EVENT_TOKEN:
        prompt_append(q, ev->drawn.token);
        if (q->sampling.n_logprobs >= 0) {
            o->drawn = xgrow(o->drawn, &o->drawn_cap, o->n_drawn + 1, sizeof *o->drawn);
            o->drawn[o->n_drawn++] = ev->drawn;
        }
        return false;
    case EVENT_EVICTED: o->done = o->failed = add_prompt(j, (int)ev->id, &o->error) != 0; return o->done;
    case EVENT_FAILED:
        o->done = o->failed = true;
        o->error = ev->error;
        return true;
    case EVENT_FINISHED:
        o->why = ev->why;
        o->done = true;
        return true;
    }
    return false;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    interrupted = number;
    signal(number, SIG_DFL); /* a second one ends the process at once */
}

/* Steps until all is done or Ctrl-C comes, and writes what is done. What is not is kept for completions_finish(). */
static int run_prompts(batch_job *j, err *e)
{
    engine *g = j->l.g;
    bool progress = isatty(STDERR_FILENO) && (j->in.n > 1 || !isatty(STDOUT_FILENO));
    double start = clock_now(), shown = 0;
    int n_done = 0;
    signal(SIGINT, interrupt);
    while (!engine_is_idle(g) && !interrupted) {
        const event *events;
        int n;
        if (engine_step(g, &events, &n, e))
            return -1;
        for (int i = 0; i < n; i++)
            n_done += on_event(j, &events[i]);
        double now = clock_now();
        if (progress && now - shown > 0.1) {
            show_progress(j, n_done, engine_get_stats(g).tokens, now - start);
            shown = now;
        }
        if (progress && completions_has_news(&j->out))
            fputs("\r\033[K", stderr);
        completions_write(&j->out);
    }
    signal(SIGINT, SIG_DFL);
    if (progress)
        fputs("\r\033[K", stderr);
    j->seconds = clock_now() - start;
    return 0;
}

static void print_facts(const batch_job *j, const engine_stats *s)
{
    printf("\n%d request%s, %d adapter%s, one base model: %llu tokens in %llu steps, %.2f s, %.0f tokens/s\n", j->in.n,
           j->in.n == 1 ? "" : "s", j->l.adapters.n, j->l.adapters.n == 1 ? "" : "s", (unsigned long long)s->tokens,
           (unsigned long long)s->steps, j->seconds, j->seconds > 0 ? (double)s->tokens / j->seconds : 0);
}

int cmd_generate(int argc, char **argv)
{
    generate_args a;
    batch_job j = {0};
    err e;
    int code = 2, parsed = parse(&a, argc, argv, &e);
    if (parsed > 0)
        code = 0;
    if (parsed || batch_job_open(&j, &a, &e) || local_engine_start(&j.l, &a.engine, &e))
        goto out;
    for (int i = 0; i < j.in.n; i++)
        if (add_prompt(&j, i, &e)) {
            if (j.in.at[i].line)
                err_wrap(&e, "prompts line %d", j.in.at[i].line);
            goto out;
        }
    if (run_prompts(&j, &e) == 0) {
        engine_stats s = engine_get_stats(j.l.g);
        code = completions_finish(&j.out) ? 1 : 0;
        if (!a.json)
            print_facts(&j, &s);
        if (interrupted)
            code = 128 + SIGINT;
    }
out:
    if (code == 2)
        command_fail(e.msg);
    batch_job_close(&j);
    free(a.engine.adapters.items);
    return code;
}
