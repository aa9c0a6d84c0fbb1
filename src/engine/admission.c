/* admission.c - see admission.h */
#include "engine/admission.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Seconds of steps after its first decode from which on a stream is an elder for every prompt (row_budget.h): eight of
 * the longest steps, in which some 3000 rows of a 1.1B model are computed on two cores. */
static const double YOUNG_SECONDS = 16;

typedef struct {
    admission_item **at;
    int n;
    size_t cap;
} list; /* by age, oldest first */

struct admission {
    admission_limits limit;
    kv_pool *pool;        /* borrowed */
    adapter_slots *slots; /* borrowed */
    admission_events events;
    list waiting, active;             /* active.n <= max_batch */
    admission_rows *prefill, *decode; /* [max_batch] of the step that was chosen */
    row_budget budget;
    double fetch_seconds; /* of a page from the host */
    double step_seconds;  /* of all steps so far */
    int pages_peak;
    uint64_t n_admitted, evictions, failures;
};

admission *admission_new(const admission_limits *l, kv_pool *pool, adapter_slots *slots, admission_events events)
{
    admission *a = XNEW(admission);
    *a = (admission){.limit = *l, .pool = pool, .slots = slots, .events = events};
    a->prefill = XNEW_ARRAY(admission_rows, (size_t)l->max_batch);
    a->decode = XNEW_ARRAY(admission_rows, (size_t)l->max_batch);
    row_budget_init(&a->budget, l->itl_target);
    return a;
}

void admission_free(admission *a)
{
    if (!a)
        return;
    CHECK(a->waiting.n == 0 && a->active.n == 0);
    free(a->waiting.at);
    free(a->active.at);
    free(a->prefill);
    free(a->decode);
    free(a);
}

static bool is_older(const admission_item *x, const admission_item *y)
{
    return x->arrival != y->arrival ? x->arrival < y->arrival : x->id < y->id;
}

static void insert(list *l, admission_item *it)
{
    l->at = xgrow(l->at, &l->cap, (size_t)l->n + 1, sizeof *l->at);
    int i = l->n++;
    for (; i > 0 && is_older(it, l->at[i - 1]); i--)
        l->at[i] = l->at[i - 1];
    l->at[i] = it;
}

static admission_item *remove_at(list *l, int i)
{
    admission_item *it = l->at[i];
    memmove(&l->at[i], &l->at[i + 1], (size_t)(l->n - i - 1) * sizeof *l->at);
    l->n--;
    return it;
}

static int place_of(const list *l, const admission_item *it)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == it)
            return i;
    return -1;
}

static admission_item *find_id(const list *l, uint64_t id)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i]->id == id)
            return l->at[i];
    return NULL;
}

static void drop_claim(admission *a, admission_item *it)
{
    if (it->slot)
        adapter_slots_drop(a->slots, it->slot);
    it->slot = NULL;
}

/* Gives back what an item that leaves has held. */
static void release(admission *a, admission_item *it)
{
    drop_claim(a, it);
    kv_pool_release(a->pool, &it->kv);
}

void admission_add(admission *a, admission_item *it)
{
    CHECK(kv_pool_pages_for(a->pool, it->n_tokens + 1) <= kv_pool_total_pages(a->pool));
    insert(&a->waiting, it);
}

void admission_remove(admission *a, admission_item *it)
{
    int i = place_of(&a->active, it), k = i < 0 ? place_of(&a->waiting, it) : -1;
    CHECK(i >= 0 || k >= 0);
    if (i >= 0)
        remove_at(&a->active, i);
    else
        remove_at(&a->waiting, k);
    release(a, it);
}

void admission_spoil(admission *a, admission_item *it)
{
    kv_pool_spoil(a->pool, &it->kv);
}

admission_item *admission_find(const admission *a, uint64_t id)
{
    admission_item *it = find_id(&a->active, id);
    return it ? it : find_id(&a->waiting, id);
}

admission_item *admission_last(const admission *a)
{
    const list *l = a->waiting.n ? &a->waiting : &a->active;
    return l->n ? l->at[l->n - 1] : NULL;
}

admission_item *const *admission_active(const admission *a, int *n)
{
    *n = a->active.n;
    return a->active.at;
}

/* Drops the claim of the newest item that waits behind place i. False if none has one. */
static bool take_back_claim(admission *a, int i)
{
    for (int k = a->waiting.n - 1; k > i; k--)
        if (a->waiting.at[k]->slot) {
            drop_claim(a, a->waiting.at[k]);
            return true;
        }
    return false;
}

