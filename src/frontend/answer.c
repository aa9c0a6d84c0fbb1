/* answer.c - see answer.h */
#include "frontend/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/token_bytes.h"

/* Tokens of the prompt's end that decide how the output's text begins: a detokenizer holds back one incomplete
 * character, or a run of byte-fallback tokens. */
#define PROMPT_TAIL 256

void answer_init(answer *a, const answer_rules *r, const tokenizer *t, int plain_id, const int *prompt, size_t n_prompt)
{
    *a = (answer){.rules = r, .t = t, .plain_id = plain_id};
    size_t skip = n_prompt > PROMPT_TAIL ? n_prompt - PROMPT_TAIL : 0;
    detokenizer_init(&a->d, t, true, prompt + skip, n_prompt - skip);
    buf_add(&a->text, "", 0);
}

void answer_echo(answer *a, const buf *prompt)
{
    buf_add(&a->text, prompt->data, prompt->len);
    if (a->rules->n_to_score == 0)
        a->end = a->text.len;
}

static void token_free(api_token *t)
{
    free(t->text);
    free(t->bytes);
}

static void logprob_free(api_logprob *p)
{
    for (int i = 0; i < p->n_top; i++)
        token_free(&p->top[i]);
    free(p->top);
    token_free(&p->token);
}

void answer_deinit(answer *a)
{
    for (int i = 0; i < a->n_logprobs; i++)
        logprob_free(&a->logprob[i]);
    free(a->logprob);
    for (int i = 0; i < a->n_prompt; i++)
        logprob_free(&a->prompt[i]);
    free(a->prompt);
    if (a->prompt)
        detokenizer_deinit(&a->prompt_d);
    buf_free(&a->prompt_text);
    output_parts_free(&a->parts);
    free(a->call);
    buf_free(&a->text);
    detokenizer_deinit(&a->d);
}

/* Describes a token that is part of a character: by its bytes, which are also its text, written as OpenAI does. */
static api_token part_of_char(const answer *a, int id, float logprob)
{
    buf text = {0}, bytes = {0};
    token_bytes(a->t, id, &bytes);
    buf_add_str(&text, "bytes:");
    for (size_t i = 0; i < bytes.len; i++)
        buf_printf(&text, "\\x%02x", (unsigned char)bytes.data[i]);
    size_t n = text.len, n_bytes = bytes.len;
    return (api_token){
        .id = id, .text = buf_take(&text), .n = n, .bytes = buf_take(&bytes), .n_bytes = n_bytes, .logprob = logprob};
}

/* Describes a token by itself, as it reads in the middle of a text. */
static api_token token_of(const answer *a, int id, float logprob)
{
    if (token_is_part_of_char(a->t, id))
        return part_of_char(a, id, logprob);
    buf text = {0};
    detokenizer d;
    detokenizer_init(&d, a->t, false, &a->plain_id, 1);
    buf_add(&text, "", 0);
    detokenizer_add(&d, id, &text);
    detokenizer_finish(&d, &text);
    detokenizer_deinit(&d);
    size_t n = text.len;
    return (api_token){.id = id, .text = buf_take(&text), .n = n, .logprob = logprob};
}

static size_t count_chars(answer *a)
{
    for (; a->counted < a->text.len; a->counted++)
        a->chars += ((unsigned char)a->text.data[a->counted] & 0xc0) != 0x80;
    return a->chars;
}

static api_logprob logprob_of(const answer *a, int token, const Logprobs *p)
{
    api_logprob to = {
        .token = token_of(a, token, p ? p->logprob : 0), .rank = p ? p->rank : 0, .n_top = p ? (int)p->n_top : 0};
    to.top = XNEW_ARRAY(api_token, (size_t)to.n_top + 1);
    for (int i = 0; i < to.n_top; i++)
        to.top[i] = token_of(a, p->top[i]->token, p->top[i]->logprob);
    return to;
}

static void add_logprob(answer *a, int token, const Logprobs *p)
{
    a->logprob = xgrow(a->logprob, &a->logprob_cap, (size_t)a->n_logprobs + 1, sizeof *a->logprob);
    api_logprob *to = &a->logprob[a->n_logprobs++];
    *to = logprob_of(a, token, p);
    to->offset = a->text.len;
    to->chars = count_chars(a);
}

/* Adds a token of the prompt. Where its text begins is counted in the text of the tokens before it. */
static void add_prompt_logprob(answer *a, int token, const Logprobs *p)
{
    a->prompt = xgrow(a->prompt, &a->prompt_cap, (size_t)a->n_prompt + 1, sizeof *a->prompt);
    api_logprob *to = &a->prompt[a->n_prompt++];
    *to = logprob_of(a, token, p);
    to->chars = a->prompt_chars;
    buf_clear(&a->prompt_text);
    detokenizer_add(&a->prompt_d, token, &a->prompt_text);
    for (size_t i = 0; i < a->prompt_text.len; i++)
        a->prompt_chars += ((unsigned char)a->prompt_text.data[i] & 0xc0) != 0x80;
}

