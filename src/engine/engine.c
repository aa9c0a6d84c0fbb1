/* engine.c - see engine.h
 *
 *   add ──▶ waiting (by arrival) ──admit──▶ active (at most max_batch) ──▶ finished, evicted, failed
 *
 * A sequence's `token` array holds prompt and output; the first n_done of them have their keys and
 * values in the cache. What is left is pending: one for a decode, more for a prompt. Each step makes
 * room, picks the pending rows and runs the model over them; what was drawn is appended when it is
 * collected.
 *
 * On a device that runs ahead, step n + 1 is queued before the tokens of step n are collected: the
 * device feeds them to itself (TOKEN_DRAWN), and the host prepares while it computes. A sequence then has
 * a token `in_flight`, whose value is not known here yet. One that turns out to have ended has one row
 * too many in the next step; its draw is dropped. Its pages and adapter can be given away at once, since
 * the device works in order. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/batch_builder.h"
#include "engine/token_counts.h"
#include "model/forward.h"

typedef struct {
    uint64_t id, arrival;
    char *adapter;              /* NULL: the base model */
    adapter_slot *slot;         /* held; NULL until claimed */
    int *token;                 /* [n_tokens] */
    int n_tokens, n_prompt, n_done;
    int in_flight;              /* 1: a token has been drawn that is not collected yet */
    int draw;                   /* its place among the draws of the step */
    int unknown;                /* what stands for it in a batch */
    size_t token_cap;
    kv_seq kv;
    sampling how;
    int n_end, end[MAX_EOS + MAX_STOP_IDS];     /* tokens that end the output */
    bool uses_history;
    token_counts history;       /* when uses_history */
} sequence;

/* The draws of a step that are not collected yet; NULL: nobody wants it any more. */
typedef struct { sequence **owner; int n; } flight;     /* owner: [max_batch] */

struct engine {
    const model *m;             /* borrowed */
    engine_options opt;
    kv_pool *pool;
    kv_cache kv;
    adapter_slots *slots;
    forward *fwd;
    batch_builder *builder;
    sequence **waiting;         /* [n_waiting] by arrival */
    int n_waiting;
    size_t waiting_cap;
    sequence **active;          /* [n_active] by arrival; room for max_batch */
    int n_active;
    batch_item *prefill, *decode;       /* [max_batch] scratch of a step */
    sample_spec *spec;          /* [max_batch] */
    flight flights[2];          /* oldest first */
    int n_flights;
    event *events;
    size_t n_events, events_cap;
    engine_stats stats;
};

engine_options engine_options_default(void)
{
    return (engine_options){.max_batch = 32, .max_prefills = 1, .prefill_rows = 256, .page_len = 16, .n_adapter_slots = 64,
                            .image_bytes = (size_t)2 << 30};
}

/* max_batch requests of 2048 tokens (or the model's limit), but at most half of the memory now
 * free. On the CPU pages never used are never touched and so take no memory. */
static int default_pages(const engine *g)
{
    int limit = g->m->config.max_positions, len = limit < 2048 ? limit : 2048;
    double want = (double)g->opt.max_batch * (double)((len + g->opt.page_len - 1) / g->opt.page_len);
    double fits = (double)g->m->be->ops->available(g->m->be) / 2 / (double)kv_page_bytes(&g->kv);
    double n = want < fits ? want : fits;
    return n < 8 ? 8 : (int)n;
}

/* The KvCache did not fit: what takes how much, and what would fit. */
static int explain_memory(const engine *g, err *e)
{
    double gb = 1e9, page = (double)kv_page_bytes(&g->kv), left = (double)g->m->be->ops->available(g->m->be);
    return err_wrap(e, "a KvCache of %d pages (%.2f GB) does not fit on %s: the weights take %.2f GB and %.2f GB are left, room for "
                    "%d pages beside nothing else; ask for fewer (--kv-pages), or a smaller batch (--max-batch)",
                    g->kv.n_pages, g->kv.n_pages * page / gb, g->m->be->name, (double)g->m->weight_bytes / gb, left / gb,
                    (int)(left * 0.95 / page));
}

static int make_kv_cache(engine *g, err *e)
{
    const model_config *c = &g->m->config;
    g->kv = (kv_cache){.type = g->m->be->act, .n_layers = c->n_layers, .n_kv_heads = c->n_kv_heads,
                       .page_len = g->opt.page_len, .head_dim = c->head_dim};
    g->kv.n_pages = g->opt.n_pages ? g->opt.n_pages : default_pages(g);
    g->kv.data = g->m->be->ops->alloc(g->m->be, (size_t)g->kv.n_pages * kv_page_bytes(&g->kv), e);
    if (!g->kv.data)
        return explain_memory(g, e);
    g->pool = kv_pool_new(g->kv.n_pages, g->opt.page_len);
    return 0;
}

