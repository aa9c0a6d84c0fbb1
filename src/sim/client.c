/* client.c - see client.h */
#include "sim/client.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

void client_deinit(client *c)
{
    for (int i = 0; i < MOST_CHOICES; i++)
        buf_free(&c->text[i]);
    buf_free(&c->bytes);
}

static void end_with(client *c, client_state s)
{
    c->state = s;
    c->ended_at = c->in->now;
    world_say(c->in, "client %d: %s, HTTP %d%s%s, \"%s\"", c->number, s == CLIENT_ANSWERED ? "is answered" : "leaves",
              c->status, *c->error ? ", " : "", c->error, c->text[0].len ? c->text[0].data : "");
}

static void receive_error(client *c, const json_t *error)
{
    const char *code = json_string_value(json_object_get(error, "code"));
    snprintf(c->error, sizeof c->error, "%s", code ? code : "without a code");
}

/* Returns whether these are the logprobs of the prompt, by token id, null for the first. */
static bool scores_are_right(const client *c, const json_t *list)
{
    const client_request *w = &c->request;
    bool right = json_array_size(list) == (size_t)w->n_prompt && json_is_null(json_array_get(list, 0));
    for (int i = 1; right && i < w->n_prompt; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", w->prompt[i]);
        const json_t *one = json_object_get(json_array_get(list, (size_t)i), id);
        right = (float)json_real_value(json_object_get(one, "logprob")) == toy_score(w->prompt, i, c->content);
    }
    return right;
}

/* Takes in a choice of an object or event: text to append, and perhaps its finish_reason. */
static void receive_choice(client *c, const json_t *choice)
{
    json_int_t i = json_integer_value(json_object_get(choice, "index"));
    const char *text = json_string_value(json_object_get(choice, "text")),
               *why = json_string_value(json_object_get(choice, "finish_reason"));
    if (i < 0 || i >= c->request.n_choices || !text || *c->reason[i]) {
        world_violate(c->in, "client %d got a choice that cannot be", c->number);
        return;
    }
    buf_add_str(&c->text[i], text);
    c->has_scores[i] = c->request.scored && scores_are_right(c, json_object_get(choice, "prompt_logprobs"));
    if (why)
        snprintf(c->reason[i], sizeof c->reason[i], "%s", why);
}

static void receive_object(client *c, const char *text, size_t n)
{
    json_t *o = json_loadb(text, n, 0, NULL);
    const json_t *error = json_object_get(o, "error"), *choices = json_object_get(o, "choices");
    if (!o || (!error && !choices))
        world_violate(c->in, "client %d got what is no answer: %.*s", c->number, (int)n, text);
    if (error)
        receive_error(c, error);
    for (size_t i = 0; i < json_array_size(choices); i++)
        receive_choice(c, json_array_get(choices, i));
    json_decref(o);
}

static void add_header(reply *r, const char *name, const char *value)
{
    (void)r, (void)name, (void)value;
}

static void send_whole(reply *r, int status, const char *type, const buf *body, bool close)
{
    (void)type, (void)close;
    client *c = (client *)r;
    c->status = status;
    receive_object(c, body->data, body->len);
    end_with(c, CLIENT_ANSWERED);
}

static void begin(reply *r, const char *type)
{
    (void)type;
    ((client *)r)->status = 200;
}

/* Takes in an event: "data: OBJECT" or "data: [DONE]". */
static void receive_event(client *c, const char *text, size_t n)
{
    if (n > 0 && text[0] == ':')
        return; /* a comment */
    if (n < 6 || strncmp(text, "data: ", 6) != 0 || c->done)
        world_violate(c->in, "client %d got what is no event, or one after the last: %.*s", c->number, (int)n, text);
    else if (n == 12 && strncmp(text + 6, "[DONE]", 6) == 0)
        c->done = true;
    else
        receive_object(c, text + 6, n - 6);
}

static void add(reply *r, const buf *bytes)
{
    client *c = (client *)r;
    buf_add(&c->bytes, bytes->data, bytes->len);
    size_t from = 0;
    for (const char *end; (end = memmem(c->bytes.data + from, c->bytes.len - from, "\n\n", 2));) {
        size_t n = (size_t)(end - c->bytes.data) - from;
        receive_event(c, c->bytes.data + from, n);
        from += n + 2;
    }
    buf_drop(&c->bytes, from);
}

static void flush(reply *r)
{
    (void)r;
}

static bool end(reply *r)
{
    client *c = (client *)r;
    if (c->bytes.len)
        world_violate(c->in, "client %d: the stream ends within an event", c->number);
    end_with(c, CLIENT_ANSWERED);
    return true;
}

static void write_body(const client *c, buf *body)
{
    const client_request *w = &c->request;
    buf_printf(body, "{\"model\":\"%s\",\"prompt\":[", w->adapter < 0 ? "toy" : sim_adapter_name(w->adapter));
    for (int i = 0; i < w->n_prompt; i++)
        buf_printf(body, "%s%d", i ? "," : "", w->prompt[i]);
    buf_printf(body, "],\"max_tokens\":%d,\"n\":%d,\"seed\":%llu,\"stream\":%s", w->max_tokens, w->n_choices,
               (unsigned long long)w->seed, w->stream ? "true" : "false");
    if (*w->stop)
        buf_printf(body, ",\"stop\":\"%s\"", w->stop);
    if (w->penalized)
        buf_add_str(body, ",\"presence_penalty\":1");
    if (w->alternates)
        buf_add_str(body, ",\"guided_regex\":\"" TOY_ALTERNATING "\"");
    if (w->min_tokens)
        buf_printf(body, ",\"min_tokens\":%d", w->min_tokens);
    if (w->scored)
        buf_add_str(body, ",\"prompt_logprobs\":0");
    if (w->priority)
        buf_printf(body, ",\"priority\":%d", w->priority);
    buf_add_str(body, "}");
}