void answer_begin_scores(answer *a, int first)
{
    detokenizer_init(&a->prompt_d, a->t, true, NULL, 0);
    buf_add(&a->prompt_text, "", 0);
    add_prompt_logprob(a, first, NULL);
    a->prompt[0].unknown = true;
}

/* Ends the answer at the first stop string in what may not be taken yet. Returns whether there is one. */
static bool ends_here(answer *a)
{
    const answer_rules *r = a->rules;
    size_t at, behind;
    if (a->n_tokens < r->min_tokens || !stop_find(r->stop, r->n_stops, a->text.data, a->end, a->text.len, &at, &behind))
        return false;
    a->state = ANSWER_STOP;
    a->stop_at = at;
    a->n_stop = behind - at;
    a->end = at = r->include_stop ? behind : at;
    while (a->n_logprobs > a->logprobs_given && a->logprob[a->n_logprobs - 1].offset >= at)
        logprob_free(&a->logprob[--a->n_logprobs]);
    return true;
}

static bool has_parts(const answer_rules *r)
{
    return r->parts.tools != TOOLS_NONE || r->parts.thinks != THINKS_NOT;
}

/* Finds the parts of an output, after text has come. */
static void find_parts(answer *a)
{
    if (!has_parts(a->rules))
        return;
    output_parts_read(&a->parts, &a->rules->parts, a->text.data, a->end, a->state != ANSWER_OPEN);
    if (a->parts.in == IN_REASONING)
        a->reasoning_tokens = a->n_tokens;
}

/* Drops the replacements of characters that never came, which the end of the text brought behind `from`. */
static void drop_replacements(answer *a, size_t from)
{
    static const char replacement[] = "\xef\xbf\xbd";
    const char *first = a->text.len > from ? memmem(a->text.data + from, a->text.len - from, replacement, 3) : NULL;
    if (first)
        a->text.len = (size_t)(first - a->text.data);
}

static void end_text(answer *a, answer_state why)
{
    size_t before = a->text.len;
    detokenizer_finish(&a->d, &a->text);
    if (a->rules->whole_chars && why == ANSWER_LENGTH)
        drop_replacements(a, before);
    if (ends_here(a))
        return;
    a->state = why;
    a->end = a->text.len;
}

void answer_finish(answer *a, answer_state why)
{
    if (a->state != ANSWER_OPEN)
        return;
    end_text(a, why);
    find_parts(a);
}

static bool is_end(const answer_rules *r, int token)
{
    for (int i = 0; i < r->n_end_ids; i++)
        if (r->end_id[i] == token)
            return true;
    return false;
}

static void add_score(answer *a, int token, const Logprobs *p)
{
    add_prompt_logprob(a, token, p);
    if (++a->n_scored < a->rules->n_to_score)
        return;
    a->end = a->text.len;
    if (a->rules->max_tokens == 0)
        answer_finish(a, ANSWER_LENGTH);
}

/* Adds a special token that says where a part begins or ends, though text would hide it. False: it is none. */
static bool add_mark(answer *a, int token)
{
    int n;
    const char *const *marks = output_marks(&n);
    for (int i = 0; has_parts(a->rules) && i < n; i++)
        if (a->rules->mark_id[i] > 0 && a->rules->mark_id[i] == token) {
            buf_add_str(&a->text, marks[i]);
            return true;
        }
    return false;
}

void answer_add(answer *a, int token, const Logprobs *p)
{
    const answer_rules *r = a->rules;
    CHECK(a->state == ANSWER_OPEN);
    if (a->n_scored < r->n_to_score) {
        add_score(a, token, p);
        return;
    }
    if (r->max_tokens == 0) { /* no output is wanted, but a worker makes at least one token */
        answer_finish(a, ANSWER_LENGTH);
        return;
    }
    a->n_tokens++;
    a->sum_logprobs += p ? (double)p->logprob : 0;
    if (is_end(r, token)) {
        if (r->logprobs && r->n_echoed >= 0)
            add_logprob(a, token, p); /* clients that score prompts count from the end */
        answer_finish(a, ANSWER_STOP);
        return;
    }
    if (r->logprobs)
        add_logprob(a, token, p);
    if (!add_mark(a, token))
        detokenizer_add(&a->d, token, &a->text);
    if (ends_here(a)) {
        find_parts(a);
        return;
    }
    a->end = stop_safe(r->stop, r->n_stops, a->text.data, a->end, a->text.len);
    if (a->n_tokens >= r->max_tokens)
        answer_finish(a, ANSWER_LENGTH);
    else
        find_parts(a);
}

/* Returns the length of the content so far, and its text. */
static size_t content_of(const answer *a, const char **text)
{
    bool parts = has_parts(a->rules);
    *text = !parts ? a->text.data : a->parts.content.data ? a->parts.content.data : "";
    return parts ? a->parts.content.len : a->end;
}

static bool calls_go_on(const answer *a)
{
    const output_parts *p = &a->parts;
    return p->n_calls > a->calls_given ||
           (p->n_calls > 0 && p->call[p->n_calls - 1].arguments.len > a->arguments_given);
}

