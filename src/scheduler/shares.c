/* shares.c - see shares.h */
#include "scheduler/shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define SCALE ((uint64_t)1 << 20) /* unit of weight 1: dividing it by any weight loses less than 1 % */
#define HIGH ((uint64_t)1 << 62)  /* a counter beyond this has all lowered: after days on thousands of GPUs */

void shares_deinit(shares *s)
{
    for (size_t i = 0; i < s->n; i++) {
        wait_queue_deinit(&s->all[i]->line);
        free(s->all[i]);
    }
    free(s->all);
    free(s->heap);
    map_free(s->by_name);
    *s = (shares){0};
}

static shares_tenant *add_tenant(shares *s, const char *name)
{
    shares_tenant *t = XNEW(shares_tenant);
    t->number = s->n;
    s->all = xgrow(s->all, &s->cap, s->n + 1, sizeof *s->all);
    s->all[s->n] = t;
    map_put(s->by_name, name, strlen(name), (int64_t)s->n++);
    return t;
}

static uint64_t unit_of(uint32_t weight)
{
    return SCALE / (weight == 0 ? 1 : weight < SHARES_MOST_WEIGHT ? weight : SHARES_MOST_WEIGHT);
}

shares_tenant *shares_find(shares *s, const char *name, uint32_t weight)
{
    int64_t at;
    name = name ? name : "";
    if (!s->by_name)
        s->by_name = map_new(0);
    shares_tenant *t = map_get(s->by_name, name, strlen(name), &at) ? s->all[at] : add_tenant(s, name);
    t->unit = unit_of(weight);
    return t;
}

/* Orders by counter, then by arrival of the first request; priorities count within a tenant alone. */
static bool before(const share_slot *a, const share_slot *b)
{
    if (a->counter != b->counter)
        return a->counter < b->counter;
    return wait_earlier(wait_queue_first(&a->of->line), wait_queue_first(&b->of->line));
}

static void set(shares *s, size_t at, share_slot slot)
{
    s->heap[at] = slot;
    slot.of->at = at;
}

/* Puts t at `at` or further down, moving earlier ones up. */
static void sift_down(shares *s, size_t at, shares_tenant *t)
{
    const share_slot own = {t->counter, t};
    for (size_t child; (child = 2 * at + 1) < s->n_waiting; at = child) {
        if (child + 1 < s->n_waiting && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!before(&s->heap[child], &own))
            break;
        set(s, at, s->heap[child]);
    }
    set(s, at, own);
}

/* Puts t at `at`, or where it belongs from there. */
static void sift(shares *s, size_t at, shares_tenant *t)
{
    const share_slot own = {t->counter, t};
    for (; at > 0 && before(&own, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        set(s, at, s->heap[(at - 1) / 2]);
    sift_down(s, at, t);
}

/* Sifts the first slot down while its counter is out of date: then the first tenant has the smallest counter of all. */
static void sift_first(shares *s)
{
    while (s->n_waiting && s->heap[0].counter != s->heap[0].of->counter)
        sift_down(s, 0, s->heap[0].of);
}

/* Returns the counter that a tenant which comes back is lifted to. */
static uint64_t floor_of(const shares *s)
{
    return s->n_waiting ? s->heap[0].counter : s->last ? s->last->counter : 0;
}

void shares_put(shares *s, shares_tenant *t, wait_item *i)
{
    bool comes_back = t->line.n == 0;
    wait_queue_put(&t->line, i);
    s->n_requests++;
    if (!comes_back) {
        sift(s, t->at, t);
        sift_first(s);
        return;
    }
    if (t->counter < floor_of(s))
        t->counter = floor_of(s);
    s->heap = xgrow(s->heap, &s->heap_cap, s->n_waiting + 1, sizeof *s->heap);
    sift(s, s->n_waiting++, t);
}

void shares_remove(shares *s, shares_tenant *t, wait_item *i)
{
    wait_queue_remove(&t->line, i);
    s->n_requests--;
    s->last = t;
    if (t->line.n > 0) {
        sift(s, t->at, t);
    } else {
        shares_tenant *moved = s->heap[--s->n_waiting].of;
        if (moved != t)
            sift(s, t->at, moved);
    }
    sift_first(s);
}

wait_item *shares_first(const shares *s)
{
    return s->n_waiting ? wait_queue_first(&s->heap[0].of->line) : NULL;
}

/* Lowers all counters by floor_of(), so that none overflows. The order of those that wait stays; a tenant below it
 * would be lifted to it when it comes back. */
static void lower_all(shares *s)
{
    uint64_t by = floor_of(s);
    for (size_t i = 0; i < s->n; i++)
        s->all[i]->counter -= s->all[i]->counter < by ? s->all[i]->counter : by;
    for (size_t i = 0; i < s->n_waiting; i++)
        s->heap[i].counter -= by;
}

void shares_charge(shares *s, shares_tenant *t, uint64_t cost)
{
    t->counter += cost * t->unit;
    if (t->line.n > 0 && t->at == 0)
        sift_first(s);
    if (t->counter > HIGH && floor_of(s) > HIGH / 2)
        lower_all(s);
}

void shares_check(const shares *s)
{
    size_t n_requests = 0, n_waiting = 0;
    for (size_t i = 0; i < s->n; i++) {
        const shares_tenant *t = s->all[i];
        wait_queue_check(&t->line);
        n_requests += t->line.n;
        n_waiting += t->line.n > 0;
        CHECK(t->line.n == 0 ||
              (t->at < s->n_waiting && s->heap[t->at].of == t && s->heap[t->at].counter <= t->counter));
    }
    CHECK(n_requests == s->n_requests && n_waiting == s->n_waiting);
    CHECK(n_waiting == 0 || s->heap[0].counter == s->heap[0].of->counter);
    for (size_t i = 1; i < s->n_waiting; i++)
        CHECK(!before(&s->heap[i], &s->heap[(i - 1) / 2]));
}
