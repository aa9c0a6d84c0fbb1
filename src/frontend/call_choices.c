/* call_choices.c - a call's choices: requests at the scheduler, from submit to end
 *
 * dispatch.h calls back when tokens of a choice have come: on_tokens() makes text of them and, in the usual case, sends
 * it at once; after_tokens() does what only the loop's thread may do, such as billing and the end of the call. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "frontend/call_state.h"

#define OUTPUT_PIECE (64u << 10) /* bytes of an output that are paid for at once */

/* Bills a choice for n_tokens more of output. The first of a prompt's choices that is billed is also billed for the
 * prompt, with what of it was cached. Only tokens that came here before the request was over count: a request that ends
 * without a token costs nothing, whoever ended it. */
static void bill(call *c, choice *k, int n_tokens)
{
    int64_t prompt = c->unbilled[k->prompt], cached = prompt ? k->n_cached : 0;
    c->unbilled[k->prompt] = 0;
    c->cached_tokens += cached;
    c->s->counts->cached_tokens += (uint64_t)cached;
    if (c->who && c->s->accounts)
        accounts_count(c->s->accounts, &c->bill, k->waits, prompt, cached, n_tokens);
    if (c->who && k->waits)
        tenant_first_token(c->who);
    k->waits = false;
}

void call_count_tokens(call *c, choice *k)
{
    double now = loop_now(c->s->on);
    if (k->n_counted < k->a.n_tokens)
        bill(c, k, k->a.n_tokens - k->n_counted);
    for (; k->n_counted < k->a.n_tokens; k->n_counted++) {
        c->first = c->first ? c->first : now;
        if (k->n_counted == 0)
            histogram_add(&c->s->counts->first_token, now - c->start);
        else
            histogram_add(&c->s->counts->next_token, now - k->last);
        k->last = now;
        c->s->counts->completion_tokens++;
    }
}

void call_close_choice(call *c, choice *k)
{
    dispatch_cancel(c->s->at_scheduler, k->id);
    k->id = 0;
    if (k->in_flight)
        tenant_end(c->who, k->waits);
    k->in_flight = false;
}

static void begin_stream(call *c)
{
    api_usage u = call_usage(c);
    c->begun = true;
    c->events = c->shape->stream_new(&c->head, &u);
    reply_begin(c->to, "text/event-stream; charset=utf-8");
}

static void send_news(call *c, choice *k)
{
    buf_clear(&c->text);
    api_choice news = answer_take(&k->a);
    news.index = k->index;
    news.first = !k->told;
    k->told = true;
    c->shape->stream_add(c->events, &c->text, &news);
    reply_add(c->to, &c->text);
}

/* Sends a stream what is new of a choice; ends the choice when its output is complete, and the call with its last
 * choice. To be called after anything has happened to the choice. The call may be gone afterwards. */
static void advance(call *c, choice *k)
{
    if (c->p->asked.stream && answer_has_news(&k->a)) {
        if (!c->begun)
            begin_stream(c);
        send_news(c, k);
    }
    if (c->begun)
        reply_flush(c->to);
    if (k->a.state == ANSWER_OPEN)
        return;
    if (k->waits)
        bill(c, k, 0); /* nothing but the prompt was wanted */
    call_close_choice(c, k);
    if (--c->n_open == 0)
        call_finish(c);
}

/* Makes text of tokens that have come. On any thread, while the loop's thread waits for all of a step's (dispatch.c):
 * so it touches nothing but its own call, and sends only if the call has no other choice. Most tokens are in the middle
 * of a stream with one choice, and are sent from here. */
static void on_tokens(void *ctx, const int *token, int n, Logprobs *const *p)
{
    choice *k = ctx;
    call *c = k->owner;
    for (int i = 0; i < n && k->a.state == ANSWER_OPEN; i++)
        answer_add(&k->a, token[i], p ? p[i] : NULL);
    if (c->begun && c->n_choices == 1 && k->a.state == ANSWER_OPEN && answer_has_news(&k->a))
        send_news(c, k);
}

