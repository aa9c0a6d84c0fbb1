/* engine.c - see engine.h
 *
 * admission.c decides who runs and with which rows; this file keeps what the rows are made of and what comes of
 * them. A sequence's `token` array holds prompt and output; the first n_done of them have their keys and values in
 * the cache. What is left is pending: one for a decode, more for a prompt. Each step makes room, runs the model over
 * the rows that were chosen, and appends what was drawn when it is collected.
 *
 * On a device that runs ahead, step n + 1 is queued before the tokens of step n are collected: the
 * device feeds them to itself (TOKEN_DRAWN), and the host prepares while it computes. A sequence then has
 * a token `in_flight`, whose value is not known here yet. One that turns out to have ended has one row
 * too many in the next step; its draw is dropped. Its pages and adapter can be given away at once, since
 * the device works in order.
 *
 * Penalties and grammars must know every token before the next is drawn. So where a step has a row of such a request,
 * the step before it is collected between the model and the draw: the masks are computed while the model runs. */
#include "engine/engine.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/group.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/admission.h"
#include "engine/batch_builder.h"
#include "engine/host_tier.h"
#include "engine/token_counts.h"
#include "model/forward.h"

enum { MASKERS = 8 };       /* threads for masks, at most */
enum { MAX_SAVES = 256 };   /* pages on their way to the host at a time */
enum { SCORED_ROWS = 128 }; /* of a step: logits of so many rows need memory, and time for which others wait */

typedef struct {
    admission_item item; /* first; item.adapter and item.token are owned */
    size_t token_cap;
    int n_prompt;
    int next_score; /* the token of the prompt that is scored first; n_prompt: none is */
    int draw;       /* of the token in flight: its place among the draws of the step */
    int unknown;    /* what stands for it in a batch */
    sampling_params sampling;
    int n_end, end[MAX_EOS + MAX_STOP_IDS]; /* tokens that end the output */
    bool uses_history;
    token_counts history; /* when uses_history */
    token_rules rules;
    guide_state *state;   /* of the output in rules.grammar; NULL: none, or no token has been drawn yet */
    uint32_t *mask;       /* [guide_mask_words()] for the next draw; NULL: rules need none */
    bool only_end, stuck; /* by the mask: the grammar must end here; no token may come */
} sequence;

/* A row of logits. owner NULL: nobody wants it any more. scores: which token of the prompt; 0: one is drawn. */
typedef struct {
    sequence *owner;
    int scores;
} draw;

/* A step whose draws are not collected yet. */
typedef struct {
    draw *at; /* [max_out()] */
    int n;
    step_work work;
    double queued; /* when the host began with it */
} flight;

struct engine {
    const model *m; /* borrowed */
    engine_options opt;
    kv_pool *pool;
    kv_cache kv[MAX_RANKS]; /* of each device, all alike */
    host_tier *tier;        /* NULL: none */
    adapter_slots *slots;
    admission *admission;
    forward *fwd;
    batch_builder *builder;
    batch_item *prefill, *decode; /* [max_batch] scratch of a step */
    sample_spec *spec;            /* [max_out()] */
    pool *maskers;                /* threads that compute masks; NULL: nobody has asked for one yet */
    flight flights[2];            /* oldest first */
    int n_flights;
    double collected; /* when the last step was */
    event *events;
    size_t n_events, events_cap;
    engine_stats stats;
};

engine_options engine_options_default(void)
{
    return (engine_options){.itl_target = 0.1, .page_len = 16, .memory_share = 0.9, .image_bytes = (size_t)2 << 30};
}

/* What serves a device well: on the CPU more requests at once make every one slower and all together no faster, and
 * long steps gain nothing over those of some hundred rows. */
typedef struct { int batch, rows; } device_sizes;
static const device_sizes CPU_SIZES = {32, 1024}, GPU_SIZES = {256, GPU_PROMPT_ROWS};
enum { FEWEST_BATCH = 8, FEWEST_ROWS = 256 };
enum { USUAL_LEN = 1024 }; /* tokens of a request, by which room in the KvCache is counted */

static const double SPARE =
    0.05; /* of a device, that must be left whoever has the rest: steps need some, and adapters */
static const double SCRATCH = 0.02; /* of a device, for the activations of a step */

static bool is_gpu(const engine *g)
{
    backend *be = group_device(g->m->be, 0);
    return be->ops->memory(be) > 0;
}

