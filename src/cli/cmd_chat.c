/* cmd_chat.c - `punica chat`: a conversation in the terminal, no server
 *
 * A line is a message; the answer is written as it comes. The conversation is kept as messages, and the chat template
 * writes all of it anew for every turn; the engine's prefix cache has the pages of what is unchanged, so a turn costs
 * only its own tokens.
 *
 * Ctrl-C stops an answer and keeps what has come of it; Ctrl-D ends the conversation. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sampling_limits.h"
#include "cli/commands.h"
#include "cli/engine_args.h"
#include "cli/local_engine.h"
#include "cli/tree.h"
#include "frontend/conversation.h"
#include "frontend/json_text.h"
#include "frontend/sampling_defaults.h"
#include "text/chat.h"
#include "text/detokenizer.h"

typedef struct {
    local_engine_args engine;
    const char *system, *template_file;
    sampling_params sampling; /* below 0: the model's own default */
    char *demo_model;         /* owned; NULL: another model */
} chat_args;

typedef struct {
    local_engine l;
    chat_template *base, *own; /* own: the adapter's, or NULL */
    sampling_params sampling;
    json_t *messages;
    size_t n_fixed; /* messages that are never left out: the system's */
    int context;    /* tokens */
    uint64_t turn;
} talk;

/* Set by Ctrl-C. An answer looks at the flag; a wait for input polls the eventfd, since EINTR would miss a signal that
 * comes just before read(), or in another thread. */
static volatile sig_atomic_t interrupted;
static int interruptions = -1;

static void interrupt(int number)
{
    int kept = errno;
    interrupted = number;
    (void)!write(interruptions, &(uint64_t){1}, sizeof(uint64_t));
    errno = kept;
}

static void forget_interruptions(void)
{
    uint64_t n;
    (void)!read(interruptions, &n, sizeof n);
    interrupted = 0;
}

static void listen_for_interruptions(void)
{
    interruptions = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(interruptions >= 0);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt, .sa_flags = SA_RESTART}, NULL);
}

/* Waits for input or its end. False: Ctrl-C came first. */
static bool wait_for_input(void)
{
    struct pollfd either[] = {{STDIN_FILENO, POLLIN, 0}, {interruptions, POLLIN, 0}};
    while (poll(either, 2, -1) < 0)
        CHECK(errno == EINTR);
    return !interrupted; /* if it came together with input, poll() may report only the input */
}

