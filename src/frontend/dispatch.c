/* dispatch.c - see dispatch.h */
#include "frontend/dispatch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/id_map.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"

#define MIN_SHARED 16 /* requests with tokens at once: fewer are not worth waking threads for */

typedef struct live {
    uint64_t id;
    const dispatch_events *events; /* borrowed: static */
    void *ctx;
    double arrival; /* by the loop's clock */
    char *tenant;   /* "": the one without a name */
    uint32_t weight;
    int priority;
    char *adapter;  /* "": the base model */
    digest version; /* of the adapter */
    bool has_version;
    uint32_t *token; /* [n_tokens] prompt, then output */
    size_t n_tokens, n_prompt, token_cap;
    int max_tokens;
    size_t n_to_score, n_scored; /* tokens of the prompt that come with scores before output; how many have come */
    unsigned char *sampling;     /* [sampling_bytes] a packed Sampling */
    size_t sampling_bytes;
    bool submitted; /* over this link or one that was lost */
    bool has_news;  /* its owner is still to be told of tokens (news) */
    TAILQ_ENTRY(live) order;
} live;

typedef TAILQ_HEAD(live_list, live) live_list;

/* Tokens that have come, of which their owner does not know yet. */
typedef struct {
    uint64_t id;
    const dispatch_events *events;
    void *ctx;
    const Tokens *t; /* of the message that is being read */
    size_t skip;     /* how many of them had come before */
} token_news;

struct dispatch {
    net_loop *on; /* borrowed */
    net_link *link;
    bool up, ever_up, patient;
    loop_timer *patience; /* fires when the scheduler has been gone for too long */
    double patience_seconds;
    uint32_t n_gpus;     /* as the scheduler said; 0 while it is gone */
    held_versions *held; /* borrowed; NULL: there is no disk cache */
    void (*residents)(void *ctx, const Residents *r);
    void *residents_ctx;
    atomic_int *context; /* borrowed; NULL: nobody wants to know */
    int model_context;   /* what it was at first */
    int max_live;
    id_map *by_id; /* of live */
    live_list by_arrival;
    pool *threads;
    token_news *news; /* [n_news] of different requests */
    size_t n_news, news_cap;
    uint64_t next; /* the next id: they count up from a random start */
    uint64_t reconnections;
};

static live *find_live(const dispatch *d, uint64_t id)
{
    return id_map_get(d->by_id, id);
}

static void forget(dispatch *d, live *l)
{
    TAILQ_REMOVE(&d->by_arrival, l, order);
    id_map_remove(d->by_id, l->id);
    if (l->has_version)
        held_versions_release(d->held, &l->version);
    free(l->tenant);
    free(l->adapter);
    free(l->token);
    free(l->sampling);
    free(l);
}

static void end(dispatch *d, live *l, EndReason why, const char *message, double retry_after)
{
    const dispatch_events *events = l->events;
    void *ctx = l->ctx;
    forget(d, l);
    events->end(ctx, why, message, retry_after);
}

/* Towards the scheduler. */

static void send_submit(dispatch *d, live *l)
{
    Request r = REQUEST__INIT;
    r.id = l->id;
    r.age = loop_now(d->on) - l->arrival;
    r.tenant = l->tenant;
    r.weight = l->weight;
    r.priority = l->priority;
    r.adapter = l->adapter;
    r.tokens = l->token;
    r.n_tokens = l->n_tokens;
    r.n_prompt = (uint32_t)l->n_prompt;
    r.max_tokens = (uint32_t)l->max_tokens;
    r.n_to_score = (uint32_t)l->n_to_score;
    r.n_scored = (uint32_t)l->n_scored;
    r.sampling = (ProtobufCBinaryData){.data = l->sampling, .len = l->sampling_bytes};
    if (l->has_version)
        r.digest = (ProtobufCBinaryData){.data = l->version.byte, .len = DIGEST_BYTES};
    r.again = l->submitted;
    l->submitted = true;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_SUBMIT;
    m.submit = &r;
    link_send(d->link, &m);
}

static void send_cancel(dispatch *d, uint64_t id)
{
    Cancel c = CANCEL__INIT;
    c.id = id;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_CANCEL;
    m.cancel = &c;
    link_send(d->link, &m);
}

/* From the scheduler. */

static void on_up(void *ctx, net_link *link, const Hello *hello)
{
    (void)link;
    (void)hello;
    dispatch *d = ctx;
    d->reconnections += d->ever_up;
    d->up = d->ever_up = d->patient = true;
    loop_timer_stop(d->patience);
    live *l;
    TAILQ_FOREACH(l, &d->by_arrival, order)
    send_submit(d, l);
}

