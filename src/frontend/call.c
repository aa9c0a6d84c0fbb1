/* call.c - see call.h */
#include "frontend/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "frontend/answer.h"
#include "frontend/fetches.h"

#define MAX_PREPARED_AT_ONCE (16 << 10) /* bytes of a body: some 2 ms */
#define MAX_WEIGHED (2 << 10)           /* bytes of one that is read although its tenant has to wait */
#define OUTPUT_PIECE (64u << 10)        /* bytes of an output that are paid for at once */

typedef struct call call;

typedef struct {
    call *owner;       /* borrowed: a choice is part of its call */
    uint64_t id;       /* at the scheduler; 0: not there */
    int index, prompt; /* number of the prompt it belongs to */
    bool in_hand;      /* its tenant has it among those in flight */
    bool waits;        /* it has no token yet */
    answer_rules rules;
    answer a;
    bool told;        /* of a stream: something of it */
    int n_counted;    /* tokens */
    int64_t n_cached; /* of its prompt */
    size_t taken;     /* from the budget, for what a holds */
    double last;      /* when the last of them came */
} choice;

struct call {
    service *s;         /* borrowed */
    tenant *who;        /* kept; NULL: where there are none */
    account_entry bill; /* of who */
    int64_t *unbilled;  /* [prompts] tokens of prompts that were not computed yet, as far as is known */
    reply *to;
    const api_shape *shape;
    prepare_job *preparing; /* NULL: it is prepared */
    fetch_wait *fetching;   /* its adapter comes to this host; NULL: it does not wait for that */
    charged_buf body;       /* meanwhile */
    int n_fetches;
    prepared *p;       /* NULL: not yet */
    const char *route; /* for the counts; static */
    catalog_kind kind;
    char name[48];   /* "cmpl-..." */
    char client[64]; /* its address */
    api_head head;
    void *events;   /* of a stream: what its shape keeps; NULL: nothing is begun */
    buf text;       /* scratch of a stream */
    choice *choice; /* [n_choices] */
    int n_choices, n_open;
    int64_t prompt_tokens, cached_tokens;
    bool begun;          /* of a stream: something has been sent */
    loop_timer *quiet;   /* of a stream: looks whether anything has been; NULL: nobody wants to know */
    double start, first; /* when it came, and its first token; first 0: none yet */
    budget *memory;      /* borrowed: the tenant's part; NULL: no limit */
    size_t taken;        /* from it */
};

/* What a call costs: the tokens of output that came here before the request was over, and with the first of them the
 * prompt, once for all its choices, of which whatever that choice found in the cache. A request that ends without one
 * costs nothing, whoever ended it. */
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

static void count_tokens(call *c, choice *k)
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

/* The end of a call. */

/* It is at the scheduler no more. */
static void close_choice(call *c, choice *k)
{
    dispatch_cancel(c->s->at_scheduler, k->id);
    k->id = 0;
    if (k->in_hand)
        tenant_end(c->who, k->waits);
    k->in_hand = false;
}

static void call_free(call *c)
{
    for (int i = 0; i < c->n_choices; i++) {
        count_tokens(c, &c->choice[i]); /* some may have come with what ended another */
        close_choice(c, &c->choice[i]);
        answer_deinit(&c->choice[i].a);
    }
    free(c->choice);
    free(c->unbilled);
    tenant_release(c->who);
    loop_timer_free(c->quiet);
    if (c->events)
        c->shape->stream_free(c->events);
    buf_free(&c->text);
    if (c->preparing)
        prepare_job_abandon(c->preparing);
    if (c->fetching)
        fetches_forget(c->fetching);
    charged_buf_free(&c->body);
    prepared_free(c->p);
    budget_give(c->memory, c->taken);
    c->s->counts->live_calls--;
    free(c);
}

static api_usage usage_of(const call *c)
{
    api_usage u = {.prompt = c->prompt_tokens, .cached = c->cached_tokens};
    for (int i = 0; i < c->n_choices; i++)
        u.completion += c->choice[i].a.n_tokens;
    for (int i = 0; i < c->n_choices; i++)
        u.reasoning += c->choice[i].a.reasoning_tokens;
    return u;
}