static int parse(chat_args *a, int argc, char **argv, err *e)
{
    *a = (chat_args){.sampling = sampling_default(), .engine = local_engine_args_default()};
    sampling_params *s = &a->sampling;
    s->temperature = s->top_p = s->min_p = -1;
    s->top_k = s->max_tokens = -1;
    if (getrandom(&s->seed, sizeof s->seed, 0) < 0)
        s->seed = (uint64_t)clock_wall();
    local_engine_args *l = &a->engine;
    const char *model_dir = NULL;
    const option options[] = {
        {"model", OPT_STRING, &l->model_dir, "DIR", "the same as DIR: a Hugging Face model directory (the demo's)"},
        {"adapter", OPT_LIST, &l->adapters, "NAME=DIR", "a PEFT LoRA adapter to talk to instead of the base"},
        {"system", OPT_STRING, &a->system, "TEXT", "a system message that stands before the conversation"},
        {"chat-template", OPT_STRING, &a->template_file, "FILE", "a Jinja program to use instead of the model's own"},
        {"Answers; where nothing is said, as the model's generation_config.json says"},
        {"max-tokens", OPT_INT, &s->max_tokens, "N", "of an answer (as many as the context has room for)", 1, 1e9},
        {"temperature", OPT_FLOAT, &s->temperature, "T", "0: always the likeliest token", 0, MAX_TEMPERATURE},
        {"top-k", OPT_INT, &s->top_k, "K", "draw among the K likeliest (0: off)", 0, 1e9},
        {"top-p", OPT_FLOAT, &s->top_p, "P", "draw among the likeliest that sum to P (1: off)", MIN_TOP_P, 1},
        {"min-p", OPT_FLOAT, &s->min_p, "P", "drop tokens under P times the likeliest (0: off)", 0, 1},
        {"seed", OPT_U64, &s->seed, "N", "of the randomness (another each time)"},
        {"Engine"},
        DEVICE_OPTION(l),
        TP_OPTION(l),
        WEIGHTS_OPTION(l),
        KV_OPTION(l),
        THREADS_OPTION(l),
        MEMORY_SHARE_OPTION(l),
        KV_PAGES_OPTION(l),
        {NULL}};
    const command_line c = {.usage = "punica chat [DIR] [--adapter NAME=DIR] [--system TEXT] [options]",
                            .about = "Talk to a base model, or to one of its adapters. Every line is a message, and "
                                     "the answer is written as it comes.\n"
                                     "Ctrl-C stops an answer and keeps what there is of it, Ctrl-D ends the "
                                     "conversation. What does not fit into the\n"
                                     "model's context any more is left out, the oldest messages first.",
                            .options = options,
                            .n_positional = 1,
                            .n_optional = 1,
                            .positional = &model_dir};
    int status = options_parse(&c, argc, argv, e);
    if (status)
        return status;
    if (model_dir && l->model_dir)
        return err_set(e, "the model is given twice: %s, and --model %s", model_dir, l->model_dir);
    l->model_dir = model_dir ? model_dir : l->model_dir;
    if (!l->model_dir)
        l->model_dir = a->demo_model = tree_find("demo/model");
    if (!l->model_dir)
        return err_set(e, "the demo model is not there; give --model DIR");
    if (l->adapters.n > 1)
        return err_set(e, "a conversation is with one model: give one --adapter");
    l->max_batch = 1;
    return 0;
}

/* Sets what the command line leaves open to the model's defaults. */
static int fill_sampling(talk *k, const chat_args *a, err *e)
{
    sampling_defaults d;
    if (sampling_defaults_read(&d, "auto", a->engine.model_dir, e))
        return -1;
    sampling_params *s = &k->sampling;
    *s = a->sampling;
    s->temperature = s->temperature < 0 ? d.temperature : s->temperature;
    s->top_p = s->top_p < 0 ? d.top_p : s->top_p;
    s->min_p = s->min_p < 0 ? d.min_p : s->min_p;
    s->top_k = s->top_k < 0 ? d.top_k : s->top_k;
    s->max_tokens = s->max_tokens < 0 ? d.max_tokens : s->max_tokens;
    s->repetition_penalty = d.repetition_penalty;
    return sampling_check(s, e);
}

/* Loads the chat templates. A file that is given is used alone; else an adapter's own comes before the base's. */
static int load_templates(talk *k, const chat_args *a, err *e)
{
    if (!(k->base = chat_template_load(a->engine.model_dir, a->template_file, e)))
        return -1;
    if (k->l.adapters.n && !a->template_file) {
        e->msg[0] = '\0';
        k->own = chat_template_load_over(k->l.adapters.dir[0], k->base, e);
        if (!k->own && e->msg[0])
            return -1;
    }
    const char *problem = k->own ? NULL : chat_template_problem(k->base);
    return problem ? err_set(e, "%s", problem) : 0;
}

static void add_message(talk *k, const char *role, const char *text)
{
    json_array_append_new(k->messages, json_pack("{s:s, s:o}", "role", role, "content", json_text(text)));
}

static int talk_open(talk *k, const chat_args *a, err *e)
{
    if (local_engine_open(&k->l, &a->engine, e) || fill_sampling(k, a, e) || load_templates(k, a, e) ||
        local_engine_start(&k->l, &a->engine, e))
        return -1;
    engine_stats s = engine_get_stats(k->l.g);
    int held = s.pages_total * s.page_len, most = k->l.m->config.max_positions;
    k->context = held < most ? held : most;
    k->sampling.max_tokens = k->sampling.max_tokens < k->context ? k->sampling.max_tokens : k->context;
    k->messages = json_array();
    if (a->system)
        add_message(k, "system", a->system);
    k->n_fixed = json_array_size(k->messages);
    return 0;
}

