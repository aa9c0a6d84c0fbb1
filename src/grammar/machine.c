/* machine.c - see machine.h */
#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_ITEMS 4096          /* of a place; what is more ambiguous than this is not followed further */

enum { RETURN_END = -1, RETURN_OPEN = -2 };     /* in place of a state to return to */

/* A set of (state, context) pairs, sorted; of a context: where to return to. */
typedef struct { int from, n; } item_set;       /* in m->item */

typedef struct {
    item_set kernel, all;       /* as reached; with those that calls lead to. all.n -1: not known */
    bool may_end, leaves;
    int *next;                  /* [256] or NULL: no step has been looked up */
} place;

typedef struct { int *slot, n; } hash_table;    /* of number + 1 */

struct machine {
    const grammar *g;
    machine_item *item;
    size_t n_items, item_cap;
    item_set *context;
    size_t n_contexts, context_cap;
    place *place;
    size_t n_places, place_cap, n_tables;
    hash_table contexts, places;
    machine_item *work;         /* scratch */
    size_t n_work, work_cap;
    struct pending { int rank, rule; machine_item back; } *pending;     /* calls to be made */
    size_t n_pending, pending_cap;
};

static uint64_t hash_items(const machine_item *x, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((uint64_t)(unsigned)x[i].state << 32 | (unsigned)x[i].context)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return h;
}

static int compare(const machine_item *a, const machine_item *b)
{
    if (a->state != b->state)
        return a->state < b->state ? -1 : 1;
    return (a->context > b->context) - (a->context < b->context);
}

static int by_state(const void *a, const void *b)
{
    return compare(a, b);
}

static size_t sort_unique(machine_item *x, size_t n)
{
    if (n < 2)
        return n;
    qsort(x, n, sizeof *x, by_state);
    size_t kept = 1;
    for (size_t i = 1; i < n; i++)
        if (compare(&x[i], &x[kept - 1]) != 0)
            x[kept++] = x[i];
    return kept;
}

static item_set keep_items(machine *m, const machine_item *x, size_t n)
{
    m->item = xgrow(m->item, &m->item_cap, m->n_items + n, sizeof *m->item);
    item_set s = {(int)m->n_items, (int)n};
    if (n)
        memcpy(m->item + m->n_items, x, n * sizeof *x);
    m->n_items += n;
    return s;
}

static bool same_items(const machine *m, item_set s, const machine_item *x, size_t n)
{
    return (size_t)s.n == n && (n == 0 || memcmp(m->item + s.from, x, n * sizeof *x) == 0);
}

/* Make room for one more of `count`; hash_of: of what has this number. */
static void grow_table(machine *m, hash_table *t, size_t count, uint64_t (*hash_of)(const machine *, size_t))
{
    if (2 * (count + 1) <= (size_t)t->n)
        return;
    free(t->slot);
    t->n = t->n ? t->n * 2 : 64;
    t->slot = XNEW_ARRAY(int, (size_t)t->n);
    for (size_t i = 0; i < count; i++) {
        uint64_t h = hash_of(m, i);
        while (t->slot[h & (uint64_t)(t->n - 1)])
            h++;
        t->slot[h & (uint64_t)(t->n - 1)] = (int)i + 1;
    }
}

static uint64_t hash_context(const machine *m, size_t i)
{
    return hash_items(m->item + m->context[i].from, (size_t)m->context[i].n, 1);
}

static uint64_t hash_place(const machine *m, size_t i)
{
    const place *p = &m->place[i];
    return hash_items(m->item + p->kernel.from, (size_t)p->kernel.n, 2 + p->may_end + 2 * p->leaves);
}

/* The context with these returns, sorted. */
static int context_of(machine *m, const machine_item *x, size_t n)
{
    grow_table(m, &m->contexts, m->n_contexts, hash_context);
    uint64_t h = hash_items(x, n, 1);
    for (int at; (at = m->contexts.slot[h & (uint64_t)(m->contexts.n - 1)]); h++)
        if (same_items(m, m->context[at - 1], x, n))
            return at - 1;
    m->context = xgrow(m->context, &m->context_cap, m->n_contexts + 1, sizeof *m->context);
    m->context[m->n_contexts] = keep_items(m, x, n);
    m->contexts.slot[h & (uint64_t)(m->contexts.n - 1)] = (int)m->n_contexts + 1;
    return (int)m->n_contexts++;
}

