/* api_reply.c - see api_reply.h */
#include "frontend/api_reply.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "frontend/json_text.h"

static json_t *string_of(const char *text, size_t n)
{
    json_t *s = json_stringn_nocheck(text ? text : "", n);
    CHECK(s);
    return s;
}

static json_t *head(const api_head *h, bool chunk)
{
    const char *kind = !h->chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s}", "id", h->id, "object", kind, "created", (json_int_t)h->created, "model",
                     h->model);
}

static void add_likely(json_t *to, const api_token *t)
{
    json_object_setn_new_nocheck(to, t->text, t->n, json_real((double)t->logprob));
}

/* Return the likeliest tokens in the place of one, n_top at most, and always that one itself. */
static json_t *likely_of(const api_logprob *p, int n_top)
{
    json_t *likely = json_object();
    if (p->unknown) {
        json_decref(likely);
        return json_null();
    }
    for (int k = 0; k < p->n_top && k < n_top; k++)
        add_likely(likely, &p->top[k]);
    add_likely(likely, &p->token);
    return likely;
}

/* Logprobs of completions: parallel lists. */
typedef struct { json_t *token, *value, *top, *offset; } logprob_lists;

static void add_logprobs(const logprob_lists *to, const api_logprob *p, int n, int n_top)
{
    for (int i = 0; i < n; i++) {
        json_array_append_new(to->token, string_of(p[i].token.text, p[i].token.n));
        json_array_append_new(to->value, p[i].unknown ? json_null() : json_real((double)p[i].token.logprob));
        json_array_append_new(to->offset, json_integer((json_int_t)p[i].chars));
        json_array_append_new(to->top, likely_of(&p[i], n_top));
    }
}

static json_t *completion_logprobs(const api_choice *c)
{
    logprob_lists l = {json_array(), json_array(), json_array(), json_array()};
    if (c->prompt.n_echoed >= 0)
        add_logprobs(&l, c->prompt.at, c->prompt.n, c->prompt.n_echoed);
    add_logprobs(&l, c->logprob, c->n_logprobs, INT_MAX);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", l.token, "token_logprobs", l.value, "top_logprobs", l.top,
                     "text_offset", l.offset);
}

static void list_token(json_t *to, const api_token *t, int rank)
{
    char id[16];
    snprintf(id, sizeof id, "%d", t->id);
    json_object_set_new(to, id,
                        json_pack("{s:f, s:i, s:o}", "logprob", (double)t->logprob, "rank", rank, "decoded_token",
                                  string_of(t->text, t->n)));
}

/* List a prompt's logprobs as vLLM does: by id, the prompt's own token first. */
static json_t *prompt_logprobs(const api_prompt_logprobs *p)
{
    json_t *list = json_array();
    for (int i = 0; i < p->n; i++) {
        const api_logprob *at = &p->at[i];
        json_t *one = at->unknown ? json_null() : json_object();
        if (!at->unknown)
            list_token(one, &at->token, at->rank);
        for (int k = 0; k < at->n_top && k < p->n_listed; k++)
            if (at->top[k].id != at->token.id)
                list_token(one, &at->top[k], k + 1);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *chat_token(const api_token *t)
{
    json_t *bytes = json_array();
    const char *from = t->bytes ? t->bytes : t->text;
    for (size_t i = 0; i < (t->bytes ? t->n_bytes : t->n); i++)
        json_array_append_new(bytes, json_integer((unsigned char)from[i]));
    return json_pack("{s:o, s:f, s:o}", "token", string_of(t->text, t->n), "logprob", (double)t->logprob, "bytes",
                     bytes);
}

static json_t *chat_logprobs(const api_logprob *p, int n)
{
    json_t *content = json_array();
    for (int i = 0; i < n; i++) {
        json_t *token = chat_token(&p[i].token), *top = json_array();
        for (int k = 0; k < p[i].n_top; k++)
            json_array_append_new(top, chat_token(&p[i].top[k]));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(content, token);
    }
    return json_pack("{s:o}", "content", content);
}

static json_t *logprobs(bool chat, const api_choice *c)
{
    if (!c->has_logprobs)
        return json_null();
    return chat ? chat_logprobs(c->logprob, c->n_logprobs) : completion_logprobs(c);
}

/* {"index", content under its name, "logprobs", "finish_reason"} */
static json_t *choice(const api_head *h, const api_choice *c, const char *name, json_t *content)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, name, content, "logprobs", logprobs(h->chat, c),
                     "finish_reason", c->finish);
}

static json_t *usage(const api_usage *u)
{
    json_t *all = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u->prompt, "completion_tokens",
                            (json_int_t)u->completion, "total_tokens", (json_int_t)(u->prompt + u->completion),
                            "prompt_tokens_details", "cached_tokens", (json_int_t)u->cached);
    if (u->reasoning)
        json_object_set_new(all, "completion_tokens_details",
                            json_pack("{s:I}", "reasoning_tokens", (json_int_t)u->reasoning));
    return all;
}

static json_t *tool_call_of(const api_call *k)
{
    json_t *arguments = string_of(k->arguments, k->n);
    if (k->goes_on)
        return json_pack("{s:{s:o}}", "function", "arguments", arguments);
    return json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", k->id, "type", "function", "function", "name",
                     string_of(k->name, strlen(k->name)), "arguments", arguments);
}