static void count(call *c, int status)
{
    static const char *const kinds[] = {
        [CATALOG_NOTHING] = "none", [CATALOG_BASE] = "base", [CATALOG_ADAPTER] = "adapter"};
    api_usage u = usage_of(c);
    double now = loop_now(c->s->on);
    metrics_count_answer(c->s->counts, c->route, kinds[c->kind], status);
    if (c->n_choices)
        metrics_count_model(c->s->counts, prepared_model(c->p), u.prompt, u.completion);
    access_log_write(c->s->log, now,
                     &(access_line){.method = "POST",
                                    .path = c->route,
                                    .status = status,
                                    .client = c->client,
                                    .key = c->who ? tenant_name(c->who) : NULL,
                                    .adapter = c->kind == CATALOG_NOTHING || !c->p ? NULL : prepared_model(c->p),
                                    .prompt = c->n_choices ? u.prompt : -1,
                                    .output = c->n_choices ? u.completion : -1,
                                    .first = c->first ? c->first - c->start : -1,
                                    .total = now - c->start});
}

static void count_loss(call *c, reply_loss why)
{
    if (why == CLIENT_DOES_NOT_READ) {
        log_info("frontend: %s is cut off: its client does not read", c->name);
        c->s->counts->cut_off++;
    } else {
        c->s->counts->disconnects++;
    }
    count(c, 499); /* as nginx counts clients that close */
}

static void on_client_gone(void *ctx, reply_loss why)
{
    call *c = ctx;
    count_loss(c, why);
    call_free(c);
}

/* The last bytes of a stream, and its end. */
static void end_stream(call *c, int status, const buf *last)
{
    reply_add(c->to, last);
    if (reply_end(c->to))
        count(c, status);
    else
        count_loss(c, CLIENT_DOES_NOT_READ);
}

static void fail(call *c, const api_error *e)
{
    buf text = {0};
    if (c->begun) {
        c->shape->stream_fail(c->events, &text, e);
        end_stream(c, e->status, &text);
    } else {
        count(c, e->status);
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", e->retry_after < 1 ? 1 : (int)e->retry_after);
        if (e->retry_after > 0 || e->status == 429 || e->status == 503)
            reply_add_header(c->to, "Retry-After", seconds);
        c->shape->write_error(e, &text);
        reply_send(c->to, e->status, "application/json", &text, c->s->draining);
    }
    buf_free(&text);
    call_free(c);
}

/* The likeliest by the token first; among equals, whichever was made first. */
static int by_likelihood(const void *a, const void *b)
{
    const choice *x = *(const choice *const *)a, *y = *(const choice *const *)b;
    double p = answer_likelihood(&x->a), q = answer_likelihood(&y->a);
    return p != q ? (p < q ? 1 : -1) : x->index - y->index;
}

/* Of each prompt's outputs, those that are told, numbered. Returns how many there are of all prompts. */
static int choose_best(call *c, api_choice *all)
{
    const api_request *r = &c->p->asked;
    choice *best[MAX_CHOICES];
    int n = 0;
    for (int first = 0; first < c->n_choices; first += r->best_of) {
        for (int i = 0; i < r->best_of; i++)
            best[i] = &c->choice[first + i];
        if (r->best_of > r->n)
            qsort(best, (size_t)r->best_of, sizeof *best, by_likelihood);
        for (int i = 0; i < r->n; i++, n++) {
            all[n] = answer_all(&best[i]->a);
            all[n].index = n;
        }
    }
    return n;
}

static void send_whole(call *c)
{
    buf body = {0};
    api_usage u = usage_of(c);
    api_choice *all = XNEW_ARRAY(api_choice, (size_t)c->n_choices);
    int n = choose_best(c, all);
    c->shape->write(&body, &c->head, all, n, &u);
    count(c, 200);
    reply_send(c->to, 200, "application/json", &body, c->s->draining);
    free(all);
    buf_free(&body);
}

static void send_last_events(call *c)
{
    api_usage u = usage_of(c);
    buf_clear(&c->text);
    c->shape->stream_end(c->events, &c->text, &u);
    end_stream(c, 200, &c->text);
}