static void add_work(machine *m, machine_item x)
{
    m->work = xgrow(m->work, &m->work_cap, m->n_work + 1, sizeof *m->work);
    m->work[m->n_work++] = x;
}

static bool in_work(const machine *m, machine_item x)
{
    for (size_t i = 0; i < m->n_work; i++)
        if (compare(&m->work[i], &x) == 0)
            return true;
    return false;
}

/* Add where a rule of this context returns to. */
static void return_to(machine *m, int context, bool *may_end, bool *leaves)
{
    item_set back = m->context[context];
    for (int i = 0; i < back.n; i++) {
        machine_item x = m->item[back.from + i];
        if (x.state == RETURN_END)
            *may_end = true;
        else if (x.state == RETURN_OPEN)
            *leaves = true;
        else if (!in_work(m, x))
            add_work(m, x);
    }
}

/* The place of the items in m->work, once all ends among them are followed. */
static int place_of_work(machine *m, bool may_end, bool leaves)
{
    m->n_work = sort_unique(m->work, m->n_work);
    for (size_t i = 0; i < m->n_work && m->n_work < MAX_ITEMS; i++)
        if (m->g->accepts[m->work[i].state])
            return_to(m, m->work[i].context, &may_end, &leaves);
    m->n_work = sort_unique(m->work, m->n_work);
    if ((m->n_work == 0 && !may_end && !leaves) || m->n_work >= MAX_ITEMS)
        return PLACE_NONE;
    grow_table(m, &m->places, m->n_places, hash_place);
    uint64_t h = hash_items(m->work, m->n_work, 2 + may_end + 2 * leaves);
    for (int at; (at = m->places.slot[h & (uint64_t)(m->places.n - 1)]); h++) {
        const place *p = &m->place[at - 1];
        if (p->may_end == may_end && p->leaves == leaves && same_items(m, p->kernel, m->work, m->n_work))
            return at - 1;
    }
    m->place = xgrow(m->place, &m->place_cap, m->n_places + 1, sizeof *m->place);
    m->place[m->n_places] = (place){.kernel = keep_items(m, m->work, m->n_work), .all = {0, -1}, .may_end = may_end, .leaves = leaves};
    m->places.slot[h & (uint64_t)(m->places.n - 1)] = (int)m->n_places + 1;
    return (int)m->n_places++;
}

/* Whether nothing is left of a rule in this state but its end. */
static bool is_last(const grammar *g, int state)
{
    return g->accepts[state] && g->arc_indptr[state] == g->arc_indptr[state + 1] && g->call_indptr[state] == g->call_indptr[state + 1];
}

static void add_pending(machine *m, int rule, machine_item back)
{
    m->pending = xgrow(m->pending, &m->pending_cap, m->n_pending + 1, sizeof *m->pending);
    m->pending[m->n_pending++] = (struct pending){m->g->rank[rule], rule, back};
}

/* The calls of an item. Behind the last call of a rule is the rule's own end: its returns are handed on, so that a rule
 * that ends with itself needs no context for each round. */
static void add_calls(machine *m, machine_item x)
{
    const grammar *g = m->g;
    for (int k = g->call_indptr[x.state]; k < g->call_indptr[x.state + 1]; k++) {
        if (!is_last(g, g->call[k].to)) {
            add_pending(m, g->call[k].rule, (machine_item){g->call[k].to, x.context});
            continue;
        }
        for (int i = 0; i < m->context[x.context].n; i++)
            add_pending(m, g->call[k].rule, m->item[m->context[x.context].from + i]);
    }
}

static int by_rank(const void *x, const void *y)
{
    const struct pending *a = x, *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return compare(&a->back, &b->back);
}

/* All calls to the first rule in line become one item. Rules are taken in order of rank, so nobody calls it later. */
static void make_call(machine *m)
{
    qsort(m->pending, m->n_pending, sizeof *m->pending, by_rank);
    int rule = m->pending[0].rule;
    size_t n = 0, kept = 0;
    machine_item *back = xmalloc(m->n_pending * sizeof *back);
    while (n < m->n_pending && m->pending[n].rule == rule) {
        if (kept == 0 || compare(&back[kept - 1], &m->pending[n].back) != 0)
            back[kept++] = m->pending[n].back;
        n++;
    }
    memmove(m->pending, m->pending + n, (m->n_pending - n) * sizeof *m->pending);
    m->n_pending -= n;
    machine_item x = {m->g->start[rule], context_of(m, back, kept)};
    free(back);
    add_work(m, x);
    add_calls(m, x);
}