double answer_likelihood(const answer *a)
{
    return a->n_tokens ? a->sum_logprobs / a->n_tokens : 0;
}

bool answer_has_news(const answer *a)
{
    const char *text;
    return content_of(a, &text) > a->given || a->parts.reasoning.len > a->reasoning_given || calls_go_on(a) ||
           a->state != ANSWER_OPEN;
}

size_t answer_size(const answer *a)
{
    enum { PER_TOKEN = sizeof(api_token) + 64 }; /* its text is an allocation of its own */
    size_t top = a->n_logprobs ? (size_t)a->logprob[0].n_top : 0,
           prompt_top = a->n_prompt > 1 ? (size_t)a->prompt[1].n_top : 0;
    size_t parts = has_parts(a->rules) ? a->text.cap : 0;
    return a->text.cap + parts + (size_t)a->n_logprobs * (sizeof *a->logprob + (top + 1) * PER_TOKEN) +
           (size_t)a->n_prompt * (sizeof *a->prompt + (prompt_top + 1) * PER_TOKEN);
}

/* Returns how many logprobs may be told: not those of tokens whose text is still held back. */
static int n_logprobs_certain(const answer *a)
{
    int n = a->n_logprobs;
    size_t told = has_parts(a->rules) ? a->parts.at : a->end;
    while (a->state == ANSWER_OPEN && n > a->logprobs_given && a->logprob[n - 1].offset >= told)
        n--;
    return n;
}

static const char *finish_of(const answer *a)
{
    static const char *const names[] = {NULL, "stop", "length"};
    bool calls = a->state == ANSWER_STOP && a->parts.n_calls > 0 && a->rules->parts.tools != TOOLS_NAMED;
    return calls ? "tool_calls" : names[a->state];
}

/* Makes the id of a call as chat templates expect to see it again: nine letters or digits with Mistral. */
static void name_call(api_call *c, const answer_rules *r, int number)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t x = rng_u64(r->call_seed, (uint64_t)number);
    int n = 0;
    if (r->parts.tools != TOOLS_MISTRAL)
        n = snprintf(c->id, sizeof c->id, "call_");
    for (int i = 0; i < 9; i++, x /= 62)
        c->id[n++] = letters[x % 62];
    c->id[n] = 0;
}

/* Lists what is new of calls when the first `named` have been told, the last of them with so much of its arguments.
 * Returns how many calls are in a->call. */
static int list_calls(answer *a, int named, size_t arguments)
{
    const output_parts *p = &a->parts;
    int first = named > 0 && p->call[named - 1].arguments.len > arguments ? named - 1 : named, n = p->n_calls - first;
    a->call = xgrow(a->call, &a->call_cap, (size_t)n + 1, sizeof *a->call);
    for (int i = 0; i < n; i++) {
        int number = first + i;
        size_t told = number < named ? arguments : 0;
        const tool_call *c = &p->call[number];
        a->call[i] = (api_call){.number = number,
                                .goes_on = number < named,
                                .name = c->name,
                                .arguments = c->arguments.data + told,
                                .n = c->arguments.len - told};
        name_call(&a->call[i], a->rules, number);
    }
    return n;
}

static api_choice choice_from(answer *a, size_t content, size_t reasoning, int named, size_t arguments, int logprob)
{
    const char *text;
    bool scored = a->prompt && !a->prompt_given;
    size_t n = content_of(a, &text);
    int n_calls = list_calls(a, named, arguments);
    return (api_choice){.text = text + content,
                        .n = n - content,
                        .finish = finish_of(a),
                        .stop = a->n_stop ? a->text.data + a->stop_at : NULL,
                        .n_stop = a->n_stop,
                        .reasoning = a->parts.reasoning.data ? a->parts.reasoning.data + reasoning : "",
                        .n_reasoning = a->parts.reasoning.len - reasoning,
                        .call = a->call,
                        .n_calls = n_calls,
                        .has_logprobs = a->rules->logprobs,
                        .logprob = a->logprob ? a->logprob + logprob : NULL,
                        .n_logprobs = n_logprobs_certain(a) - logprob,
                        .prompt = {.at = a->prompt,
                                   .n = a->n_prompt,
                                   .n_echoed = scored ? a->rules->n_echoed : -1,
                                   .n_listed = scored ? a->rules->n_listed : -1}};
}

api_choice answer_take(answer *a)
{
    const output_parts *p = &a->parts;
    api_choice c = choice_from(a, a->given, a->reasoning_given, a->calls_given, a->arguments_given, a->logprobs_given);
    a->given += c.n;
    a->reasoning_given += c.n_reasoning;
    a->calls_given = p->n_calls;
    a->arguments_given = p->n_calls ? p->call[p->n_calls - 1].arguments.len : 0;
    a->logprobs_given += c.n_logprobs;
    a->prompt_given = true;
    return c;
}

api_choice answer_all(answer *a)
{
    return choice_from(a, 0, 0, 0, 0, 0);
}