static void finish(call *c)
{
    if (c->p->asked.stream)
        send_last_events(c);
    else
        send_whole(c);
    call_free(c);
}

/* What comes from the scheduler. */

static void begin_stream(call *c)
{
    api_usage u = usage_of(c);
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

/* After anything has happened to a choice. The call may be gone afterwards. */
static void tell(call *c, choice *k)
{
    if (c->p->asked.stream && answer_has_news(&k->a)) {
        if (!c->begun)
            begin_stream(c);
        send_news(c, k);
    }
    if (c->begun)
        reply_settle(c->to);
    if (k->a.state == ANSWER_OPEN)
        return;
    if (k->waits)
        bill(c, k, 0); /* nothing but the prompt was wanted */
    close_choice(c, k);
    if (--c->n_open == 0)
        finish(c);
}

/* On any thread. Most tokens are in the middle of a stream of one choice; they leave from here. */
static void on_tokens(void *ctx, const int *token, int n, Logprobs *const *p)
{
    choice *k = ctx;
    call *c = k->owner;
    for (int i = 0; i < n && k->a.state == ANSWER_OPEN; i++)
        answer_add(&k->a, token[i], p ? p[i] : NULL);
    if (c->begun && c->n_choices == 1 && k->a.state == ANSWER_OPEN && answer_has_news(&k->a))
        send_news(c, k);
}

/* For its prompts, or, when it runs, for more of its outputs. */
static int take_memory(call *c, size_t n, bool runs, api_error *e)
{
    if (!(runs ? budget_take_more : budget_take)(c->memory, n))
        return api_error_set(e, 503, NULL, "out_of_memory", "too many large requests are in hand; try again later");
    c->taken += n;
    return 0;
}

/* What an output holds beyond the first pieces, which belong to what every call is given, is taken from the budget. */
static int pay_for_output(choice *k, api_error *e)
{
    size_t held = answer_size(&k->a) / OUTPUT_PIECE * OUTPUT_PIECE, more = held > k->taken ? held - k->taken : 0;
    if (more && take_memory(k->owner, more, true, e))
        return -1;
    k->taken += more;
    return 0;
}

static void on_cached(void *ctx, uint32_t n)
{
    choice *k = ctx;
    k->n_cached = n;
}

static void on_settle(void *ctx)
{
    choice *k = ctx;
    api_error e;
    count_tokens(k->owner, k);
    if (pay_for_output(k, &e))
        fail(k->owner, &e);
    else
        tell(k->owner, k);
}

/* What a client is told of a request that did not come to its end. */
static void error_of(api_error *e, EndReason why, const char *message, double retry_after)
{
    static const struct {
        int status;
        const char *code, *message;
    } told[] = {
        [END_REASON__FAILED] = {500, "generation_failed", "the request failed"},
        [END_REASON__QUEUE_FULL] = {429, "queue_full", "too many requests are waiting; try again later"},
        [END_REASON__TOO_LATE] = {503, "too_late", "the request has waited for too long; try again later"},
        [END_REASON__TOO_LARGE] = {400, "context_length_exceeded", "the request does not fit into any GPU's KvCache"},
        [END_REASON__KILLS_WORKERS] = {500, "worker_died", "the request brought down its workers"},
    };
    if (why == END_REASON__FAILED && retry_after > 0) {
        api_error_set(e, 503, "model", "adapter_unavailable", "%s", message);
        e->retry_after = retry_after;
        return;
    }
    size_t i = (size_t)why < sizeof told / sizeof told[0] ? (size_t)why : END_REASON__FAILED;
    api_error_set(e, told[i].status, NULL, told[i].code, "%s", message && message[0] ? message : told[i].message);
    e->retry_after = retry_after;
}

static void on_end(void *ctx, EndReason why, const char *message, double retry_after)
{
    choice *k = ctx;
    k->id = 0;
    if (why == END_REASON__STOP || why == END_REASON__LENGTH) {
        answer_finish(&k->a, why == END_REASON__STOP ? ANSWER_STOP : ANSWER_LENGTH);
        tell(k->owner, k);
        return;
    }
    api_error e;
    error_of(&e, why, message, retry_after);
    fail(k->owner, &e);
}

static const dispatch_events events = {.tokens = on_tokens, .settle = on_settle, .cached = on_cached, .end = on_end};

/* A stream that waits, for its first token or in the middle, shows that it lives: whoever is in between, or the client
 * itself, may give up a connection on which nothing comes. It is a comment, which clients skip. */
static void on_quiet(void *ctx)
{
    call *c = ctx;
    double now = loop_now(c->s->on), last = c->start;
    for (int i = 0; i < c->n_choices; i++)
        last = c->choice[i].last > last ? c->choice[i].last : last;
    loop_timer_set(c->quiet, c->s->keep_alive);
    if (now - last < c->s->keep_alive)
        return;
    if (!c->begun)
        begin_stream(c);
    buf_clear(&c->text);
    buf_add_str(&c->text, ": waiting\n\n");
    reply_add(c->to, &c->text);
    reply_settle(c->to);
}

/* The beginning of a call. */

/* Those that text would not show. */
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

/* Tenants share no pages of the KvCache, whatever they ask: how soon an answer comes would tell one what another has
 * asked. */
static void keep_apart(call *c)
{
    api_request *r = &c->p->asked;
    if (!c->who)
        return;
    char *salt = xasprintf("%s\n%s", tenant_name(c->who), r->sampling.cache_salt);
    free(r->cache_salt);
    r->sampling.cache_salt = r->cache_salt = salt;
}

/* The n choices of one prompt. Each draws from a seed of its own; the first from the one that was asked for. */
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
                      .in_hand = c->who,
                      .waits = true,
                      .rules = rules_of(c, prompt->n)};
        answer_init(&k->a, &k->rules, c->s->tools.t, c->s->plain_id, prompt->items, prompt->n);
        if (c->p->asked.echo)
            answer_echo(&k->a, &c->p->echo[number]);
        if (c->p->asked.sampling.n_prompt_logprobs)
            answer_begin_scores(&k->a, prompt->items[0]);
        Sampling sampling = c->p->asked.sampling;
        sampling.n_logprobs = c->p->asked.best_of > c->p->asked.n && sampling.n_logprobs == 0 ? 1 : sampling.n_logprobs;
        if (c->p->is_registered) {
            sampling.adapter_id = c->p->what.id;
            sampling.adapter_source = c->p->what.source;
            sampling.trusted_source = c->p->what.trusted;
        }
        sampling.seed = i == 0 ? seed : rng_u64(seed, (uint64_t)i);
        int n_to_score = k->rules.n_to_score, max_tokens = k->rules.max_tokens;
        const dispatch_request r = {.tenant = c->who ? tenant_name(c->who) : NULL,
                                    .weight = c->who ? (uint32_t)tenant_weight(c->who) : 0,
                                    .priority = c->p->asked.priority,
                                    .adapter = c->kind == CATALOG_ADAPTER ? prepared_model(c->p) : NULL,
                                    .version = c->p->has_version ? &c->p->version : NULL,
                                    .token = prompt->items,
                                    .n_tokens = (int)prompt->n,
                                    .n_to_score = n_to_score,
                                    .max_tokens = max_tokens || n_to_score ? max_tokens : 1,
                                    .sampling = &sampling};
        if (c->who)
            tenant_begin(c->who, loop_now(c->s->on), 1, i == 0 ? (int64_t)prompt->n : 0);
        k->id = dispatch_submit(c->s->at_scheduler, &r, &events, k);
        c->n_open += k->id != 0;
    }
}