/* Claims the adapter of the item at place i, if it has one, and returns its state. Takes back claims of newer items if
 * need be: they never keep an older one waiting. */
static slot_state claim_adapter(admission *a, int i, err *why)
{
    admission_item *it = a->waiting.at[i];
    if (!it->adapter)
        return SLOT_READY;
    while (!it->slot && adapter_slots_hold(a->slots, it->adapter, &it->slot) == SLOT_FULL)
        if (!take_back_claim(a, i))
            return SLOT_FULL;
    return adapter_slot_state(it->slot, why);
}

/* How many of its tokens may come from the cache. The last is always computed, for the next token's logits; if the
 * prompt is scored, all are. */
static int n_findable(const admission_item *it)
{
    return it->token && !it->is_scored ? it->n_tokens - 1 : 0;
}

static int n_tokens(const admission_item *it)
{
    return it->n_tokens + it->in_flight;
}

/* Tokens that are still to be computed. The last of its limit never is. */
static int n_pending(const admission_item *it)
{
    int n = n_tokens(it) < it->limit ? n_tokens(it) : it->limit - 1;
    return n - it->n_done;
}

/* Returns whether fetching pages from the host is faster than computing them. The copies queue behind those under way,
 * and the pages can be used after the others' next step. True as long as no step with prompts was measured. */
static bool comes_faster(const admission *a, const kv_found *f)
{
    int from = f->n_near * kv_pool_page_len(a->pool), n = f->n_pages * kv_pool_page_len(a->pool) - from;
    double compute = row_budget_rows_time(&a->budget, from, n);
    double copy = (kv_pool_tier(a->pool).moving[LANE_IN] + f->n_far) * a->fetch_seconds;
    step_work others = {0};
    for (int i = 0; i < a->active.n; i++)
        if (n_pending(a->active.at[i]) == 1) {
            others.n_decodes++;
            others.decode_reads += a->active.at[i]->n_done + 1;
        }
    return compute <= 0 || copy + (others.n_decodes ? row_budget_predict(&a->budget, &others) : 0) < compute;
}

/* How many of its tokens are to come from the cache: those on the host only if fetching them is faster. */
static int n_to_share(const admission *a, const admission_item *it)
{
    kv_found f = kv_pool_find(a->pool, it->root, it->token, n_findable(it));
    return kv_pool_page_len(a->pool) * (f.n_far == 0 || comes_faster(a, &f) ? f.n_pages : f.n_near);
}

/* Returns whether there is room in the batch, and pages for its tokens, the next one, and one more per running item.
 * Pages that it will share with running items cost nothing. */
static bool has_room(const admission *a, const admission_item *it)
{
    kv_found found = kv_pool_find(a->pool, it->root, it->token, n_to_share(a, it));
    int need = kv_pool_pages_for(a->pool, it->n_tokens + 1) - found.in_use + a->active.n;
    return a->active.n < a->limit.max_batch && need <= kv_pool_free_pages(a->pool);
}

static void activate(admission *a, admission_item *it)
{
    it->n_done = it->n_cached = kv_pool_share(a->pool, &it->kv, it->root, it->token, n_to_share(a, it));
    CHECK(kv_pool_reserve(a->pool, &it->kv, it->n_tokens) == 0);
    it->number = ++a->n_admitted;
    it->n_admitted_before = 0;
    insert(&a->active, it);
}

static void fail(admission *a, admission_item *it, const err *why)
{
    a->failures++;
    release(a, it);
    a->events.failed(a->events.ctx, it, why);
}

/* Moves waiting items into the batch, oldest first. One that lacks room blocks all after it; one whose adapter is still
 * loading does not. The first max_batch in line get their adapters loaded ahead of time. */
static void admit_waiting(admission *a)
{
    bool blocked = false;
    for (int i = 0, seen = 0; i < a->waiting.n && seen < a->limit.max_batch; seen++) {
        err why;
        slot_state state = claim_adapter(a, i, &why);
        if (state == SLOT_FULL)
            return;
        if (state == SLOT_FAILED) {
            fail(a, remove_at(&a->waiting, i), &why);
        } else if (state == SLOT_READY && !blocked && has_room(a, a->waiting.at[i])) {
            activate(a, remove_at(&a->waiting, i));
        } else {
            blocked |= state == SLOT_READY;
            i++;
        }
    }
}

void admission_admit(admission *a, bool may_wait)
{
    uint64_t failed_before = a->failures;
    adapter_slots_poll(a->slots, false);
    admit_waiting(a);
    if (may_wait && a->active.n == 0 && a->waiting.n > 0 && a->failures == failed_before) {
        adapter_slots_poll(a->slots, true);
        admit_waiting(a);
    }
}