static void talk_close(talk *k)
{
    json_decref(k->messages);
    chat_template_free(k->own);
    chat_template_free(k->base);
    local_engine_close(&k->l);
}

/* Writes the conversation's tokens into an empty list. */
static int write_prompt(talk *k, ids *out, err *e)
{
    const chat_template *c = k->own ? k->own : k->base;
    json_t *messages = conversation_for(c, k->messages);
    buf text = {0};
    text_spans own = {0};
    const chat_input in = {.messages = messages, .add_generation_prompt = true};
    int rc = chat_template_write(c, &in, (time_t)clock_wall(), &text, &own, e);
    if (rc == 0)
        rc = tokenizer_encode_within(k->l.t, text.data, text.len, false,
                                     &(encode_limits){.max_ids = SIZE_MAX, .own = &own}, out, e);
    text_spans_free(&own);
    buf_free(&text);
    json_decref(messages);
    return rc;
}

/* The same, but drops the oldest question and its answer, and the next, until there is room for an answer. */
static int write_what_fits(talk *k, ids *out, err *e)
{
    size_t n_left_out = 0,
           room = (size_t)(k->sampling.max_tokens < k->context / 4 ? k->sampling.max_tokens : k->context / 4);
    int rc;
    while ((rc = write_prompt(k, out, e)) == 0 && out->n + room > (size_t)k->context &&
           json_array_size(k->messages) > k->n_fixed + 1) {
        for (int i = 0; i < 2 && json_array_size(k->messages) > k->n_fixed + 1; i++, n_left_out++)
            json_array_remove(k->messages, k->n_fixed);
        out->n = 0;
    }
    if (n_left_out && rc == 0)
        fprintf(stderr,
                "punica: the oldest %zu messages do not fit into the context of %d tokens any more and are left out\n",
                n_left_out, k->context);
    return rc;
}

/* Limits the answer to the room that the context has behind the prompt: the engine would evict what outgrows the pages.
 */
static int add_request(talk *k, const ids *all, size_t n_prompt, err *e)
{
    sampling_params sampling = k->sampling;
    int left = k->context > (int)n_prompt ? k->context - (int)n_prompt : 1;
    sampling.max_tokens = sampling.max_tokens < left ? sampling.max_tokens : left;
    const engine_request r = {.id = k->turn,
                              .arrival = k->turn,
                              .adapter = k->l.adapters.n ? k->l.adapters.name[0] : NULL,
                              .token = all->items,
                              .n_tokens = (int)all->n,
                              .n_prompt = (int)n_prompt,
                              .sampling = sampling};
    return engine_add(k->l.g, &r, e);
}

static void write_from(const buf *said, size_t at)
{
    if (said->len > at)
        fwrite(said->data + at, 1, said->len - at, stdout);
    fflush(stdout);
}

/* Writes the text of the tokens from *shown up to `end`, and adds it to `said`. */
static void show(detokenizer *d, const ids *all, size_t *shown, size_t end, buf *said)
{
    size_t before = said->len;
    for (; *shown < end; ++*shown)
        detokenizer_add(d, all->items[*shown], said);
    write_from(said, before);
}

/* Handles an event. 1: the answer is complete; -1, with e set: there will be no more of it; 0: it goes on. */
static int on_event(talk *k, const event *ev, ids *all, size_t n_prompt, finish_reason *why, err *e)
{
    switch (ev->kind) {
    case EVENT_SCORE: /* nobody asks for it here */ return 0;
    case EVENT_TOKEN: ids_add(all, ev->drawn.token); return 0;
    case EVENT_EVICTED: return add_request(k, all, n_prompt, e);
    case EVENT_FAILED: *e = ev->error; return -1;
    case EVENT_FINISHED: *why = ev->why; return 1;
    }
    return 0;
}