/* numbered: with an "index", as in chunks. */
static json_t *tool_calls_of(const api_choice *c, bool numbered)
{
    json_t *list = json_array();
    for (int i = 0; i < c->n_calls; i++) {
        json_t *call = tool_call_of(&c->call[i]);
        if (numbered)
            json_object_set_new(call, "index", json_integer(c->call[i].number));
        json_array_append_new(list, call);
    }
    return list;
}

static json_t *message_of(const api_choice *c)
{
    json_t *content = c->n_calls && c->n == 0 ? json_null() : string_of(c->text, c->n);
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    if (c->n_reasoning)
        json_object_set_new(message, "reasoning_content", string_of(c->reasoning, c->n_reasoning));
    if (c->n_calls)
        json_object_set_new(message, "tool_calls", tool_calls_of(c, false));
    return message;
}

void api_write_response(buf *out, const api_head *h, const api_choice *c, int n, const api_usage *u)
{
    json_t *doc = head(h, false), *choices = json_array();
    for (int i = 0; i < n; i++) {
        json_t *text = h->chat ? message_of(&c[i]) : string_of(c[i].text, c[i].n);
        json_t *one = choice(h, &c[i], h->chat ? "message" : "text", text);
        if (c[i].prompt.n_listed >= 0 && (!h->chat || i == 0))
            json_object_set_new(h->chat ? doc : one, "prompt_logprobs", prompt_logprobs(&c[i].prompt));
        json_array_append_new(choices, one);
    }
    json_object_set_new(doc, "choices", choices);
    json_object_set_new(doc, "usage", usage(u));
    json_add_take(out, doc);
}

void api_stream_init(api_stream *s, const api_head *h, bool null_usage)
{
    *s = (api_stream){.chat = h->chat, .closing = null_usage ? ",\"usage\":null}\n\n" : "}\n\n"};
    buf_add_str(&s->opening, "data: ");
    json_add_take(&s->opening, head(h, true));
    s->opening.len--; /* the closing brace */
    buf_add_str(&s->opening, ",\"choices\":[");
}

void api_stream_deinit(api_stream *s)
{
    buf_free(&s->opening);
}

/* {"index", "delta" or "text" */
static void begin_choice(buf *out, const api_stream *s, int index)
{
    buf_add(out, s->opening.data, s->opening.len);
    buf_add_str(out, "{\"index\":");
    buf_add_number(out, (size_t)index, 10);
    buf_add_str(out, s->chat ? ",\"delta\":" : ",\"text\":");
}

static void end_choice(buf *out, const api_stream *s, const char *finish)
{
    buf_add_str(out, ",\"finish_reason\":");
    if (finish)
        json_add_string(out, finish, strlen(finish));
    else
        buf_add_str(out, "null");
    buf_add_str(out, "}]");
    buf_add_str(out, s->closing);
}

void api_write_role(buf *out, const api_stream *s, int index)
{
    begin_choice(out, s, index);
    buf_add_str(out, "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
    end_choice(out, s, NULL);
}

/* Append the "delta" of a chat's chunk. */
static void add_delta(buf *out, const api_choice *c)
{
    const char *comma = "";
    buf_add_char(out, '{');
    if (c->n_reasoning) {
        buf_add_str(out, "\"reasoning_content\":");
        json_add_string(out, c->reasoning, c->n_reasoning);
        comma = ",";
    }
    if (c->n) {
        buf_add_str(out, comma);
        buf_add_str(out, "\"content\":");
        json_add_string(out, c->text, c->n);
        comma = ",";
    }
    if (c->n_calls) {
        buf_printf(out, "%s\"tool_calls\":", comma);
        json_add_take(out, tool_calls_of(c, true));
    }
    buf_add_char(out, '}');
}

void api_write_chunk(buf *out, const api_stream *s, const api_choice *c)
{
    begin_choice(out, s, c->index);
    if (s->chat)
        add_delta(out, c);
    else
        json_add_string(out, c->text, c->n);
    buf_add_str(out, ",\"logprobs\":");
    if (c->has_logprobs)
        json_add_take(out, logprobs(s->chat, c));
    else
        buf_add_str(out, "null"); /* most tokens: no document is built for them */
    end_choice(out, s, c->finish);
}

void api_write_usage(buf *out, const api_stream *s, const api_usage *u)
{
    buf_add(out, s->opening.data, s->opening.len);
    buf_add_str(out, "],\"usage\":");
    json_add_take(out, usage(u));
    buf_add_str(out, "}\n\n");
}

void api_write_stream_error(buf *out, const api_error *e)
{
    buf_add_str(out, "data: ");
    api_error_write(e, out);
    buf_add_str(out, "\n\n");
}

void api_write_done(buf *out)
{
    buf_add_str(out, "data: [DONE]\n\n");
}

static json_t *model(const char *name, const char *base, int64_t created, int context)
{
    bool is_base = !base;
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s?, s:i}", "id", name, "object", "model", "created",
                     (json_int_t)created, "owned_by", "punica", "root", is_base ? name : base, "parent", base,
                     "max_model_len", context);
}

void api_write_model(buf *out, const char *name, const char *base, int64_t created, int context)
{
    json_add_take(out, model(name, base, created, context));
}

void api_write_models(buf *out, const char *base, bool with_base, char *const *adapter, int n_adapters, int64_t created,
                      int context)
{
    json_t *list = json_array();
    if (with_base)
        json_array_append_new(list, model(base, NULL, created, context));
    for (int i = 0; i < n_adapters; i++)
        json_array_append_new(list, model(adapter[i], base, created, context));
    json_add_take(out, json_pack("{s:s, s:o}", "object", "list", "data", list));
}