void client_ask(client *c, service *s, tenant *who, uint64_t content)
{
    static const reply_ops ops = {
        .add_header = add_header, .send = send_whole, .begin = begin, .add = add, .flush = flush, .end = end};
    charged_buf body = {0};
    c->base.ops = &ops;
    c->state = CLIENT_LIVE;
    c->asked_at = c->in->now;
    c->content = content;
    write_body(c, &body.bytes);
    world_say(c->in, "client %d%s%s asks %s for %d tokens after %d%s%s", c->number, who ? " of " : "",
              who ? tenant_name(who) : "", c->request.adapter < 0 ? "the base" : sim_adapter_name(c->request.adapter),
              c->request.max_tokens, c->request.n_prompt, c->request.is_killer ? ", a killer" : "",
              c->request.stream ? ", as a stream" : "");
    call_start(s, who, &c->base, &body, &shape_completions, "/v1/completions", "");
}

void client_leave(client *c, client_loss how)
{
    end_with(c, CLIENT_CANCELLED);
    c->base.gone(c->base.ctx, how);
}

/* The text that the model must give. */

typedef struct {
    const client_request *w;
    toy_sampling sampling;
    uint64_t content;
    int token[TOY_CONTEXT], n; /* prompt, then output so far */
} expected_text;

static expected_text expected_of(const client *c, int choice)
{
    const client_request *w = &c->request;
    toy_sampling sampling = {.seed = choice == 0 ? w->seed : rng_u64(w->seed, (uint64_t)choice),
                             .penalized = w->penalized,
                             .alternates = w->alternates,
                             .min_tokens = w->min_tokens};
    expected_text s = {.w = w, .sampling = sampling, .content = c->content, .n = w->n_prompt};
    memcpy(s.token, w->prompt, sizeof *s.token * (size_t)w->n_prompt);
    return s;
}

/* Returns whether this is the next token of the expected text; if so, appends it. */
static bool expect_token(expected_text *s, int token)
{
    if (toy_next(s->token, s->n, s->w->n_prompt, s->content, &s->sampling) != token)
        return false;
    s->token[s->n++] = token;
    return true;
}

int client_most_output(const client_request *w)
{
    int room = TOY_CONTEXT - w->n_prompt;
    return w->max_tokens < room ? w->max_tokens : room;
}

/* Checks a choice's text so far, not how it ends. */
static bool check_text(client *c, int choice, expected_text *s)
{
    const buf *text = &c->text[choice];
    for (size_t i = 0; i < text->len; i++)
        if (s->n - c->request.n_prompt >= client_most_output(&c->request) ||
            !expect_token(s, (unsigned char)text->data[i])) {
            world_violate(c->in, "client %d: choice %d is wrong at character %zu: \"%s\"", c->number, choice, i,
                          text->data);
            return false;
        }
    return true;
}

static bool may_stop(expected_text *s)
{
    const char *stop = s->w->stop;
    expected_text with_end = *s;
    if (expect_token(&with_end, TOY_EOS))
        return true;
    for (; *stop; stop++)
        if (!expect_token(s, (unsigned char)*stop))
            return false;
    return *s->w->stop != '\0';
}

static void check_choice(client *c, int choice, bool may_be_short)
{
    expected_text s = expected_of(c, choice);
    const char *why = c->reason[choice];
    if (!check_text(c, choice, &s))
        return;
    int n_output = s.n - c->request.n_prompt;
    bool right = strcmp(why, "length") == 0
                     ? n_output == client_most_output(&c->request) || (may_be_short && n_output > 0)
                     : strcmp(why, "stop") == 0 && may_stop(&s);
    if (c->request.scored && !c->has_scores[choice])
        world_violate(c->in, "client %d: choice %d has wrong logprobs of its prompt", c->number, choice);
    if (!right)
        world_violate(c->in, "client %d: choice %d ends with \"%s\" after %d of %d tokens", c->number, choice, why,
                      n_output, client_most_output(&c->request));
    if (*c->request.stop && c->text[choice].len && strstr(c->text[choice].data, c->request.stop))
        world_violate(c->in, "client %d: choice %d goes on after its stop string", c->number, choice);
}

void client_check_answer(client *c, bool may_be_short)
{
    if (c->request.stream && c->status == 200 && !*c->error && !c->done)
        world_violate(c->in, "client %d: a stream without its last event", c->number);
    for (int i = 0; i < c->request.n_choices; i++)
        check_choice(c, i, may_be_short);
}

void client_check_part(client *c)
{
    for (int i = 0; i < c->request.n_choices; i++) {
        expected_text s = expected_of(c, i);
        check_text(c, i, &s);
    }
}