engine *engine_new(const model *m, const engine_options *o, err *e)
{
    engine *g = XNEW(engine);
    *g = (engine){.m = m, .opt = *o};
    size_t n = (size_t)o->max_batch;
    g->active = XNEW_ARRAY(sequence *, n);
    g->prefill = XNEW_ARRAY(batch_item, n);
    g->decode = XNEW_ARRAY(batch_item, n);
    g->spec = XNEW_ARRAY(sample_spec, n);
    g->flights[0].owner = XNEW_ARRAY(sequence *, n);
    g->flights[1].owner = XNEW_ARRAY(sequence *, n);
    g->builder = batch_builder_new();
    if (make_kv_cache(g, e) == 0) {
        forward_limits l = {o->prefill_rows + o->max_batch, o->max_batch, g->kv.n_pages, o->page_len, 3 * LORA_MAX_RANK};
        g->fwd = forward_new(m, &l, e);
    }
    if (!g->fwd) {
        engine_free(g);
        return NULL;
    }
    g->slots = adapter_slots_new(m->be, o->n_adapter_slots, o->image_bytes, o->adapters, o->loaders);
    return g;
}

static void sequence_free(engine *g, sequence *s)
{
    for (int f = 0; f < g->n_flights; f++)
        for (int i = 0; i < g->flights[f].n; i++)
            if (g->flights[f].owner[i] == s)
                g->flights[f].owner[i] = NULL;
    if (s->slot)
        adapter_slots_drop(g->slots, s->slot);
    kv_pool_release(g->pool, &s->kv);
    token_counts_deinit(&s->history);
    free(s->adapter);
    free(s->token);
    free(s);
}

void engine_free(engine *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_waiting; i++)
        sequence_free(g, g->waiting[i]);
    for (int i = 0; i < g->n_active; i++)
        sequence_free(g, g->active[i]);
    adapter_slots_free(g->slots);
    forward_free(g->fwd);
    batch_builder_free(g->builder);
    kv_pool_free(g->pool);
    if (g->kv.data)
        g->m->be->ops->release(g->m->be, g->kv.data);
    free(g->waiting);
    free(g->active);
    free(g->prefill);
    free(g->decode);
    free(g->spec);
    free(g->flights[0].owner);
    free(g->flights[1].owner);
    free(g->events);
    free(g);
}

static void append_token(sequence *s, int token)
{
    s->token = xgrow(s->token, &s->token_cap, (size_t)s->n_tokens + 1, sizeof *s->token);
    if (s->uses_history)
        token_counts_add(&s->history, token, s->n_tokens >= s->n_prompt);
    s->token[s->n_tokens++] = token;
}

/* Insert by arrival; the newest are at the end. */
static void insert_waiting(engine *g, sequence *s)
{
    g->waiting = xgrow(g->waiting, &g->waiting_cap, (size_t)g->n_waiting + 1, sizeof *g->waiting);
    int i = g->n_waiting++;
    for (; i > 0 && g->waiting[i - 1]->arrival > s->arrival; i--)
        g->waiting[i] = g->waiting[i - 1];
    g->waiting[i] = s;
}

static void remove_at(sequence **list, int *n, int i)
{
    memmove(&list[i], &list[i + 1], (size_t)(*n - i - 1) * sizeof *list);
    (*n)--;
}

static int check_request(const engine *g, const engine_request *r, err *e)
{
    int n_output = r->n_tokens - r->n_prompt, vocab = g->m->config.vocab, limit = g->m->config.max_positions;
    CHECK(n_output >= 0);
    if (r->n_prompt < 1)
        return err_set(e, "the prompt is empty");
    if (n_output >= r->how.max_tokens)
        return err_set(e, "the request has no tokens left to make");
    if (r->n_tokens >= limit)
        return err_set(e, "the prompt has %d tokens; the model's limit is %d", r->n_tokens, limit);
    for (int i = 0; i < r->n_tokens; i++)
        if (r->token[i] < 0 || r->token[i] >= vocab)
            return err_set(e, "token id %d is outside the vocabulary of %d", r->token[i], vocab);
    int need = kv_pool_pages_for(g->pool, r->n_tokens + 1), have = kv_pool_total_pages(g->pool);
    if (need > have)
        return err_set(e, "%d tokens need %d KvCache pages; there are only %d (--kv-pages)", r->n_tokens + 1, need, have);
    return sampling_check(&r->how, e);
}