static void evict_newest(admission *a)
{
    admission_item *it = remove_at(&a->active, a->active.n - 1);
    a->evictions++;
    release(a, it);
    a->events.evicted(a->events.ctx, it);
}

void admission_make_room(admission *a)
{
    for (int i = 0; i < a->active.n; i++) {
        admission_item *it = a->active.at[i];
        if (n_pending(it) == 0)
            continue;
        while (i < a->active.n && kv_pool_reserve(a->pool, &it->kv, n_tokens(it)) != 0)
            evict_newest(a);
    }
    int used = kv_pool_total_pages(a->pool) - kv_pool_free_pages(a->pool);
    a->pages_peak = used > a->pages_peak ? used : a->pages_peak;
}

/* Notes of new streams where they begin. Returns the number up to which prompts, by their admission, may hold up all
 * decodes: no stream may wait for those that were admitted after it began, and one that is no longer young for none. So
 * a burst holds up only streams that came with it, and only for a while. The first stream of a burst may wait if the
 * others are admitted before its first decode. A request that was evicted or moved begins anew. */
static uint64_t choose_decodes(const admission *a, admission_step *step)
{
    uint64_t most = UINT64_MAX;
    for (int i = 0; i < a->active.n; i++) {
        admission_item *it = a->active.at[i];
        if (n_pending(it) != 1 || !kv_pool_has_arrived(a->pool, &it->kv))
            continue;
        if (it->n_admitted_before == 0) {
            it->n_admitted_before = a->n_admitted;
            it->decodes_since = a->step_seconds;
        }
        step->decode[step->n_decodes++] = (admission_rows){it, 1, true};
        step->work.n_decodes++;
        step->work.decode_reads += it->n_done + 1;
        uint64_t number = a->step_seconds - it->decodes_since < YOUNG_SECONDS ? it->n_admitted_before : 0;
        most = number < most ? number : most;
    }
    return most;
}

/* no_elders_up_to: of prompts with higher numbers some decodes are elders. */
static void choose_prompts(const admission *a, admission_step *step, uint64_t no_elders_up_to)
{
    int rows_left = a->limit.prefill_rows, scored_left = a->limit.scored_rows;
    for (int i = 0; i < a->active.n && rows_left > 0; i++) {
        admission_item *it = a->active.at[i];
        int pending = n_pending(it), room = it->is_scored && scored_left < rows_left ? scored_left : rows_left;
        if (pending < 2 || room == 0 || !kv_pool_has_arrived(a->pool, &it->kv))
            continue;
        step->work.has_elders = it->number > no_elders_up_to;
        int n = row_budget_add_rows(&a->budget, &step->work, it->n_done, pending < room ? pending : room);
        if (n == 0)
            return; /* no later prompt may overtake it */
        step->prefill[step->n_prefills++] = (admission_rows){it, n, n == pending};
        rows_left -= n;
        scored_left -= it->is_scored ? n : 0;
    }
}

admission_step admission_choose_rows(admission *a)
{
    admission_step step = {.prefill = a->prefill, .decode = a->decode};
    choose_prompts(a, &step, choose_decodes(a, &step));
    return step;
}

void admission_learn(admission *a, const step_work *w, double seconds)
{
    row_budget_learn(&a->budget, w, seconds);
    a->step_seconds += seconds > 0 ? seconds : 0;
}

void admission_forget(admission *a)
{
    row_budget_init(&a->budget, a->limit.itl_target);
    a->pages_peak = 0;
    a->evictions = 0;
}

void admission_learn_fetch(admission *a, double seconds)
{
    a->fetch_seconds = seconds;
}

void admission_advance(admission *a, admission_item *it, int n_rows)
{
    it->n_done += n_rows;
    if (it->token) /* the value of one in flight is not known yet */
        kv_pool_publish(a->pool, &it->kv, it->root, it->token, it->n_done < it->n_tokens ? it->n_done : it->n_tokens);
}

admission_stats admission_get_stats(const admission *a)
{
    admission_stats s = {.n_active = a->active.n,
                         .n_waiting = a->waiting.n,
                         .pages_total = kv_pool_total_pages(a->pool),
                         .pages_free = kv_pool_free_pages(a->pool),
                         .pages_cached = kv_pool_cached_pages(a->pool),
                         .pages_peak = a->pages_peak,
                         .evictions = a->evictions};
    for (int i = 0; i < a->waiting.n; i++)
        s.pages_wanted += kv_pool_pages_for(a->pool, a->waiting.at[i]->n_tokens + 1);
    return s;
}