static void on_down(void *ctx, net_link *link, const char *why)
{
    (void)link;
    dispatch *d = ctx;
    log_warn("frontend: the scheduler is gone (%s); %d requests wait for it", why, dispatch_n_live(d));
    d->up = false;
    d->n_gpus = 0;
    loop_timer_set(d->patience, d->patience_seconds);
}

static void on_patience_over(void *ctx)
{
    dispatch *d = ctx;
    d->patient = false;
    if (dispatch_n_live(d))
        log_warn("frontend: no scheduler for %ld s; %d requests end", (long)d->patience_seconds, dispatch_n_live(d));
    for (live *l; (l = TAILQ_FIRST(&d->by_arrival));)
        end(d, l, END_REASON__TOO_LATE, "the scheduler cannot be reached", 0);
}

/* Returns how many tokens of a chunk have come before, and are to be skipped; -1 when some before the chunk are
 * missing. */
static long overlap(const live *l, const Tokens *t)
{
    size_t have = l->n_scored + l->n_tokens - l->n_prompt;
    if (t->index > have)
        return -1;
    size_t skip = have - t->index;
    return (long)(skip < t->n_tokens ? skip : t->n_tokens);
}

static void tell_owner(void *news, int i, int thread)
{
    (void)thread;
    const token_news *a = (const token_news *)news + i;
    const Tokens *t = a->t;
    LogprobList *list = t->logprobs.len ? logprob_list__unpack(NULL, t->logprobs.len, t->logprobs.data) : NULL;
    bool whole = list && list->n_tokens == t->n_tokens;
    a->events->tokens(a->ctx, (const int *)t->tokens + a->skip, (int)(t->n_tokens - a->skip),
                      whole ? list->tokens + a->skip : NULL);
    logprob_list__free_unpacked(list, NULL);
}

/* Tells all owners of the tokens that have come, on several threads if there are many, then calls after_tokens of
 * each on this one. What an owner does there may end other requests: so each is looked up again. */
static void tell_owners(dispatch *d)
{
    size_t n = d->n_news;
    d->n_news = 0;
    if (n >= MIN_SHARED)
        pool_run(d->threads, (int)n, tell_owner, d->news);
    else
        for (size_t i = 0; i < n; i++)
            tell_owner(d->news, (int)i, 0);
    for (size_t i = 0; i < n; i++) {
        live *l = find_live(d, d->news[i].id);
        if (l) {
            l->has_news = false;
            l->events->after_tokens(l->ctx);
        }
    }
}

/* Keeps new tokens, to submit the request again with them. Those that score the prompt are only counted: the prompt is
 * there already. */
static void keep(live *l, const uint32_t *token, size_t n)
{
    size_t left = l->n_to_score - l->n_scored, scored = n < left ? n : left;
    l->n_scored += scored;
    n -= scored;
    l->token = xgrow(l->token, &l->token_cap, l->n_tokens + n, sizeof *l->token);
    memcpy(l->token + l->n_tokens, token + scored, n * sizeof *l->token);
    l->n_tokens += n;
}

/* Keeps the tokens of a chunk that are new, to be told to their owner. False when tokens before them are missing. */
static bool receive_tokens(dispatch *d, const Tokens *t)
{
    live *l = find_live(d, t->id);
    if (l && l->has_news) { /* twice in one message: its owner is told of the first before the second */
        tell_owners(d);
        l = find_live(d, t->id);
    }
    long skip = l ? overlap(l, t) : 0;
    if (skip < 0)
        return false;
    size_t n = t->n_tokens - (size_t)skip;
    if (!l || n == 0)
        return true;
    if (t->cached && t->index == 0)
        l->events->cached(l->ctx, t->cached);
    keep(l, t->tokens + skip, n);
    d->news = xgrow(d->news, &d->news_cap, d->n_news + 1, sizeof *d->news);
    d->news[d->n_news++] = (token_news){.id = l->id, .events = l->events, .ctx = l->ctx, .t = t, .skip = (size_t)skip};
    l->has_news = true;
    return true;
}

/* Receives the tokens of a message and tells their owners. False when some are missing. */
static bool receive_all(dispatch *d, const Results *r)
{
    bool whole = true;
    for (size_t i = 0; i < r->n_tokens && whole; i++)
        whole = receive_tokens(d, r->tokens[i]);
    tell_owners(d);
    return whole;
}

static void receive_end(dispatch *d, const End *e)
{
    live *l = find_live(d, e->id);
    if (l)
        end(d, l, e->why, e->message, e->retry_after);
}

static void receive_cluster(dispatch *d, const Cluster *c)
{
    d->n_gpus = c->n_gpus;
    if (d->context && c->max_tokens > 0)
        atomic_store(d->context, c->max_tokens < (uint32_t)d->model_context ? (int)c->max_tokens : d->model_context);
}