static void set_end_tokens(sequence *s, const model_config *c)
{
    for (int i = 0; i < c->n_eos && !s->how.ignore_eos; i++)
        s->end[s->n_end++] = c->eos[i];
    for (int i = 0; i < s->how.n_stop; i++)
        s->end[s->n_end++] = s->how.stop[i];
}

int engine_add(engine *g, const engine_request *r, err *e)
{
    if (check_request(g, r, e))
        return -1;
    sequence *s = XNEW(sequence);
    *s = (sequence){.id = r->id, .arrival = r->arrival, .n_prompt = r->n_prompt, .how = r->how};
    s->adapter = r->adapter ? xstrdup(r->adapter) : NULL;
    s->uses_history = r->how.repetition_penalty != 1 || r->how.presence_penalty != 0 || r->how.frequency_penalty != 0;
    set_end_tokens(s, &g->m->config);
    for (int i = 0; i < r->n_tokens; i++)
        append_token(s, r->token[i]);
    insert_waiting(g, s);
    return 0;
}

void engine_cancel(engine *g, uint64_t id)
{
    sequence **lists[] = {g->waiting, g->active};
    int *counts[] = {&g->n_waiting, &g->n_active};
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < *counts[l]; i++)
            if (lists[l][i]->id == id) {
                sequence_free(g, lists[l][i]);
                remove_at(lists[l], counts[l], i);
                return;
            }
}

static event *add_event(engine *g, event_kind kind, uint64_t id)
{
    g->events = xgrow(g->events, &g->events_cap, g->n_events + 1, sizeof *g->events);
    event *ev = &g->events[g->n_events++];
    *ev = (event){.kind = kind, .id = id};
    return ev;
}

/* Drop the claim of the newest request that waits behind place i. False if none has one. */
static bool take_back_claim(engine *g, int i)
{
    for (int k = g->n_waiting - 1; k > i; k--)
        if (g->waiting[k]->slot) {
            adapter_slots_drop(g->slots, g->waiting[k]->slot);
            g->waiting[k]->slot = NULL;
            return true;
        }
    return false;
}

/* Claim the adapter of the request at place i, if it has one, and look how it stands. Claims made
 * ahead of time never keep an older request waiting. */
static slot_state claim_adapter(engine *g, int i, err *why)
{
    sequence *s = g->waiting[i];
    if (!s->adapter)
        return SLOT_READY;
    while (!s->slot && adapter_slots_hold(g->slots, s->adapter, &s->slot) == SLOT_FULL)
        if (!take_back_claim(g, i))
            return SLOT_FULL;
    return adapter_slot_state(s->slot, why);
}

/* Room in the batch, and pages for its tokens, the next one, and one more per running request. */
static bool can_admit(const engine *g, const sequence *s)
{
    int need = kv_pool_pages_for(g->pool, s->n_tokens + 1) + g->n_active;
    return g->n_active < g->opt.max_batch && need <= kv_pool_free_pages(g->pool);
}

static void activate(engine *g, sequence *s)
{
    CHECK(kv_pool_reserve(g->pool, &s->kv, s->n_tokens) == 0);
    int i = g->n_active++;
    for (; i > 0 && g->active[i - 1]->arrival > s->arrival; i--)
        g->active[i] = g->active[i - 1];
    g->active[i] = s;
}

/* Move waiting requests into the batch, oldest first. One that lacks room blocks all after it; one
 * whose adapter is still loading does not. The first max_batch in line get their adapters loaded
 * ahead of time. */
static void admit(engine *g)
{
    bool blocked = false;
    for (int i = 0, seen = 0; i < g->n_waiting && seen < g->opt.max_batch; seen++) {
        sequence *s = g->waiting[i];
        err why;
        slot_state state = claim_adapter(g, i, &why);
        if (state == SLOT_FULL)
            return;
        if (state == SLOT_FAILED) {
            add_event(g, EVENT_FAILED, s->id)->error = why;
            remove_at(g->waiting, &g->n_waiting, i);
            sequence_free(g, s);
            continue;
        }
        if (state == SLOT_READY && !blocked && can_admit(g, s)) {
            remove_at(g->waiting, &g->n_waiting, i);
            activate(g, s);
            continue;
        }
        blocked |= state == SLOT_READY;
        i++;
    }
}