/* Bytes that the KvCache may take on a device. On the CPU pages never used are never touched and so take no memory. */
static double room_on(const engine *g, backend *be)
{
    double all = (double)be->ops->memory(be), left = (double)be->ops->available(be);
    if (all == 0)
        return left / 2;
    double weights = (double)g->m->weight_bytes / group_devices(g->m->be);
    return fmin(g->opt.memory_share * all - weights, left - SPARE * all);
}

/* The same on each device: what the one with least has. */
static double room_for_pages(const engine *g)
{
    double room = INFINITY;
    for (int d = 0; d < group_devices(g->m->be); d++)
        room = fmin(room, room_on(g, group_device(g->m->be, d)));
    return room;
}

static int pages_of(const engine *g, int n_tokens)
{
    return (n_tokens + g->opt.page_len - 1) / g->opt.page_len;
}

static int longest(const engine *g)
{
    return g->opt.max_len > 0 ? g->opt.max_len : g->m->config.max_positions;
}

static int within(double n, int least, int most)
{
    return n < least ? least : n < most ? (int)n : most;
}

/* Of the KvCache: as many as fit, but no more than a full batch of the longest requests has. */
static int default_pages(const engine *g, double fit)
{
    return within(fmin(fit, (double)g->opt.max_batch * pages_of(g, longest(g))), 8, INT_MAX);
}

static int default_batch(const engine *g, double pages)
{
    int each = longest(g) < USUAL_LEN ? longest(g) : USUAL_LEN;
    return within(pages / pages_of(g, each), FEWEST_BATCH, is_gpu(g) ? GPU_SIZES.batch : CPU_SIZES.batch);
}

static int default_rows(const engine *g)
{
    backend *be = group_device(g->m->be, 0);
    if (!is_gpu(g))
        return CPU_SIZES.rows;
    return within(SCRATCH * (double)be->ops->memory(be) / (double)forward_row_bytes(g->m), FEWEST_ROWS, GPU_SIZES.rows);
}

/* What the caller has left open. */
static void choose_sizes(engine *g)
{
    engine_options *o = &g->opt;
    double fit = room_for_pages(g) / (double)kv_page_bytes(g->kv);
    o->max_batch = o->max_batch ? o->max_batch : default_batch(g, o->n_pages ? o->n_pages : fit);
    o->n_pages = o->n_pages ? o->n_pages : default_pages(g, fit);
    o->prefill_rows = o->prefill_rows ? o->prefill_rows : default_rows(g);
    o->n_adapter_slots = o->n_adapter_slots           ? o->n_adapter_slots
                         : o->max_batch > USUAL_SLOTS ? o->max_batch
                                                      : USUAL_SLOTS;
}

/* Pinned memory is the host's to nobody else, and pinning it takes time. */
static size_t host_bytes(const engine *g)
{
    static const size_t most =
        (size_t)4 << 30; /* pinned at a third of a second a GiB, each time a worker is started again */
    if (g->opt.no_prefix_cache || (g->opt.host_bytes == KV_HOST_AUTO && !is_gpu(g)))
        return 0;
    size_t share = mem_available() / 8;
    return g->opt.host_bytes != KV_HOST_AUTO ? g->opt.host_bytes : share < most ? share : most;
}

/* The KvCache did not fit: what takes how much, and what would fit. */
static int explain_memory(const engine *g, err *e)
{
    double gb = 1e9, page = (double)kv_page_bytes(g->kv), left = (double)g->m->be->ops->available(g->m->be);
    return err_wrap(
        e,
        "a KvCache of %d pages (%.2f GB) does not fit on %s: the weights take %.2f GB and %.2f GB are left, room for "
        "%d pages beside nothing else; ask for fewer (--kv-pages), or a smaller batch (--max-batch)",
        g->kv->n_pages, g->kv->n_pages * page / gb, g->m->be->name, (double)g->m->weight_bytes / gb, left / gb,
        (int)(left * 0.95 / page));
}

static int make_kv_cache(engine *g, err *e)
{
    if (longest(g) > g->m->config.max_positions)
        return err_set(e, "a request of %d tokens (--max-model-len) does not fit: the model allows %d", longest(g),
                       g->m->config.max_positions);
    g->kv[0].n_pages = g->opt.n_pages;
    if (g->opt.max_len > 0 && pages_of(g, longest(g)) > g->kv->n_pages)
        return err_set(e,
                       "a request of %d tokens does not fit: the KvCache has room for %lld on %s; allow fewer "
                       "(--max-model-len), more memory "
                       "(--memory-share, --kv-pages), or 8 bits (--kv fp8)",
                       longest(g), (long long)g->kv->n_pages * g->opt.page_len, g->m->be->name);
    if (forward_kv_alloc(g->m, g->kv, e))
        return explain_memory(g, e);
    g->tier = host_tier_new(g->m->be, g->kv, host_bytes(g));
    g->pool = kv_pool_new(g->kv->n_pages, host_tier_pages(g->tier), g->opt.page_len);
    return 0;
}