/* Takes n bytes from the budget of memory, for a call's prompts or, when it runs, for more of its output. */
static int take_memory(call *c, size_t n, bool runs, api_error *e)
{
    if (!(runs ? budget_take_more : budget_take)(c->memory, n))
        return api_error_set(e, 503, NULL, "out_of_memory", "too many large requests are in hand; try again later");
    c->taken += n;
    return 0;
}

/* Takes from the budget what an output has grown to, in whole pieces of OUTPUT_PIECE: less than one is free. */
static int pay_for_output(choice *k, api_error *e)
{
    size_t held = answer_size(&k->a) / OUTPUT_PIECE * OUTPUT_PIECE, more = held > k->taken ? held - k->taken : 0;
    if (more && take_memory(k->owner, more, true, e))
        return -1;
    k->taken += more;
    return 0;
}

/* Keeps how much of its prompt a choice found in the prefix cache, for the bill. */
static void on_cached(void *ctx, uint32_t n)
{
    choice *k = ctx;
    k->n_cached = n;
}

/* Follows on_tokens() on the loop's thread: counts the tokens, pays for their memory and tells the client. */
static void after_tokens(void *ctx)
{
    choice *k = ctx;
    api_error e;
    call_count_tokens(k->owner, k);
    if (pay_for_output(k, &e))
        call_fail(k->owner, &e);
    else
        advance(k->owner, k);
}

/* What a client is told of a request that ended before its output was complete. */
typedef struct {
    int status;
    const char *code, *message; /* message: where the scheduler says nothing nearer */
} early_end;

/* Without a default, so that the compiler finds what wire.proto gains. A reason that only a newer scheduler knows is a
 * failure. */
static early_end early_end_of(EndReason why)
{
    switch (why) {
    case END_REASON__QUEUE_FULL:
        return (early_end){429, "queue_full", "too many requests are waiting; try again later"};
    case END_REASON__TOO_LATE:
        return (early_end){503, "too_late", "the request has waited for too long; try again later"};
    case END_REASON__TOO_LARGE:
        return (early_end){400, "context_length_exceeded", "the request does not fit into any GPU's KvCache"};
    case END_REASON__KILLS_WORKERS: return (early_end){500, "worker_died", "the request brought down its workers"};
    case END_REASON__FAILED:
    case END_REASON__STOP:
    case END_REASON__LENGTH:  /* these are complete outputs, */
    case END_REASON__EVICTED: /* and this one is for the scheduler */
    case _END_REASON_IS_INT_SIZE: break;
    }
    return (early_end){500, "generation_failed", "the request failed"};
}

static void error_of(api_error *e, EndReason why, const char *message, double retry_after)
{
    const early_end told = early_end_of(why);
    if (why == END_REASON__FAILED && retry_after > 0) /* the scheduler says so (wire.proto) */
        api_error_set(e, 503, "model", "adapter_unavailable", "%s", message);
    else
        api_error_set(e, told.status, NULL, told.code, "%s", message && message[0] ? message : told.message);
    e->retry_after = retry_after;
}

static void on_end(void *ctx, EndReason why, const char *message, double retry_after)
{
    choice *k = ctx;
    k->id = 0;
    if (why == END_REASON__STOP || why == END_REASON__LENGTH) {
        answer_finish(&k->a, why == END_REASON__STOP ? ANSWER_STOP : ANSWER_LENGTH);
        advance(k->owner, k);
        return;
    }
    api_error e;
    error_of(&e, why, message, retry_after);
    call_fail(k->owner, &e);
}

static const dispatch_events events = {
    .tokens = on_tokens, .after_tokens = after_tokens, .cached = on_cached, .end = on_end};

/* Sends a keep-alive to a stream that has had no token for a while: proxies, or the client itself, may give up a
 * connection on which nothing comes. It is an SSE comment, which clients skip. */