/* Steps until the answer is complete or interrupted. The last token is held back: it may be an end token. 1: the answer
 * is cut off by its length; -1 and -2 as answer(). */
static int run_answer(talk *k, ids *all, size_t n_prompt, detokenizer *d, buf *said, err *e)
{
    finish_reason why = FINISH_STOP;
    size_t shown = n_prompt;
    int rc = add_request(k, all, n_prompt, e);
    while (rc == 0 && !interrupted) {
        const event *events;
        int n = 0;
        if (engine_step(k->l.g, &events, &n, e))
            return -2;
        for (int i = 0; i < n && rc == 0; i++)
            rc = on_event(k, &events[i], all, n_prompt, &why, e);
        if (rc == 0 && all->n > n_prompt)
            show(d, all, &shown, all->n - 1, said);
    }
    engine_cancel(k->l.g, k->turn); /* if it is still there */
    show(d, all, &shown, all->n - (rc == 1 && why == FINISH_STOP), said);
    return rc < 0 ? -1 : rc == 1 && why == FINISH_LENGTH;
}

/* Answers the last message, and adds the text to `said`. -1: it cannot be answered; -2: the engine has failed. */
static int answer(talk *k, buf *said, err *e)
{
    ids all = {0};
    detokenizer d;
    int rc = write_what_fits(k, &all, e);
    if (rc == 0) {
        size_t n_prompt = all.n;
        detokenizer_init(&d, k->l.t, true, all.items, n_prompt);
        rc = run_answer(k, &all, n_prompt, &d, said, e);
        size_t before = said->len;
        detokenizer_finish(&d, said);
        write_from(said, before);
        if (rc >= 0 || said->len)
            putchar('\n');
        fflush(stdout);
        detokenizer_deinit(&d);
        if (rc == 1)
            fprintf(stderr, "punica: the answer is cut off after %zu tokens\n", all.n - n_prompt);
    }
    ids_free(&all);
    k->turn++;
    return rc > 0 ? 0 : rc;
}

/* Adds a message and its answer; one that cannot be answered is taken out again. -1: the engine has failed. */
static int answer_line(talk *k, const char *line, err *e)
{
    buf said = {0};
    add_message(k, "user", line);
    int rc = answer(k, &said, e);
    forget_interruptions();
    buf_add_char(&said, '\0');
    if (rc == 0)
        add_message(k, "assistant", said.data);
    else
        json_array_remove(k->messages, json_array_size(k->messages) - 1);
    if (rc == -1)
        fprintf(stderr, "punica: %s\n", e->msg);
    buf_free(&said);
    return rc == -2 ? -1 : 0;
}

static int converse(talk *k, err *e)
{
    bool on_terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    setvbuf(stdin, NULL, _IONBF, 0); /* so that poll() sees all input that has not been read */
    while (rc == 0) {
        if (on_terminal)
            fputs("> ", stderr);
        if (!wait_for_input()) {
            forget_interruptions(); /* and the terminal has dropped what was typed */
            fputs("\n(Ctrl-D ends)\n", stderr);
            continue;
        }
        if (getline(&line, &cap, stdin) < 0)
            break;
        line[strcspn(line, "\r\n")] = '\0';
        if (*line)
            rc = answer_line(k, line, e);
    }
    if (on_terminal)
        fputc('\n', stderr);
    free(line);
    return rc;
}

int cmd_chat(int argc, char **argv)
{
    chat_args a;
    talk k = {0};
    err e;
    int parsed = parse(&a, argc, argv, &e), code = parsed > 0 ? 0 : 2;
    if (parsed == 0 && talk_open(&k, &a, &e) == 0) {
        listen_for_interruptions();
        code = converse(&k, &e) ? 2 : 0;
    }
    if (code == 2)
        command_fail(e.msg);
    talk_close(&k);
    free(a.engine.adapters.items);
    free(a.demo_model);
    return code;
}