static double now(const engine *g)
{
    return g->opt.now ? g->opt.now(g->opt.now_ctx) : 0;
}

static event *add_event(engine *g, event_kind kind, const sequence *s)
{
    g->events = xgrow(g->events, &g->events_cap, g->n_events + 1, sizeof *g->events);
    event *ev = &g->events[g->n_events++];
    *ev = (event){.kind = kind, .id = s->item.id};
    return ev;
}

/* A sequence that admission has forgotten. */
static void sequence_free(engine *g, sequence *s)
{
    for (int f = 0; f < g->n_flights; f++)
        for (int i = 0; i < g->flights[f].n; i++)
            if (g->flights[f].at[i].owner == s)
                g->flights[f].at[i].owner = NULL;
    token_counts_deinit(&s->history);
    guide_state_free(s->state);
    token_rules_deinit(&s->rules);
    free(s->mask);
    free(s->item.adapter);
    free(s->item.token);
    free(s);
}

/* Hand a running request back to the caller. */
static void on_evicted(void *ctx, admission_item *it)
{
    add_event(ctx, EVENT_EVICTED, (sequence *)it);
    sequence_free(ctx, (sequence *)it);
}

static void on_failed(void *ctx, admission_item *it, const err *why)
{
    add_event(ctx, EVENT_FAILED, (sequence *)it)->error = *why;
    sequence_free(ctx, (sequence *)it);
}

static void start_admission(engine *g)
{
    const engine_options *o = &g->opt;
    admission_limits limits = {o->max_batch, o->prefill_rows, SCORED_ROWS, o->now ? o->itl_target : 0};
    g->slots = adapter_slots_new(g->m->be, o->n_adapter_slots, o->image_bytes, o->adapters, o->loaders);
    g->admission = admission_new(&limits, g->pool, g->slots, (admission_events){on_evicted, on_failed, g});
}

/* Rows of logits that a step may have. */
static int max_out(const engine_options *o)
{
    return o->max_batch + SCORED_ROWS;
}

/* The largest step. Requests that share pages each bring their own list of them. */
static forward_limits limits_of(const engine *g)
{
    const engine_options *o = &g->opt;
    double pages = (double)o->max_batch * fmin(pages_of(g, longest(g)), o->n_pages);
    return (forward_limits){
        o->prefill_rows + o->max_batch, o->max_batch, max_out(o), within(pages, 1, INT_MAX), o->page_len,
        MAX_PARTS * LORA_MAX_RANK,      o->kv};
}

engine *engine_new(const model *m, const engine_options *o, err *e)
{
    engine *g = XNEW(engine);
    *g = (engine){.m = m, .opt = *o};
    g->kv[0] = forward_kv(m, o->kv, 0, o->page_len);
    choose_sizes(g);
    size_t n = (size_t)g->opt.max_batch, n_out = (size_t)max_out(&g->opt);
    g->prefill = XNEW_ARRAY(batch_item, n);
    g->decode = XNEW_ARRAY(batch_item, n);
    g->spec = XNEW_ARRAY(sample_spec, n_out);
    g->flights[0].at = XNEW_ARRAY(draw, n_out);
    g->flights[1].at = XNEW_ARRAY(draw, n_out);
    g->builder = batch_builder_new();
    if (make_kv_cache(g, e) == 0) {
        forward_limits l = limits_of(g);
        g->fwd = forward_new(m, &l, e);
    }
    if (!g->fwd) {
        engine_free(g);
        return NULL;
    }
    start_admission(g);
    return g;
}

/* Forget a sequence, waiting or running. */
static void retire(engine *g, sequence *s)
{
    admission_remove(g->admission, &s->item);
    sequence_free(g, s);
}