static void on_quiet(void *ctx)
{
    call *c = ctx;
    double now = loop_now(c->s->on), last = c->start;
    for (int i = 0; i < c->n_choices; i++)
        last = c->choice[i].last > last ? c->choice[i].last : last;
    double left = last + c->s->keep_alive - now; /* until it has been silent for so long */
    loop_timer_set(c->quiet, left > 0 ? left : c->s->keep_alive);
    if (left > 0)
        return;
    if (!c->begun)
        begin_stream(c);
    buf_clear(&c->text);
    buf_add_str(&c->text, ": waiting\n\n");
    reply_add(c->to, &c->text);
    reply_flush(c->to);
}

/* Finds the special tokens that mark parts of an output (output_marks()): text alone would not show them. 0: none. */
static void find_marks(const tokenizer *t, int id[MAX_MARKS])
{
    int n;
    const char *const *marks = output_marks(&n);
    CHECK(n <= MAX_MARKS);
    for (int i = 0; i < n; i++) {
        int mark = tokenizer_token_id(t, marks[i]);
        id[i] = mark > 0 && tokenizer_is_special(t, mark) ? mark : 0;
    }
}

/* Returns what ends the output of a choice, and what is made of it. */
static answer_rules rules_of(const call *c, size_t n_prompt)
{
    const api_request *r = &c->p->asked;
    int room = c->p->context - (int)n_prompt;
    answer_rules rules = {.stop = r->stop,
                          .n_stops = r->n_stops,
                          .include_stop = r->include_stop,
                          .whole_chars = r->sampling.grammar_kind != 0,
                          .parts = r->parts,
                          .call_seed = r->parts.tools != TOOLS_NONE ? loop_random_id(c->s->on) : 0,
                          .logprobs = r->sampling.n_logprobs > 0,
                          .n_to_score = r->sampling.n_prompt_logprobs ? (int)n_prompt - 1 : 0,
                          .n_echoed = r->echo ? r->sampling.n_logprobs - 1 : -1,
                          .n_listed = r->prompt_logprobs,
                          .max_tokens = r->max_tokens >= 0 && r->max_tokens < room ? r->max_tokens : room,
                          .min_tokens = r->sampling.min_tokens};
    for (int i = 0; i < c->s->n_eos && !r->sampling.ignore_eos; i++)
        rules.end_id[rules.n_end_ids++] = c->s->eos[i];
    for (size_t i = 0; i < r->sampling.n_stop_ids; i++)
        rules.end_id[rules.n_end_ids++] = r->stop_id[i];
    if (r->parts.tools != TOOLS_NONE || r->parts.thinks != THINKS_NOT)
        find_marks(c->s->tools.t, rules.mark_id);
    return rules;
}

/* Puts the tenant's name into the cache salt, so that tenants share no pages of the KvCache, whatever they ask: how
 * soon an answer comes would tell one tenant what another has asked (a timing side channel). */
static void keep_apart(call *c)
{
    api_request *r = &c->p->asked;
    if (!c->who)
        return;
    char *salt = xasprintf("%s\n%s", tenant_name(c->who), r->sampling.cache_salt);
    free(r->cache_salt);
    r->sampling.cache_salt = r->cache_salt = salt;
}

/* Returns the sampling parameters of choice i of a prompt. Each draws from a seed of its own, the first from the one
 * that was asked for. To choose the best of several, logprobs are needed. */
static Sampling sampling_of(const call *c, int i, uint64_t seed)
{
    const api_request *r = &c->p->asked;
    Sampling s = r->sampling;
    s.n_logprobs = r->best_of > r->n && s.n_logprobs == 0 ? 1 : s.n_logprobs;
    if (c->p->is_registered) {
        s.adapter_id = c->p->what.id;
        s.adapter_source = c->p->what.source;
        s.trusted_source = c->p->what.trusted;
    }
    s.seed = i == 0 ? seed : rng_u64(seed, (uint64_t)i);
    return s;
}