/* With the items that calls lead to. */
static void follow_calls(machine *m, int at)
{
    if (m->place[at].all.n >= 0)
        return;
    m->n_work = m->n_pending = 0;
    for (int i = 0; i < m->place[at].kernel.n; i++) {
        machine_item x = m->item[m->place[at].kernel.from + i];
        add_work(m, x);
        add_calls(m, x);
    }
    while (m->n_pending > 0)
        make_call(m);
    m->place[at].all = m->n_work == (size_t)m->place[at].kernel.n ? m->place[at].kernel : keep_items(m, m->work, m->n_work);
}

static int target(const grammar *g, int state, uint8_t byte)
{
    int lo = g->arc_indptr[state], hi = g->arc_indptr[state + 1];
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (byte > g->arc[mid].hi)
            lo = mid + 1;
        else if (byte < g->arc[mid].lo)
            hi = mid;
        else
            return g->arc[mid].to;
    }
    return -1;
}

static int take_step(machine *m, int at, uint8_t byte)
{
    follow_calls(m, at);
    item_set all = m->place[at].all;
    m->n_work = 0;
    for (int i = 0; i < all.n; i++) {
        machine_item x = m->item[all.from + i];
        int to = target(m->g, x.state, byte);
        if (to >= 0)
            add_work(m, (machine_item){to, x.context});
    }
    return m->n_work ? place_of_work(m, false, false) : PLACE_NONE;
}

const int *machine_steps(machine *m, int at)
{
    if (!m->place[at].next) {
        int *next = xmalloc(256 * sizeof *next);
        for (int i = 0; i < 256; i++)
            next[i] = PLACE_UNKNOWN;
        m->place[at].next = next;
        m->n_tables++;
    }
    return m->place[at].next;
}

int machine_next(machine *m, int at, uint8_t byte)
{
    if (at < 0)
        return PLACE_NONE;
    int to = machine_steps(m, at)[byte];
    if (to == PLACE_UNKNOWN) {
        to = take_step(m, at, byte);
        m->place[at].next[byte] = to;
    }
    return to;
}

static void add_first_contexts(machine *m)
{
    CHECK(context_of(m, &(machine_item){RETURN_END, 0}, 1) == CONTEXT_END);
    CHECK(context_of(m, &(machine_item){RETURN_OPEN, 0}, 1) == CONTEXT_OPEN);
}

machine *machine_new(const grammar *g)
{
    machine *m = XNEW(machine);
    m->g = g;
    add_first_contexts(m);
    return m;
}

void machine_reset(machine *m)
{
    for (size_t i = 0; i < m->n_places; i++)
        free(m->place[i].next);
    free(m->item);
    free(m->context);
    free(m->place);
    free(m->contexts.slot);
    free(m->places.slot);
    free(m->work);
    free(m->pending);
    *m = (machine){.g = m->g};
    add_first_contexts(m);
}

void machine_free(machine *m)
{
    if (!m)
        return;
    machine_reset(m);
    free(m->item);
    free(m->context);
    free(m->contexts.slot);
    free(m);
}

size_t machine_bytes(const machine *m)
{
    return m->item_cap * sizeof *m->item + m->context_cap * sizeof *m->context + m->place_cap * sizeof *m->place +
           m->n_tables * 256 * sizeof(int) + (size_t)(m->contexts.n + m->places.n) * sizeof(int);
}

int machine_begin_at(machine *m, int state)
{
    m->n_work = 0;
    add_work(m, (machine_item){state, CONTEXT_OPEN});
    return place_of_work(m, false, false);
}

int machine_begin(machine *m)
{
    m->n_work = 0;
    add_work(m, (machine_item){m->g->start[m->g->root], CONTEXT_END});
    return place_of_work(m, false, false);
}

int machine_after(machine *m, int context)
{
    bool may_end = false, leaves = false;
    m->n_work = 0;
    return_to(m, context, &may_end, &leaves);
    return place_of_work(m, may_end, leaves);
}

bool machine_may_end(const machine *m, int at)
{
    return at >= 0 && m->place[at].may_end;
}

bool machine_leaves(const machine *m, int at)
{
    return at >= 0 && m->place[at].leaves;
}

const machine_item *machine_items(const machine *m, int at, int *n)
{
    *n = m->place[at].kernel.n;
    return m->item + m->place[at].kernel.from;
}
