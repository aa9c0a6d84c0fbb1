/* engine.c - see engine.h
 *
 * admission.c decides who runs and with which rows, sequence.c how the next token of each is drawn; this file makes
 * steps of them. A sequence's `token` array holds prompt and output; the first n_done of these have their keys and
 * values in the cache. The others are pending: one for a decode, more for a prompt. Each step makes room, runs the
 * model over the rows that were chosen, and appends what was drawn when it is collected.
 *
 * On a device that runs ahead, step n + 1 is queued before the tokens of step n are collected: the device feeds them to
 * itself (TOKEN_DRAWN), and the host prepares while it computes. A sequence then has a token `in_flight`, whose value
 * is not known here yet. A sequence that turns out to have ended has one row too many in the next step; its draw is
 * dropped. Its pages and adapter can be given away at once, since the device works in order.
 *
 * Penalties and grammars must know every token before the next is drawn. So if a step has a row of such a request, the
 * step before it is collected once the model is queued, before the draw is: masks are computed while the model runs. */
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>

#include "backend/group.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/batch_builder.h"
#include "engine/engine_sizes.h"
#include "engine/host_tier.h"
#include "engine/kv_pool.h"
#include "engine/sequence.h"

enum { MASKERS = 8 };     /* threads for masks, at most */
enum { MAX_SAVES = 256 }; /* pages on their way to the host at a time */

/* What a row of logits is for. owner: NULL when the sequence has left. scores: the index of the prompt's token that is
 * scored; 0: a token is drawn. */
typedef struct {
    sequence *owner;
    int scores;
} draw;

/* A step whose draws are not collected yet. */
typedef struct {
    draw *at; /* [engine_sizes_max_out()] */
    int n;
    step_work work;
    double queued; /* when the host began to prepare it */
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
    sample_spec *spec;            /* [engine_sizes_max_out()] */
    pool *maskers;                /* threads that compute masks; NULL: none was needed yet */
    flight flights[2];            /* oldest first */
    int n_flights;
    double collected; /* when the last step was collected */
    event *events;
    size_t n_events, events_cap;
    engine_stats stats;
};

engine_options engine_options_default(void)
{
    return (engine_options){
        .itl_target = 0.1, .page_len = KV_PAGE_LEN, .memory_share = 0.9, .image_bytes = (size_t)2 << 30};
}