/* Hand the newest running request back to the caller. */
static void evict_newest(engine *g)
{
    sequence *s = g->active[--g->n_active];
    add_event(g, EVENT_EVICTED, s->id);
    g->stats.evictions++;
    sequence_free(g, s);
}

/* Whether n tokens are all it may have. */
static bool is_full(const engine *g, const sequence *s, int n)
{
    return n - s->n_prompt >= s->how.max_tokens || n >= g->m->config.max_positions;
}

/* Every running request gets a page for its pending tokens; when pages run out the newest go. One whose last
 * token is in flight needs none: that token is not computed with. */
static void make_room(engine *g)
{
    for (int i = 0; i < g->n_active; i++) {
        sequence *s = g->active[i];
        if (is_full(g, s, s->n_tokens + s->in_flight))
            continue;
        while (i < g->n_active && kv_pool_reserve(g->pool, &s->kv, s->n_tokens + s->in_flight) != 0)
            evict_newest(g);
    }
}

/* The rows are the pending tokens from n_done on; one in flight is named by its draw. */
static batch_item item_of(sequence *s, int n_rows)
{
    s->unknown = TOKEN_DRAWN(s->draw);
    return (batch_item){.owner = s, .token = s->n_done < s->n_tokens ? s->token + s->n_done : &s->unknown, .n_rows = n_rows,
                        .position = s->n_done, .kv = &s->kv, .lora = s->slot ? adapter_slot_lora(s->slot) : NULL,
                        .wants_logits = s->n_done + n_rows == s->n_tokens + s->in_flight};
}

/* Choose the rows of this step: every decode, and prompts within the two limits, oldest first. */
static const batch *choose_rows(engine *g, int *n_prefills, int *n_decodes)
{
    int rows_left = g->opt.prefill_rows;
    *n_prefills = *n_decodes = 0;
    for (int i = 0; i < g->n_active; i++) {
        sequence *s = g->active[i];
        int pending = s->n_tokens + s->in_flight - s->n_done;
        if (is_full(g, s, s->n_tokens + s->in_flight))
            continue;               /* its last token is in flight */
        if (pending == 1) {
            g->decode[(*n_decodes)++] = item_of(s, 1);
        } else if (*n_prefills < g->opt.max_prefills && rows_left > 0) {
            int n = pending < rows_left ? pending : rows_left;
            g->prefill[(*n_prefills)++] = item_of(s, n);
            rows_left -= n;
        }
    }
    return batch_build(g->builder, g->prefill, *n_prefills, g->decode, *n_decodes);
}

static sample_spec spec_of(const sequence *s)
{
    const sampling *h = &s->how;
    int n_tokens = s->n_tokens + s->in_flight;
    bool too_early = n_tokens - s->n_prompt < h->min_tokens;
    return (sample_spec){
        .temperature = h->temperature, .top_k = h->top_k, .top_p = h->top_p, .min_p = h->min_p,
        .repetition_penalty = h->repetition_penalty, .presence_penalty = h->presence_penalty,
        .frequency_penalty = h->frequency_penalty, .seed = h->seed, .position = (uint64_t)n_tokens,
        .n_seen = s->history.n, .seen = s->history.token, .seen_output = s->history.in_output,
        .n_banned = too_early ? s->n_end : 0, .banned = s->end, .n_logprobs = h->n_logprobs,
    };
}

/* Whether the output ends with the token just appended. */
static bool is_finished(const engine *g, const sequence *s, finish_reason *why)
{
    *why = FINISH_STOP;
    for (int i = 0; i < s->n_end; i++)
        if (s->token[s->n_tokens - 1] == s->end[i])
            return true;
    *why = FINISH_LENGTH;
    return is_full(g, s, s->n_tokens);
}

static void retire(engine *g, sequence *s)
{
    for (int i = 0; i < g->n_active; i++)
        if (g->active[i] == s) {
            remove_at(g->active, &g->n_active, i);
            sequence_free(g, s);
            return;
        }
    CHECK(!"retired sequence is active");
}

static void take_token(engine *g, sequence *s, const sample_result *r)
{
    if (r->token < 0) {
        err_set(&add_event(g, EVENT_FAILED, s->id)->error, "the model produced numbers that are not finite%s%s",
                s->adapter ? " with adapter " : "", s->adapter ? s->adapter : "");
        retire(g, s);
        return;
    }
    append_token(s, r->token);
    add_event(g, EVENT_TOKEN, s->id)->drawn = *r;
    g->stats.tokens++;
    finish_reason why;
    if (is_finished(g, s, &why)) {
        add_event(g, EVENT_FINISHED, s->id)->why = why;
        retire(g, s);
    }
}