static int find_model(call *c, api_error *e)
{
    bool is_unnamed = c->p->asked.only_prompt && !*c->p->asked.model;
    c->kind = is_unnamed            ? CATALOG_BASE
              : c->p->is_registered ? CATALOG_ADAPTER
                                    : catalog_find(c->s->models, c->p->asked.model);
    return c->kind == CATALOG_NOTHING ? api_error_no_model(e, c->p->asked.model) : 0;
}

/* What the scheduler is told of all choices, and is kept to be told again. */
static size_t requests_size(const call *c)
{
    size_t n = 0;
    for (int i = 0; i < c->p->n_prompts; i++)
        n += c->p->prompt[i].n;
    size_t sampling = sampling__get_packed_size(&c->p->asked.sampling) * (size_t)c->p->n_prompts;
    return (n * sizeof(uint32_t) + sampling) * (size_t)c->p->asked.best_of;
}

static int submit_all(call *c, api_error *e)
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

/* what: why the adapter that is asked for cannot be served. */
static int refuse_adapter(const call *c, const err *what, api_error *e)
{
    return api_error_set(e, 400, "model", "invalid_adapter", "the adapter \"%s\" cannot be served: %s",
                         c->p->asked.model, what->msg);
}

static void add_header(void *ctx, const char *name, const char *value)
{
    reply_add_header(ctx, name, value);
}