void engine_free(engine *g)
{
    if (!g)
        return;
    for (admission_item *it; g->admission && (it = admission_last(g->admission));)
        retire(g, (sequence *)it);
    admission_free(g->admission);
    adapter_slots_free(g->slots);
    forward_free(g->fwd);
    batch_builder_free(g->builder);
    host_tier_free(g->tier);
    kv_pool_free(g->pool);
    forward_kv_release(g->m, g->kv);
    free(g->prefill);
    free(g->decode);
    free(g->spec);
    pool_free(g->maskers);
    free(g->flights[0].at);
    free(g->flights[1].at);
    free(g->events);
    free(g);
}

static void append_token(sequence *s, int token)
{
    s->item.token = xgrow(s->item.token, &s->token_cap, (size_t)s->item.n_tokens + 1, sizeof *s->item.token);
    if (s->uses_history)
        token_counts_add(&s->history, token, s->item.n_tokens >= s->n_prompt);
    s->item.token[s->item.n_tokens++] = token;
}

/* How many tokens of a prompt there are to score. */
static int n_to_score(const engine_request *r)
{
    return r->sampling.n_prompt_logprobs >= 0 ? r->n_prompt - 1 : 0;
}

static int check_request(const engine *g, const engine_request *r, err *e)
{
    int n_output = r->n_tokens - r->n_prompt, vocab = g->m->config.vocab, limit = g->m->config.max_positions;
    CHECK(n_output >= 0);
    if (r->n_prompt < 1)
        return err_set(e, "the prompt is empty");
    if (r->n_scored < 0 || r->n_scored > n_to_score(r) || (n_output > 0 && r->n_scored < n_to_score(r)))
        return err_set(e, "%d tokens of a prompt of %d cannot have been scored before %d were made", r->n_scored,
                       r->n_prompt, n_output);
    if (n_output >= r->sampling.max_tokens && r->n_scored == n_to_score(r))
        return err_set(e, "the request has no tokens left to make");
    if (r->n_tokens >= limit)
        return err_set(e, "the prompt has %d tokens; the model's limit is %d", r->n_tokens, limit);
    for (int i = 0; i < r->n_tokens; i++)
        if (r->token[i] < 0 || r->token[i] >= vocab)
            return err_set(e, "token id %d is outside the vocabulary of %d", r->token[i], vocab);
    int need = kv_pool_pages_for(g->pool, r->n_tokens + 1), have = kv_pool_total_pages(g->pool);
    if (need > have)
        return err_set(e, "%d tokens need %d KvCache pages; there are only %d (--kv-pages)", r->n_tokens + 1, need,
                       have);
    return sampling_check(&r->sampling, e) || token_rules_check(&r->rules, vocab, e) ? -1 : 0;
}

/* Ids outside the vocabulary are never drawn, and no mask has a bit for them. */
static void add_end_tokens(sequence *s, const int *id, int n, int vocab)
{
    for (int i = 0; i < n; i++)
        if (id[i] >= 0 && id[i] < vocab)
            s->end[s->n_end++] = id[i];
}

static void set_end_tokens(sequence *s, const model_config *c)
{
    add_end_tokens(s, c->eos, s->sampling.ignore_eos ? 0 : c->n_eos, c->vocab);
    add_end_tokens(s, s->sampling.stop, s->sampling.n_stop, c->vocab);
}

/* What the prompt and the limits on output and context allow. */
static int max_tokens_of(const engine *g, const engine_request *r)
{
    int positions = g->m->config.max_positions;
    return r->sampling.max_tokens < positions - r->n_prompt ? r->n_prompt + r->sampling.max_tokens : positions;
}

/* What its keys and values depend on beside its tokens, and who may share them. */
static kv_key root_of(const engine_request *r)
{
    digest d;
    kv_key key;
    const char *adapter = r->adapter ? r->adapter : "", *salt = r->cache_salt ? r->cache_salt : "";
    digest_of_parts(&d, (digest_part[]){{adapter, strlen(adapter) + 1}, {salt, strlen(salt)}}, 2);
    memcpy(&key, &d, sizeof key);
    key.part[0] |= 1;
    return key;
}