/* Adds the choices of one prompt, best_of of them, and submits each as a request. */
static void add_choices(call *c, int number, uint64_t seed)
{
    const ids *prompt = &c->p->prompt[number];
    c->prompt_tokens += (int64_t)prompt->n;
    c->s->counts->prompt_tokens += prompt->n;
    c->unbilled[number] = (int64_t)prompt->n;
    for (int i = 0; i < c->p->asked.best_of; i++) {
        choice *k = &c->choice[c->n_choices];
        *k = (choice){.owner = c,
                      .index = c->n_choices++,
                      .prompt = number,
                      .in_flight = c->who,
                      .waits = true,
                      .rules = rules_of(c, prompt->n)};
        answer_init(&k->a, &k->rules, c->s->tools.t, c->s->plain_id, prompt->items, prompt->n);
        if (c->p->asked.echo)
            answer_echo(&k->a, &c->p->echo[number]);
        if (c->p->asked.sampling.n_prompt_logprobs)
            answer_begin_scores(&k->a, prompt->items[0]);
        const Sampling sampling = sampling_of(c, i, seed);
        int n_to_score = k->rules.n_to_score, max_tokens = k->rules.max_tokens;
        const dispatch_request r = {.tenant = c->who ? tenant_name(c->who) : NULL,
                                    .weight = c->who ? (uint32_t)tenant_weight(c->who) : 0,
                                    .priority = c->p->asked.priority,
                                    .adapter = c->kind == CATALOG_ADAPTER ? prepared_model(c->p) : NULL,
                                    .version = c->p->has_version ? &c->p->version : NULL,
                                    .token = prompt->items,
                                    .n_tokens = (int)prompt->n,
                                    .n_to_score = n_to_score,
                                    .max_tokens = max_tokens || n_to_score ? max_tokens : 1, /* one is made at least */
                                    .sampling = &sampling};
        if (c->who)
            tenant_begin(c->who, loop_now(c->s->on), 1, i == 0 ? (int64_t)prompt->n : 0);
        k->id = dispatch_submit(c->s->at_scheduler, &r, &events, k);
        c->n_open += k->id != 0;
    }
}

/* Returns how many bytes dispatch keeps of all choices, to submit them again: prompts and sampling parameters. */
static size_t requests_size(const call *c)
{
    size_t n = 0;
    for (int i = 0; i < c->p->n_prompts; i++)
        n += c->p->prompt[i].n;
    size_t sampling = sampling__get_packed_size(&c->p->asked.sampling) * (size_t)c->p->n_prompts;
    return (n * sizeof(uint32_t) + sampling) * (size_t)c->p->asked.best_of;
}

int call_submit(call *c, api_error *e)
{
    const api_request *r = &c->p->asked;
    if (take_memory(c, requests_size(c) + (r->repeated ? strlen(r->repeated) : 0), false, e))
        return -1;
    keep_apart(c);
    uint64_t seed = r->has_seed ? r->sampling.seed : loop_random_id(c->s->on);
    c->choice = XNEW_ARRAY(choice, (size_t)(c->p->n_prompts * r->best_of));
    c->unbilled = XNEW_ARRAY(int64_t, (size_t)c->p->n_prompts);
    c->bill = (account_entry){
        .who = c->who, .model = prepared_model(c->p), .version = c->p->has_version ? &c->p->version : NULL};
    for (int i = 0; i < c->p->n_prompts; i++)
        add_choices(c, i, seed);
    if (c->n_open == c->n_choices)
        return 0;
    return api_error_set(e, 429, NULL, "queue_full", "this frontend has too many requests at once; try again later");
}

void call_keep_alive(call *c)
{
    if (!c->p->asked.stream || c->s->keep_alive <= 0)
        return;
    c->quiet = loop_timer_new(c->s->on, on_quiet, c);
    loop_timer_set(c->quiet, c->s->keep_alive);
}