/* Whether the tenant's limits have room for all choices. */
static int check_limits(call *c, api_error *e)
{
    double now = loop_now(c->s->on);
    int64_t prompts = 0;
    if (!c->who)
        return 0;
    for (int i = 0; i < c->p->n_prompts; i++)
        prompts += (int64_t)c->p->prompt[i].n;
    return tenant_check(c->who, now, c->p->n_prompts * c->p->asked.best_of, prompts, e);
}

static void tell_limits(call *c)
{
    if (c->who)
        tenant_headers(c->who, loop_now(c->s->on), add_header, c->to);
}

/* All is known that has to be. */
static void on_version(void *ctx, prepared *p)
{
    call *c = ctx;
    api_error e;
    c->preparing = NULL;
    c->p = p;
    int refused = (p->is_bad ? refuse_adapter(c, &p->error.what, &e) : 0) || check_limits(c, &e) || submit_all(c, &e);
    tell_limits(c);
    if (refused) {
        fail(c, &e);
        return;
    }
    prepared_drop_prompts(p);
    c->head = (api_head){.chat = c->shape->chat,
                         .id = c->name,
                         .model = p->asked.model,
                         .created = (int64_t)loop_wall(c->s->on),
                         .include_usage = p->asked.include_usage,
                         .repeated = p->asked.repeated};
    if (!p->asked.stream || c->s->keep_alive <= 0)
        return;
    c->quiet = loop_timer_new(c->s->on, on_quiet, c);
    loop_timer_set(c->quiet, c->s->keep_alive);
}

/* The prompt's tokens are all that was asked for. */
static void send_count(call *c)
{
    buf body = {0};
    for (int i = 0; i < c->p->n_prompts; i++)
        c->prompt_tokens += (int64_t)c->p->prompt[i].n;
    api_usage u = usage_of(c);
    if (c->shape->write_prompt)
        c->shape->write_prompt(&body, c->s->tools.t, &c->p->prompt[0], c->p->context, c->p->asked.token_strings);
    else
        c->shape->write(&body, &c->head, NULL, 0, &u);
    count(c, 200);
    tell_limits(c);
    reply_send(c->to, 200, "application/json", &body, c->s->draining);
    buf_free(&body);
    call_free(c);
}

static void read_body(call *c, charged_buf *body);

/* The adapter's files are on this host now, or cannot be. */
static void on_fetched(void *ctx, const err *why)
{
    call *c = ctx;
    api_error e;
    c->fetching = NULL;
    if (why) {
        api_error_set(&e, 503, "model", "adapter_unavailable", "the adapter cannot be fetched to this host: %s",
                      why->msg);
        fail(c, &e);
        return;
    }
    charged_buf body = c->body;
    c->body = (charged_buf){0};
    read_body(c, &body);
}

/* Prepare it again when the adapter's files are here. */
static void wait_for_files(call *c, prepared *p)
{
    enum { TRIES = 3 }; /* of a cache that is too small for what is wanted of it */
    api_error e;
    c->p = NULL;
    c->body = p->body;
    p->body = (charged_buf){0};
    if (!c->s->fetches || ++c->n_fetches > TRIES) {
        api_error_set(&e, 503, "model", "adapter_unavailable",
                      c->s->fetches ? "the disk cache of this host is too small to keep the adapter"
                                    : "this frontend has no disk cache (--cache), which registered adapters need");
        prepared_free(p);
        fail(c, &e);
        return;
    }
    c->fetching = fetches_ask(c->s->fetches, &p->what, on_fetched, c);
    prepared_free(p);
}