int engine_add(engine *g, const engine_request *r, err *e)
{
    if (check_request(g, r, e))
        return -1;
    sequence *s = XNEW(sequence);
    *s = (sequence){.item = {.id = r->id, .arrival = r->arrival, .limit = max_tokens_of(g, r)},
                    .n_prompt = r->n_prompt,
                    .sampling = r->sampling};
    s->item.adapter = r->adapter ? xstrdup(r->adapter) : NULL;
    s->next_score = r->n_prompt - n_to_score(r) + r->n_scored;
    s->item.is_scored = s->next_score < s->n_prompt;
    if (!g->opt.no_prefix_cache)
        s->item.root = root_of(r);
    s->uses_history =
        r->sampling.repetition_penalty != 1 || r->sampling.presence_penalty != 0 || r->sampling.frequency_penalty != 0;
    set_end_tokens(s, &g->m->config);
    token_rules_copy(&s->rules, &r->rules);
    if (token_rules_mask(&s->rules))
        s->mask = XNEW_ARRAY(uint32_t, (size_t)guide_mask_words(g->m->config.vocab));
    for (int i = 0; i < r->n_tokens; i++)
        append_token(s, r->token[i]);
    admission_add(g->admission, &s->item);
    return 0;
}

void engine_cancel(engine *g, uint64_t id)
{
    admission_item *it = admission_find(g->admission, id);
    if (it)
        retire(g, (sequence *)it);
}

/* Of an item's rows, how many of the last have logits that are wanted: to score the token behind each, or to draw one.
 */
static int n_out(const sequence *s, const admission_rows *r)
{
    int end = s->item.n_done + r->n_rows,
        from = s->next_score - 1 > s->item.n_done ? s->next_score - 1 : s->item.n_done;
    return !s->item.is_scored ? r->draws : end > from ? end - from : 0;
}

/* The rows are the pending tokens from n_done on; one in flight is named by its draw. */
static batch_item item_of(const engine *g, const admission_rows *r)
{
    sequence *s = (sequence *)r->item;
    const adapter_slot *slot = s->item.slot;
    s->unknown = TOKEN_DRAWN(s->draw);
    return (batch_item){.owner = s,
                        .token = s->item.n_done < s->item.n_tokens ? s->item.token + s->item.n_done : &s->unknown,
                        .n_rows = r->n_rows,
                        .position = s->item.n_done,
                        .kv = &s->item.kv,
                        .n_out = n_out(s, r),
                        .lora = slot ? adapter_slot_lora(slot) : NULL,
                        .place = slot ? adapter_slots_number(g->slots, slot) : 0};
}

static const batch *build_batch(engine *g, const admission_step *step)
{
    for (int i = 0; i < step->n_prefills; i++)
        g->prefill[i] = item_of(g, &step->prefill[i]);
    for (int i = 0; i < step->n_decodes; i++)
        g->decode[i] = item_of(g, &step->decode[i]);
    return batch_build(g->builder, g->prefill, step->n_prefills, g->decode, step->n_decodes);
}

static sample_spec spec_of_score(const sequence *s, int token)
{
    return (sample_spec){.top_p = 1,
                         .repetition_penalty = 1,
                         .n_logprobs = s->sampling.n_prompt_logprobs,
                         .given = true,
                         .token = s->item.token[token]};
}

static sample_spec spec_of(const sequence *s)
{
    const sampling_params *h = &s->sampling;
    int n_tokens = s->item.n_tokens + s->item.in_flight;
    bool too_early = n_tokens - s->n_prompt < h->min_tokens && !s->only_end;
    return (sample_spec){
        .temperature = h->temperature,
        .top_k = h->top_k,
        .top_p = h->top_p,
        .min_p = h->min_p,
        .repetition_penalty = h->repetition_penalty,
        .presence_penalty = h->presence_penalty,
        .frequency_penalty = h->frequency_penalty,
        .seed = h->seed,
        .position = (uint64_t)n_tokens,
        .n_seen = s->history.n,
        .seen = s->history.token,
        .seen_output = s->history.in_output,
        .n_banned = too_early ? s->n_end : 0,
        .banned = s->end,
        .mask = s->mask,
        .n_bias = s->rules.n_bias,
        .biased = s->rules.biased,
        .bias = s->rules.bias,
        .n_logprobs = h->n_logprobs,
    };
}

/* Whether the output ends with the token just appended. */
static bool is_finished(const sequence *s, finish_reason *why)
{
    *why = FINISH_STOP;
    for (int i = 0; i < s->n_end; i++)
        if (s->item.token[s->item.n_tokens - 1] == s->end[i])
            return true;
    *why = FINISH_LENGTH;
    return s->item.n_tokens >= s->item.limit;
}

/* Why nothing could be drawn. */
static void explain_failure(const sequence *s, err *e)
{
    const char *with = s->item.adapter ? " with adapter " : "", *adapter = s->item.adapter ? s->item.adapter : "";
    if (s->state && guide_state_is_exhausted(s->state))
        err_set(e, "the grammar is too ambiguous: following it takes more time or memory than a request has");
    else if (s->stuck)
        err_set(
            e,
            "no token of the vocabulary can follow the output so far, as the request's grammar or token lists demand");
    else
        err_set(e, "the model produced numbers that are not finite%s%s", with, adapter);
}