static int make_kv_cache(engine *g, err *e)
{
    if (engine_sizes_check(&g->opt, g->m, e))
        return -1;
    g->kv[0].n_pages = g->opt.n_pages;
    if (forward_kv_alloc(g->m, g->kv, e))
        return engine_sizes_explain(g->kv, g->m, e);
    g->tier = host_tier_new(g->m->be, g->kv, engine_sizes_host_bytes(&g->opt, g->m));
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

/* Frees a sequence that admission has forgotten. Its draws in flight have no owner then. */
static void forget(engine *g, sequence *s)
{
    for (int f = 0; f < g->n_flights; f++)
        for (int i = 0; i < g->flights[f].n; i++)
            if (g->flights[f].at[i].owner == s)
                g->flights[f].at[i].owner = NULL;
    sequence_free(s);
}

/* Hands a running request back to the caller. */
static void on_evicted(void *ctx, admission_item *it)
{
    add_event(ctx, EVENT_EVICTED, (sequence *)it);
    forget(ctx, (sequence *)it);
}

static void on_failed(void *ctx, admission_item *it, const err *why)
{
    add_event(ctx, EVENT_FAILED, (sequence *)it)->error = *why;
    forget(ctx, (sequence *)it);
}

static void start_admission(engine *g)
{
    const engine_options *o = &g->opt;
    admission_limits limits = {o->max_batch, o->prefill_rows, SCORED_ROWS, o->now ? o->itl_target : 0};
    g->slots = adapter_slots_new(g->m->be, o->n_adapter_slots, o->image_bytes, o->adapters, o->loaders);
    g->admission = admission_new(&limits, g->pool, g->slots, (admission_events){on_evicted, on_failed, g});
}

engine *engine_new(const model *m, const engine_options *o, err *e)
{
    engine *g = XNEW(engine);
    *g = (engine){.m = m, .opt = *o};
    g->kv[0] = forward_kv(m, o->kv, 0, o->page_len);
    engine_sizes_choose(&g->opt, m, g->kv);
    size_t n = (size_t)g->opt.max_batch, n_out = (size_t)engine_sizes_max_out(&g->opt);
    g->prefill = XNEW_ARRAY(batch_item, n);
    g->decode = XNEW_ARRAY(batch_item, n);
    g->spec = XNEW_ARRAY(sample_spec, n_out);
    g->flights[0].at = XNEW_ARRAY(draw, n_out);
    g->flights[1].at = XNEW_ARRAY(draw, n_out);
    g->builder = batch_builder_new();
    if (make_kv_cache(g, e) == 0) {
        forward_limits l = engine_sizes_of_step(&g->opt, m);
        g->fwd = forward_new(m, &l, e);
    }
    if (!g->fwd) {
        engine_free(g);
        return NULL;
    }
    start_admission(g);
    return g;
}

/* Forgets a sequence, waiting or running. */
static void retire(engine *g, sequence *s)
{
    admission_remove(g->admission, &s->item);
    forget(g, s);
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

static int check_request(const engine *g, const engine_request *r, err *e)
{
    int n_output = r->n_tokens - r->n_prompt, vocab = g->m->config.vocab, limit = g->m->config.max_positions;
    CHECK(n_output >= 0);
    if (r->n_prompt < 1)
        return err_set(e, "the prompt is empty");
    if (r->n_scored < 0 || r->n_scored > sequence_n_to_score(r) ||
        (n_output > 0 && r->n_scored < sequence_n_to_score(r)))
        return err_set(e, "%d tokens of a prompt of %d cannot have been scored before %d were made", r->n_scored,
                       r->n_prompt, n_output);
    if (n_output >= r->sampling.max_tokens && r->n_scored == sequence_n_to_score(r))
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

int engine_add(engine *g, const engine_request *r, err *e)
{
    if (check_request(g, r, e))
        return -1;
    sequence *s = sequence_new(r, &g->m->config);
    if (g->opt.no_prefix_cache)
        s->item.root = (kv_key){0};
    admission_add(g->admission, &s->item);
    return 0;
}

void engine_cancel(engine *g, uint64_t id)
{
    admission_item *it = admission_find(g->admission, id);
    if (it)
        retire(g, (sequence *)it);
}

/* Returns how many of the item's last rows need logits: to score the token behind each, or to draw one. */
static int n_logit_rows(const sequence *s, const admission_rows *r)
{
    int end = s->item.n_done + r->n_rows,
        from = s->next_score - 1 > s->item.n_done ? s->next_score - 1 : s->item.n_done;
    return !s->item.is_scored ? r->draws : end > from ? end - from : 0;
}

/* Returns an item's rows for the batch: its pending tokens from n_done on; for a token in flight, the number of its
 * draw. */
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
                        .n_out = n_logit_rows(s, r),
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

/* Reports that a token of the prompt was scored. Where no output is wanted, the last one ends the request. */
static void on_score(engine *g, sequence *s, int token, const sample_result *r)
{
    add_event(g, EVENT_SCORE, s)->drawn = *r;
    if (token + 1 < s->item.limit)
        return;
    add_event(g, EVENT_FINISHED, s)->why = FINISH_LENGTH;
    retire(g, s);
}

static void on_token(engine *g, sequence *s, const sample_result *r)
{
    event *ev = add_event(g, EVENT_TOKEN, s);
    ev->drawn = *r;
    ev->n_cached = s->item.n_cached;
    g->stats.tokens++;
    finish_reason why;
    if (!sequence_add_drawn(s, r->token, &why))
        return;
    add_event(g, EVENT_FINISHED, s)->why = why;
    retire(g, s);
}

static void on_draw(engine *g, const draw *d, const sample_result *r)
{
    sequence *s = d->owner;
    s->item.in_flight -= d->scores == 0;
    if (r->token < 0) {
        sequence_explain_failure(s, &add_event(g, EVENT_FAILED, s)->error);
        admission_spoil(g->admission, &s->item);
        retire(g, s);
    } else if (d->scores) {
        on_score(g, s, d->scores, r);
    } else {
        on_token(g, s, r);
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

/* Notes what the logits of an item's last rows are for: to score the prompt's token behind the row, or to draw one. */
static void add_draws(flight *f, sequence *s, const batch_item *it)
{
    for (int row = it->n_rows - it->n_out; row < it->n_rows; row++) {
        int behind = it->position + row + 1;
        bool scores = s->item.is_scored && behind < s->n_prompt;
        s->draw = f->n;
        f->at[f->n++] = (draw){s, scores ? behind : 0};
    }
}

/* Tells the pool which steps are in flight: pages given back from now on may be in use by the newest. */
static void note_steps(engine *g)
{
    kv_pool_note_steps(g->pool, g->stats.steps, g->stats.steps - (uint64_t)g->n_flights);
}

/* Queues the model over the chosen rows. Returns its logits; NULL when there are no rows: all that run wait for their
 * last token, or for pages from the host. */
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
    note_steps(g);
    return logits;
}

/* Measures the oldest step in flight, which is done. It began when it was queued or when the one before it was done,
 * whichever came later. */
static void learn_step(engine *g, const flight *f)
{
    double end = now(g);
    admission_learn(g->admission, &f->work, end - fmax(f->queued, g->collected));
    g->collected = end;
}

/* Waits for the oldest step in flight and hands out its tokens. */
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
            on_draw(g, &g->flights[0].at[i], &drawn[i]);
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

/* The sequence that a token is drawn for; NULL: one is scored, or the sequence has left. */
static sequence *drawer(const draw *d)
{
    return d->scores ? NULL : d->owner;
}

/* Returns whether penalties or masks of this step depend on all tokens before. */
static bool needs_all_tokens(const flight *f)
{
    for (int i = 0; i < f->n; i++) {
        const sequence *s = drawer(&f->at[i]);
        if (s && (s->uses_history || s->mask))
            return true;
    }
    return false;
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
    if (s)
        sequence_fill_mask(s, c->g->m->config.vocab);
}

/* Computes the masks of all rows of a step, while the model runs. */
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

/* Queues a draw for each row of the newest step. */
static void queue_draws(engine *g, const tensor *logits)
{
    flight *f = &g->flights[g->n_flights - 1];
    fill_masks(g, f);
    for (int i = 0; i < f->n; i++) {
        const draw *d = &f->at[i];
        g->spec[i] = !d->owner   ? (sample_spec){.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1}
                     : d->scores ? sequence_score_spec(d->owner, d->scores)
                                 : sequence_draw_spec(d->owner);
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

/* Notes which pages have moved, and how long fetching one takes. */
static void poll_pages(engine *g, bool wait)
{
    note_steps(g);
    if (!g->tier)
        return;
    host_tier_poll(g->tier, g->pool, wait);
    admission_learn_fetch(g->admission, host_tier_page_seconds(g->tier));
}

/* Begins to fetch pages that admitted requests need, and to save those that will be taken next. */
static void move_pages(engine *g)
{
    if (!g->tier)
        return;
    kv_pool_save(g->pool, MAX_SAVES);
    host_tier_begin(g->tier, g->pool);
}

/* Reserves pages for the next step. The step waits for moves only if it was given a page that one of them still writes:
 * the page of a request that left before its prefix had arrived, taken because no other was free. */
static void make_room(engine *g)
{
    admission_make_room(g->admission);
    if (kv_pool_must_wait(g->pool))
        host_tier_order(g->tier);
}

/* Queues a step, then collects one: the step before it on a device that runs ahead, itself on others. */
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

/* Runs a full step's worth of prompts, and a few tokens for each of them. */
static int run_for_nobody(engine *g, err *e)
{
    int room = engine_sizes_within((double)g->opt.n_pages * g->opt.page_len / 2, 1, g->opt.prefill_rows);
    int each = engine_sizes_within(engine_sizes_longest(&g->opt, g->m) / 2, 1, USUAL_LEN < room ? USUAL_LEN : room),
        n = engine_sizes_within(room / each, 1, g->opt.max_batch), status = 0;
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
    if (!engine_sizes_is_gpu(g->m))
        return 0;
    bool shares_nothing = g->opt.no_prefix_cache;
    g->opt.no_prefix_cache = true;
    int status = run_for_nobody(g, e);
    admission_forget(g->admission); /* of steps that loaded kernels */
    if (status == 0)
        status = run_for_nobody(g, e);
    g->opt.no_prefix_cache = shares_nothing;
    g->stats = (engine_stats){.steps = g->stats.steps}; /* the pool knows steps by number */
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