static void on_prepared(void *ctx, prepared *p)
{
    call *c = ctx;
    api_error e;
    c->preparing = NULL;
    c->p = p;
    if (!p->failed && p->is_missing) {
        wait_for_files(c, p);
        return;
    }
    if (p->failed || find_model(c, &e)) {
        tell_limits(c);
        fail(c, p->failed ? &p->error : &e);
        return;
    }
    if (c->shape->counts) {
        send_count(c);
        return;
    }
    check_state files = c->kind == CATALOG_ADAPTER && !p->is_registered
                            ? adapter_checks_know(c->s->tools.checks, p->asked.model, &p->error.what)
                            : CHECK_GOOD;
    p->is_bad = files == CHECK_BAD;
    if (p->is_registered)
        p->version = p->what.version;
    p->has_version = p->is_registered || (c->kind == CATALOG_ADAPTER && files == CHECK_GOOD &&
                                          versions_know(c->s->tools.adapters, p->asked.model, &p->version));
    if (c->kind == CATALOG_BASE || p->has_version || p->is_bad) {
        on_version(c, p);
        return;
    }
    c->p = NULL;
    c->preparing = preparer_find_version(c->s->preparer, p, on_version, c);
}

/* Whether calls are taken at all. */
static int check_call(const service *s, api_error *e)
{
    if (s->draining)
        return api_error_set(e, 503, NULL, "shutting_down", "this server is shutting down");
    if (!dispatch_is_patient(s->at_scheduler))
        return api_error_set(e, 503, NULL, "no_scheduler", "the scheduler cannot be reached; try again later");
    return 0;
}

/* Whether the tenant may begin a call, before its body costs anything. A short one is read first: its choices and its
 * prompt tell how long it has to wait. */
static int check_tenant(call *c, size_t n, api_error *e)
{
    if (!c->who)
        return 0;
    if (tenant_check_calls(c->who, c->s->max_calls, e))
        return -1;
    return n > MAX_WEIGHED || c->shape->counts ? tenant_check(c->who, loop_now(c->s->on), 1, 0, e) : 0;
}

static void read_body(call *c, charged_buf *body)
{
    api_error e;
    size_t n = body->bytes.len;
    const char *text = n ? body->bytes.data : "";
    model_view *seen = c->who ? tenant_view(c->who) : NULL;
    prepared *p = NULL;
    if (check_call(c->s, &e)) {
        fail(c, &e);
    } else if (check_tenant(c, n, &e)) {
        tell_limits(c);
        fail(c, &e);
    } else if (n <= MAX_PREPARED_AT_ONCE &&
               (p = c->s->preparer ? prepare_at_once(&c->s->tools, seen, c->shape, text, n)
                                   : prepare(&c->s->tools, seen, c->shape, text, n, NULL))) {
        if (p->is_missing) {
            p->body = *body;
            *body = (charged_buf){0};
        }
        on_prepared(c, p);
    } else {
        c->preparing = preparer_start(c->s->preparer, seen, c->shape, body, on_prepared, c);
    }
    charged_buf_free(body);
}

void call_start(service *s, tenant *who, reply *to, charged_buf *body, const api_shape *shape, const char *route,
                const char *request_id)
{
    call *c = XNEW(call);
    *c = (call){.s = s,
                .who = tenant_keep(who),
                .to = to,
                .shape = shape,
                .route = route,
                .start = loop_now(s->on),
                .memory = shared_budget_part(s->memory, who ? tenant_name(who) : NULL)};
    snprintf(c->client, sizeof c->client, "%s", to->client && *to->client ? to->client : "-");
    snprintf(c->name, sizeof c->name, "%s%016llx", shape->id_prefix, (unsigned long long)loop_random_id(s->on));
    s->counts->live_calls++;
    to->gone = on_client_gone;
    to->ctx = c;
    reply_add_header(c->to, "x-request-id", request_id[0] ? request_id : c->name);
    read_body(c, body);
}