/* The prompt's token has been scored; it is the last of all where no output is wanted. */
static void take_score(engine *g, sequence *s, int token, const sample_result *r)
{
    add_event(g, EVENT_SCORE, s)->drawn = *r;
    if (token + 1 < s->item.limit)
        return;
    add_event(g, EVENT_FINISHED, s)->why = FINISH_LENGTH;
    retire(g, s);
}

static void take_token(engine *g, sequence *s, const sample_result *r)
{
    append_token(s, r->token);
    event *ev = add_event(g, EVENT_TOKEN, s);
    ev->drawn = *r;
    ev->n_cached = s->item.n_cached;
    g->stats.tokens++;
    finish_reason why;
    if (is_finished(s, &why)) {
        add_event(g, EVENT_FINISHED, s)->why = why;
        retire(g, s);
        return;
    }
    if (s->state)
        guide_state_add(s->state, r->token);
}

static void take_draw(engine *g, const draw *d, const sample_result *r)
{
    sequence *s = d->owner;
    s->item.in_flight -= d->scores == 0;
    if (r->token < 0) {
        explain_failure(s, &add_event(g, EVENT_FAILED, s)->error);
        admission_spoil(g->admission, &s->item);
        retire(g, s);
    } else if (d->scores) {
        take_score(g, s, d->scores, r);
    } else {
        take_token(g, s, r);
    }
}

static void count_step(engine_stats *s, const batch *b)
{
    s->steps++;
    s->rows += (uint64_t)b->n_rows;
    for (int i = 0; i < b->segs.n; i++)
        s->lora_bytes += b->segs.lora[i] ? b->segs.lora[i]->bytes : 0;
    for (int i = 0; i < b->n_prefills + b->n_decodes; i++) {
        int last_row =
            i < b->n_prefills ? b->prefill_indptr[i + 1] - 1 : b->prefill_indptr[b->n_prefills] + i - b->n_prefills;
        s->kv_positions += (uint64_t)b->position[last_row] + 1;
    }
}

/* What the logits of an item's last rows are for: a token of the prompt behind a row is scored. */
static void add_draws(flight *f, sequence *s, const batch_item *it)
{
    for (int row = it->n_rows - it->n_out; row < it->n_rows; row++) {
        int behind = it->position + row + 1;
        bool scores = s->item.is_scored && behind < s->n_prompt;
        s->draw = f->n;
        f->at[f->n++] = (draw){s, scores ? behind : 0};
    }
}

/* Pages that are given back from now on may be in use by the newest step in flight. */
static void tell_steps(engine *g)
{
    kv_pool_tell_steps(g->pool, g->stats.steps, g->stats.steps - (uint64_t)g->n_flights);
}

/* Queue the model over the chosen rows. NULL when there are none: all that run are full and wait for their last token.
 */
static const tensor *queue_model(engine *g)
{
    double begun = now(g);
    admission_step step = admission_choose_rows(g->admission);
    const batch *b = build_batch(g, &step);
    if (b->n_rows == 0)
        return NULL;
    const tensor *logits = forward_run(g->fwd, b, g->kv);
    flight *f = &g->flights[g->n_flights++];
    batch_item *lists[] = {g->prefill, g->decode};
    int counts[] = {step.n_prefills, step.n_decodes};
    f->n = 0;
    f->work = step.work;
    f->queued = begun;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < counts[l]; i++) {
            sequence *s = lists[l][i].owner;
            admission_advance(g->admission, &s->item, lists[l][i].n_rows);
            add_draws(f, s, &lists[l][i]);
        }
    count_step(&g->stats, b);
    tell_steps(g);
    return logits;
}

/* The oldest step in flight is done. It began when it was queued, or when the device was done with the one before. */
static void learn_step(engine *g, const flight *f)
{
    double end = now(g);
    admission_learn(g->admission, &f->work, end - fmax(f->queued, g->collected));
    g->collected = end;
}

/* Wait for the oldest step in flight and hand out its tokens. */
static int collect_step(engine *g, err *e)
{
    const sample_result *drawn = forward_collect(g->fwd, e);
    if (!drawn)
        return -1;
    flight f = g->flights[0];
    if (g->opt.drawn)
        g->opt.drawn(g->opt.drawn_ctx, f.n);
    learn_step(g, &f);
    for (int i = 0; i < f.n; i++)
        if (g->flights[0].at[i].owner)
            take_draw(g, &g->flights[0].at[i], &drawn[i]);
    g->flights[0] = g->flights[1];
    g->flights[1] = f;
    g->n_flights--;
    return 0;
}