static void on_message(void *ctx, net_link *link, const Message *m)
{
    dispatch *d = ctx;
    if (m->what_case == MESSAGE__WHAT_CLUSTER) {
        receive_cluster(d, m->cluster);
        return;
    }
    if (m->what_case == MESSAGE__WHAT_RESIDENTS) {
        if (d->residents)
            d->residents(d->residents_ctx, m->residents);
        return;
    }
    if (m->what_case != MESSAGE__WHAT_RESULTS) {
        link_drop(link, "it sent what a frontend does not understand");
        return;
    }
    if (!receive_all(d, m->results)) {
        link_drop(link, "tokens are missing");
        return; /* its ends may be those of outputs whose tokens are missing */
    }
    for (size_t i = 0; i < m->results->n_ends; i++)
        receive_end(d, m->results->ends[i]);
}

/* The owner's side. */

dispatch *dispatch_new(net_loop *on, const dispatch_options *o, err *e)
{
    dispatch *d = XNEW(dispatch);
    d->on = on;
    d->patient = true;
    d->threads = pool_new(o->threads);
    d->max_live = o->max_live;
    d->by_id = id_map_new();
    d->next = loop_random_id(on);
    d->patience_seconds = o->patience;
    d->context = o->context;
    d->held = o->held;
    d->residents = o->residents;
    d->residents_ctx = o->residents_ctx;
    d->model_context = o->context ? atomic_load(o->context) : 0;
    TAILQ_INIT(&d->by_arrival);
    d->patience = loop_timer_new(on, on_patience_over, d);
    loop_timer_set(d->patience, o->patience);

    link_options link = o->link;
    link.role = HELLO__ROLE__FRONTEND;
    const link_events events = {.up = on_up, .message = on_message, .down = on_down, .ctx = d};
    d->link = link_connect(on, o->scheduler, &link, &events, e);
    if (d->link)
        return d;
    dispatch_free(d);
    return NULL;
}

void dispatch_free(dispatch *d)
{
    if (!d)
        return;
    for (live *l; (l = TAILQ_FIRST(&d->by_arrival));)
        forget(d, l);
    if (d->link)
        link_free(d->link);
    loop_timer_free(d->patience);
    pool_free(d->threads);
    free(d->news);
    id_map_free(d->by_id);
    free(d);
}

static void set_tokens(live *l, const int *token, int n)
{
    l->token = xgrow(NULL, &l->token_cap, (size_t)n + 1, sizeof *l->token);
    for (int i = 0; i < n; i++)
        l->token[i] = (uint32_t)token[i];
    l->n_tokens = l->n_prompt = (size_t)n;
}

uint64_t dispatch_submit(dispatch *d, const dispatch_request *r, const dispatch_events *events, void *ctx)
{
    if (dispatch_n_live(d) >= d->max_live)
        return 0;
    live *l = XNEW(live);
    *l = (live){.id = d->next++,
                .events = events,
                .ctx = ctx,
                .arrival = loop_now(d->on),
                .tenant = xstrdup(r->tenant ? r->tenant : ""),
                .weight = r->weight,
                .priority = r->priority,
                .adapter = xstrdup(r->adapter ? r->adapter : ""),
                .max_tokens = r->max_tokens,
                .n_to_score = (size_t)r->n_to_score,
                .has_version = r->version,
                .sampling_bytes = sampling__get_packed_size(r->sampling)};
    if (r->version) {
        l->version = *r->version;
        held_versions_hold(d->held, &l->version);
    }
    l->sampling = xmalloc(l->sampling_bytes + 1);
    sampling__pack(r->sampling, l->sampling);
    set_tokens(l, r->token, r->n_tokens);
    id_map_put(d->by_id, l->id, l);
    TAILQ_INSERT_TAIL(&d->by_arrival, l, order);
    if (d->up)
        send_submit(d, l);
    return l->id;
}

void dispatch_cancel(dispatch *d, uint64_t id)
{
    live *l = find_live(d, id);
    if (!l)
        return;
    forget(d, l);
    if (d->up)
        send_cancel(d, id);
}

bool dispatch_is_up(const dispatch *d)
{
    return d->up;
}

bool dispatch_is_patient(const dispatch *d)
{
    return d->patient;
}

int dispatch_n_gpus(const dispatch *d)
{
    return (int)d->n_gpus;
}

int dispatch_n_live(const dispatch *d)
{
    return (int)id_map_count(d->by_id);
}

uint64_t dispatch_n_reconnections(const dispatch *d)
{
    return d->reconnections;
}

void dispatch_wake(dispatch *d)
{
    if (dispatch_n_live(d) >= MIN_SHARED)
        pool_wake(d->threads);
}