static void count_step(engine_stats *s, const batch *b)
{
    s->steps++;
    s->rows += (uint64_t)b->n_rows;
    for (int i = 0; i < b->segs.n; i++)
        s->lora_bytes += b->segs.lora[i] ? b->segs.lora[i]->bytes : 0;
    for (int i = 0; i < b->n_prefills + b->n_decodes; i++) {
        int last_row = i < b->n_prefills ? b->prefill_indptr[i + 1] - 1 : b->prefill_indptr[b->n_prefills] + i - b->n_prefills;
        s->kv_positions += (uint64_t)b->position[last_row] + 1;
    }
}

/* Queue the model over the chosen rows, and a draw for each sequence whose rows are complete. False when
 * there are none: all that run are full and wait for their last token. */
static bool queue_step(engine *g)
{
    int n_prefills, n_decodes;
    const batch *b = choose_rows(g, &n_prefills, &n_decodes);
    if (b->n_rows == 0)
        return false;
    const tensor *logits = forward_run(g->fwd, b, &g->kv);
    flight *f = &g->flights[g->n_flights++];
    batch_item *lists[] = {g->prefill, g->decode};
    int counts[] = {n_prefills, n_decodes};
    f->n = 0;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < counts[l]; i++) {
            sequence *s = lists[l][i].owner;
            s->n_done += lists[l][i].n_rows;
            if (!lists[l][i].wants_logits)
                continue;
            g->spec[f->n] = spec_of(s);
            s->draw = f->n;
            f->owner[f->n++] = s;
        }
    g->m->be->ops->sample(g->m->be, logits, g->spec, f->n);
    for (int i = 0; i < f->n; i++)
        f->owner[i]->in_flight++;
    count_step(&g->stats, b);
    return true;
}

/* Wait for the oldest step in flight and hand out its tokens. */
static int collect_step(engine *g, err *e)
{
    const sample_result *drawn = g->m->be->ops->collect(g->m->be, e);
    if (!drawn)
        return -1;
    flight f = g->flights[0];
    for (int i = 0; i < f.n; i++)
        if (f.owner[i]) {
            f.owner[i]->in_flight--;
            take_token(g, f.owner[i], &drawn[i]);
        }
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

/* Penalties need to know every token before the next is drawn. */
static bool needs_all_tokens(const engine *g)
{
    for (int i = 0; i < g->n_active; i++)
        if (g->active[i]->uses_history)
            return true;
    return false;
}

/* Queue a step, then collect: the step before it on a device that runs ahead, itself on others. */
static int run_step(engine *g, err *e)
{
    if (needs_all_tokens(g) && collect_down_to(g, 0, e))
        return -1;
    make_room(g);
    int used = kv_pool_total_pages(g->pool) - kv_pool_free_pages(g->pool);
    g->stats.pages_peak = used > g->stats.pages_peak ? used : g->stats.pages_peak;
    bool queued = queue_step(g);
    if (collect_down_to(g, queued && g->m->be->runs_ahead ? 1 : 0, e))
        return -1;
    return g->n_active ? 0 : collect_down_to(g, 0, e);
}

int engine_step(engine *g, const event **events, int *n, err *e)
{
    g->n_events = 0;
    adapter_slots_poll(g->slots, false);
    admit(g);
    if (g->n_active == 0 && g->n_waiting > 0 && g->n_events == 0 && !g->opt.never_waits) {
        adapter_slots_poll(g->slots, true);
        admit(g);
    }
    int status = g->n_active || g->n_flights ? run_step(g, e) : 0;
    *events = g->events;
    *n = (int)g->n_events;
    return status;
}

bool engine_is_idle(const engine *g)
{
    return g->n_active == 0 && g->n_waiting == 0;
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
    s.n_active = g->n_active;
    s.n_waiting = g->n_waiting;
    s.pages_total = kv_pool_total_pages(g->pool);
    s.pages_free = kv_pool_free_pages(g->pool);
    s.page_bytes = kv_page_bytes(&g->kv);
    s.page_len = g->opt.page_len;
    for (int i = 0; i < g->n_waiting; i++)
        s.pages_wanted += kv_pool_pages_for(g->pool, g->waiting[i]->n_tokens + 1);
    return s;
}