static int collect_down_to(engine *g, int n_flights, err *e)
{
    while (g->n_flights > n_flights)
        if (collect_step(g, e))
            return -1;
    return 0;
}

/* Whose token is to be drawn; NULL: one is scored, or nobody wants it any more. */
static sequence *drawer(const draw *d)
{
    return d->scores ? NULL : d->owner;
}

/* Penalties and masks depend on every token before the next is drawn. */
static bool needs_all_tokens(const flight *f)
{
    for (int i = 0; i < f->n; i++) {
        const sequence *s = drawer(&f->at[i]);
        if (s && (s->uses_history || s->mask))
            return true;
    }
    return false;
}

/* The first time, the output of earlier attempts is followed too. */
static void follow_output(sequence *s)
{
    if (!s->rules.grammar || s->state)
        return;
    s->state = guide_state_new(s->rules.grammar);
    for (int i = s->n_prompt; i < s->item.n_tokens; i++)
        guide_state_add(s->state, s->item.token[i]);
}

typedef struct {
    const engine *g;
    const flight *f;
} mask_call;

static void fill_mask(void *arg, int item, int thread)
{
    (void)thread;
    const mask_call *c = arg;
    sequence *s = drawer(&c->f->at[item]);
    if (!s || !s->mask)
        return;
    follow_output(s);
    s->stuck = !token_rules_fill(&s->rules, s->state, s->item.token, s->item.n_tokens, s->item.n_tokens - s->n_prompt,
                                 s->end, s->n_end, c->g->m->config.vocab, s->mask, &s->only_end);
}

/* Masks of all rows of a step, while the model runs. */
static void fill_masks(engine *g, const flight *f)
{
    int n = 0;
    for (int i = 0; i < f->n; i++)
        n += drawer(&f->at[i]) && f->at[i].owner->mask;
    if (n == 0)
        return;
    if (!g->maskers)
        g->maskers = pool_new(pool_cores() > MASKERS ? MASKERS : 0);
    double start = now(g);
    pool_run(g->maskers, f->n, fill_mask, &(mask_call){g, f});
    g->stats.mask_seconds += now(g) - start;
}

/* Queue a draw for each row of the newest step. */
static void queue_draws(engine *g, const tensor *logits)
{
    flight *f = &g->flights[g->n_flights - 1];
    fill_masks(g, f);
    for (int i = 0; i < f->n; i++) {
        const draw *d = &f->at[i];
        g->spec[i] = !d->owner   ? (sample_spec){.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1}
                     : d->scores ? spec_of_score(d->owner, d->scores)
                                 : spec_of(d->owner);
    }
    forward_sample(g->fwd, logits, g->spec, f->n);
    for (int i = 0; i < f->n; i++)
        if (drawer(&f->at[i]))
            f->at[i].owner->item.in_flight++;
}

static bool anyone_runs(const engine *g)
{
    int n;
    admission_active(g->admission, &n);
    return n > 0;
}

/* Take note of pages that have moved. */
static void poll_pages(engine *g, bool wait)
{
    tell_steps(g);
    if (!g->tier)
        return;
    host_tier_poll(g->tier, g->pool, wait);
    admission_learn_fetch(g->admission, host_tier_page_seconds(g->tier));
}

/* Let pages move that those who were admitted need, or that will be taken next. */
static void move_pages(engine *g)
{
    if (!g->tier)
        return;
    kv_pool_save(g->pool, MAX_SAVES);
    host_tier_begin(g->tier, g->pool);
}

/* Have pages for the next step. It waits for moves only where one of them writes a page that it was given: that of a
 * request which left before its pages had come, while no others were free. */
static void make_room(engine *g)
{
    admission_make_room(g->admission);
    if (kv_pool_must_wait(g->pool))
        host_tier_order(g->tier);
}

/* Queue a step, then collect: the step before it on a device that runs ahead, itself on others. */
static int run_step(engine *g, err *e)
{
    make_room(g);
    const tensor *logits = queue_model(g);
    if (!logits && g->n_flights == 0 && !g->opt.never_waits)
        poll_pages(g, true);
    if (logits) {
        if (needs_all_tokens(&g->flights[g->n_flights - 1]) && collect_down_to(g, 1, e))
            return -1;
        queue_draws(g, logits);
    }
    if (collect_down_to(g, logits && g->m->be->runs_ahead ? 1 : 0, e))
        return -1;
    return anyone_runs(g) ? 0 : collect_down_to(g, 0, e);
}

int engine_step(engine *g, const event **events, int *n, err *e)
{
    g->n_events = 0;
    poll_pages(g, false);
    admission_admit(g->admission, !g->opt.never_waits);
    move_pages(g);
    int status = anyone_runs(g) || g->n_flights ? run_step(g, e) : 0;
    *events = g->events;
    *n = (int)g->n_events;
    return status;
}

bool engine_is_idle(const engine *g)
{
    return admission_last(g->admission) == NULL;
}

/* A full step's worth of prompts, and a few tokens for each of them. */
static int run_for_nobody(engine *g, err *e)
{
    int room = within((double)g->opt.n_pages * g->opt.page_len / 2, 1, g->opt.prefill_rows);
    int each = within(longest(g) / 2, 1, USUAL_LEN < room ? USUAL_LEN : room),
        n = within(room / each, 1, g->opt.max_batch), status = 0;
    int *token = XNEW_ARRAY(int, (size_t)each);
    for (int i = 0; i < each; i++)
        token[i] = i % g->m->config.vocab;
    for (int i = 0; i < n && status == 0; i++) {
        engine_request r = {.id = (uint64_t)i,
                            .arrival = (uint64_t)i,
                            .token = token,
                            .n_tokens = each,
                            .n_prompt = each,
                            .sampling = sampling_default()};
        r.sampling.max_tokens = 4;
        r.sampling.ignore_eos = true;
        status = engine_add(g, &r, e);
    }
    free(token);
    while (status == 0 && !engine_is_idle(g)) {
        const event *events;
        int n_events;
        status = engine_step(g, &events, &n_events, e);
    }
    return status;
}

int engine_warm_up(engine *g, err *e)
{
    CHECK(engine_is_idle(g));
    if (!is_gpu(g))
        return 0;
    bool shares_nothing = g->opt.no_prefix_cache;
    g->opt.no_prefix_cache = true;
    int status = run_for_nobody(g, e);
    admission_forget(g->admission); /* steps in which kernels were loaded */
    if (status == 0)
        status = run_for_nobody(g, e);
    g->opt.no_prefix_cache = shares_nothing;
    g->stats = (engine_stats){.steps = g->stats.steps}; /* pages know steps by their numbers */
    return status;
}

int engine_preload(engine *g, const char *adapter, err *e)
{
    adapter_slot *slot;
    slot_state state = adapter_slots_hold(g->slots, adapter, &slot);
    if (state == SLOT_FULL)
        return err_set(e, "all %d adapter slots are in use", g->opt.n_adapter_slots);
    while ((state = adapter_slot_state(slot, e)) == SLOT_LOADING && adapter_slots_busy(g->slots))
        adapter_slots_poll(g->slots, true);
    adapter_slots_drop(g->slots, slot);
    if (state == SLOT_LOADING)
        return err_set(e, "no memory is left for adapter %s while others are in use", adapter);
    return state == SLOT_READY ? 0 : -1;
}

engine_stats engine_get_stats(const engine *g)
{
    engine_stats s = g->stats;
    admission_stats a = admission_get_stats(g->admission);
    s.n_active = a.n_active;
    s.n_waiting = a.n_waiting;
    s.evictions = a.evictions;
    s.pages_total = a.pages_total;
    s.pages_free = a.pages_free;
    s.pages_cached = a.pages_cached;
    s.pages_peak = a.pages_peak;
    s.pages_wanted = a.pages_wanted;
    s.page_bytes = kv_page_bytes(g->kv) * (size_t)group_devices(g->m->be);
    s.page_len = g->opt.page_len;
    kv_tier tier = kv_pool_tier(g->pool);
    s.host_pages = tier.n_total;
    s.host_pages_used = tier.n_used;
    s.pages_saved = tier.moved[LANE_OUT];
    s.pages_fetched = tier.moved[LANE_IN];
    s.fetch_seconds = g->tier ? host_tier_page_seconds(g->tier) : 0;
    s.max_batch = g->opt.max_batch;
    s.prefill_rows = g->opt.prefill_rows;
    return s;
}

adapter_slots *engine_adapters(engine *g)
{
    return g->slots;
}
