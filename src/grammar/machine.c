/* machine.c - see machine.h */
#include "grammar/machine.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_ITEMS 4096        /* of a place; at this many the machine is exhausted */
#define MAX_BYTES (32u << 20) /* of memory */

/* Costs in steps; handling one item is one step, some 10 ns. */
enum { COST_PLACE = 16, COST_TABLE = 32 };

enum { RETURN_END = -1, RETURN_OPEN = -2 }; /* in place of a state to return to */

/* A sorted set of (state, context) pairs: the items of a place, or where a context returns to. */
typedef struct { int from, n; } item_set; /* in m->item */

typedef struct {
    item_set kernel, all; /* items as reached; these and those that calls lead to, all.n -1: not known */
    bool may_end, leaves;
    int *next; /* [256] or NULL: no step has been looked up */
} place;

typedef struct { int *slot, n; } hash_table; /* of number + 1 */

struct machine {
    const grammar *g;
    machine_item *item;
    size_t n_items, item_cap;
    item_set *context;
    size_t n_contexts, context_cap;
    place *place;
    size_t n_places, place_cap, n_tables;
    hash_table contexts, places;
    machine_item *work; /* scratch */
    size_t n_work, work_cap;
    struct pending {
        int rule;
        machine_item back;
    } *pending; /* calls to be made */
    size_t n_pending, pending_cap;
    struct seen {
        machine_item x;
        unsigned round;
    } *seen; /* [n_seen] hash table of the items in work; entries of other rounds are free */
    size_t n_seen;
    unsigned round;
    long steps_left;
};

static void spend(machine *m, size_t steps)
{
    m->steps_left -= (long)steps;
}

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

/* Makes room for one more than `count` entries. hash_of returns the hash of the entry with a number. */
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

/* Returns the context with these returns, which are sorted; it is added if it is new. */
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

/* Marks x as seen in this round; returns false if it already was. The table must have room. */
static bool see(machine *m, machine_item x)
{
    uint64_t h = hash_items(&x, 1, 3);
    for (;; h++) {
        struct seen *at = &m->seen[h & (m->n_seen - 1)];
        if (at->round != m->round) {
            *at = (struct seen){x, m->round};
            return true;
        }
        if (compare(&at->x, &x) == 0)
            return false;
    }
}

/* Begins a new round: marks all of work as seen and makes room for n more. */
static void see_work(machine *m, int n)
{
    size_t need = 2 * (m->n_work + (size_t)n + 1);
    if (need > m->n_seen) {
        size_t cap = m->n_seen ? m->n_seen : 64;
        while (cap < need)
            cap *= 2;
        free(m->seen);
        m->seen = XNEW_ARRAY(struct seen, cap);
        m->n_seen = cap;
        m->round = 0;
    }
    if (++m->round == 0) {
        memset(m->seen, 0, m->n_seen * sizeof *m->seen);
        m->round = 1;
    }
    for (size_t i = 0; i < m->n_work; i++)
        see(m, m->work[i]);
}

/* Adds to work the items that a rule called in this context returns to. All of work must be marked as seen. */
static void return_to(machine *m, int context, bool *may_end, bool *leaves)
{
    item_set back = m->context[context];
    if (2 * (m->n_work + (size_t)back.n + 1) > m->n_seen)
        see_work(m, back.n);
    for (int i = 0; i < back.n; i++) {
        machine_item x = m->item[back.from + i];
        if (x.state == RETURN_END)
            *may_end = true;
        else if (x.state == RETURN_OPEN)
            *leaves = true;
        else if (m->n_work < MAX_ITEMS && see(m, x))
            add_work(m, x);
    }
    spend(m, (size_t)back.n);
}

/* Adds to work, for each of its items whose rule may end, the items that this rule returns to. */
static void follow_ends(machine *m, bool *may_end, bool *leaves)
{
    size_t n = m->n_work;
    bool begun = false;
    for (size_t i = 0; i < m->n_work && m->n_work < MAX_ITEMS; i++) {
        if (!m->g->accepts[m->work[i].state])
            continue;
        if (!begun)
            see_work(m, 0);
        begun = true;
        return_to(m, m->work[i].context, may_end, leaves);
    }
    if (m->n_work > n)
        m->n_work = sort_unique(m->work, m->n_work);
}

/* Follows all ends among the items in work and returns their place; PLACE_NONE when there are none or the machine is
 * exhausted. */
static int place_of_work(machine *m, bool may_end, bool leaves)
{
    m->n_work = sort_unique(m->work, m->n_work);
    if (m->n_work < MAX_ITEMS)
        follow_ends(m, &may_end, &leaves);
    spend(m, 2 * m->n_work);
    if (m->n_work >= MAX_ITEMS || machine_bytes(m) > MAX_BYTES)
        m->steps_left = -1;
    if ((m->n_work == 0 && !may_end && !leaves) || m->steps_left < 0)
        return PLACE_NONE;
    grow_table(m, &m->places, m->n_places, hash_place);
    uint64_t h = hash_items(m->work, m->n_work, 2 + may_end + 2 * leaves);
    for (int at; (at = m->places.slot[h & (uint64_t)(m->places.n - 1)]); h++) {
        const place *p = &m->place[at - 1];
        if (p->may_end == may_end && p->leaves == leaves && same_items(m, p->kernel, m->work, m->n_work))
            return at - 1;
    }
    m->place = xgrow(m->place, &m->place_cap, m->n_places + 1, sizeof *m->place);
    m->place[m->n_places] =
        (place){.kernel = keep_items(m, m->work, m->n_work), .all = {0, -1}, .may_end = may_end, .leaves = leaves};
    m->places.slot[h & (uint64_t)(m->places.n - 1)] = (int)m->n_places + 1;
    spend(m, COST_PLACE);
    return (int)m->n_places++;
}

/* Returns whether nothing may follow in a rule that is in this state: it can only end. */
static bool is_last(const grammar *g, int state)
{
    return g->accepts[state] && g->arc_indptr[state] == g->arc_indptr[state + 1] &&
           g->call_indptr[state] == g->call_indptr[state + 1];
}

static void add_pending(machine *m, int rule, machine_item back)
{
    m->pending = xgrow(m->pending, &m->pending_cap, m->n_pending + 1, sizeof *m->pending);
    m->pending[m->n_pending++] = (struct pending){rule, back};
}

/* Adds the calls of an item to pending. A tail call hands on the rule's own returns, so that a right-recursive rule
 * needs no context for each round. */
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

/* Returns the pending rule of the lowest rank. Rules are called in order of rank, so no later one calls it again. */
static int first_rule(const machine *m)
{
    int rule = m->pending[0].rule;
    for (size_t i = 1; i < m->n_pending; i++)
        if (m->g->rank[m->pending[i].rule] < m->g->rank[rule])
            rule = m->pending[i].rule;
    return rule;
}

/* Turns all pending calls of the first rule into one item. */
static void make_call(machine *m)
{
    int rule = first_rule(m);
    size_t n = 0, others = 0;
    machine_item *back = xmalloc(m->n_pending * sizeof *back);
    spend(m, m->n_pending);
    for (size_t i = 0; i < m->n_pending; i++)
        if (m->pending[i].rule == rule)
            back[n++] = m->pending[i].back;
        else
            m->pending[others++] = m->pending[i];
    m->n_pending = others;
    n = sort_unique(back, n);
    machine_item x = {m->g->start[rule], context_of(m, back, n)};
    spend(m, 2 * n);
    free(back);
    add_work(m, x);
    add_calls(m, x);
}

/* Computes `all` of a place: its items and those that calls lead to. */
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
    while (m->n_pending > 0 && m->steps_left >= 0)
        make_call(m);
    if (m->steps_left < 0)
        return;
    m->place[at].all =
        m->n_work == (size_t)m->place[at].kernel.n ? m->place[at].kernel : keep_items(m, m->work, m->n_work);
}

typedef struct { int lo, hi; } byte_range;

static void narrow(byte_range *r, int lo, int hi)
{
    r->lo = lo > r->lo ? lo : r->lo;
    r->hi = hi < r->hi ? hi : r->hi;
}

/* Returns the state after a byte, or -1. Narrows *alike to bytes that all lead there. */
static int target(const grammar *g, int state, uint8_t byte, byte_range *alike)
{
    int first = g->arc_indptr[state], end = g->arc_indptr[state + 1], lo = first, hi = end;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (byte > g->arc[mid].hi) {
            lo = mid + 1;
        } else if (byte < g->arc[mid].lo) {
            hi = mid;
        } else {
            narrow(alike, g->arc[mid].lo, g->arc[mid].hi);
            return g->arc[mid].to;
        }
    }
    narrow(alike, lo > first ? g->arc[lo - 1].hi + 1 : 0, lo < end ? g->arc[lo].lo - 1 : 255);
    return -1;
}

static int take_step(machine *m, int at, uint8_t byte, byte_range *alike)
{
    follow_calls(m, at);
    if (m->steps_left < 0)
        return PLACE_NONE;
    spend(m, (size_t)m->place[at].all.n);
    item_set all = m->place[at].all;
    m->n_work = 0;
    for (int i = 0; i < all.n; i++) {
        machine_item x = m->item[all.from + i];
        int to = target(m->g, x.state, byte, alike);
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
        spend(m, COST_TABLE);
    }
    return m->place[at].next;
}

int machine_next(machine *m, int at, uint8_t byte)
{
    if (at < 0)
        return PLACE_NONE;
    int to = machine_steps(m, at)[byte];
    if (to == PLACE_UNKNOWN) {
        byte_range alike = {0, 255};
        to = take_step(m, at, byte, &alike);
        if (m->steps_left < 0)
            return PLACE_NONE;
        for (int i = alike.lo; i <= alike.hi; i++)
            m->place[at].next[i] = to;
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
    m->steps_left = LONG_MAX;
    add_first_contexts(m);
    return m;
}

void machine_allow(machine *m, long steps)
{
    m->steps_left = steps;
}

long machine_steps_left(const machine *m)
{
    return m->steps_left;
}

static void deinit(machine *m)
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
    free(m->seen);
}

void machine_free(machine *m)
{
    if (!m)
        return;
    deinit(m);
    free(m);
}

/* Returns each context's number in the new machine, -1 where the place does not reach it; the caller frees. A context
 * refers only to older ones, so numbers keep their order and sorted items stay sorted. */
static int *number_contexts(const machine *m, item_set kernel)
{
    int *number = XNEW_ARRAY(int, m->n_contexts), next = 0;
    number[CONTEXT_END] = number[CONTEXT_OPEN] = 1;
    for (int i = 0; i < kernel.n; i++)
        number[m->item[kernel.from + i].context] = 1;
    for (size_t c = m->n_contexts; c-- > 0;)
        for (int i = 0; number[c] && i < m->context[c].n; i++)
            number[m->item[m->context[c].from + i].context] = 1;
    for (size_t c = 0; c < m->n_contexts; c++)
        number[c] = number[c] ? next++ : -1;
    return number;
}

/* Copies the items of a set into the work of another machine, with their contexts renumbered. */
static void carry(const machine *from, item_set s, const int *number, machine *to)
{
    to->n_work = 0;
    for (int i = 0; i < s.n; i++) {
        machine_item x = from->item[s.from + i];
        add_work(to, (machine_item){x.state, number[x.context]});
    }
}

int machine_keep(machine *m, int at)
{
    machine fresh = {.g = m->g, .steps_left = LONG_MAX};
    const place *p = &m->place[at];
    int *number = number_contexts(m, p->kernel);
    for (size_t c = 0; c < m->n_contexts; c++)
        if (number[c] >= 0) {
            carry(m, m->context[c], number, &fresh);
            CHECK(context_of(&fresh, fresh.work, fresh.n_work) == number[c]);
        }
    carry(m, p->kernel, number, &fresh);
    int kept = place_of_work(&fresh, p->may_end, p->leaves);
    free(number);
    fresh.steps_left = m->steps_left < 0 || kept == PLACE_NONE ? -1 : m->steps_left - (long)fresh.n_items;
    deinit(m);
    *m = fresh;
    return kept;
}

size_t machine_bytes(const machine *m)
{
    return m->item_cap * sizeof *m->item + m->context_cap * sizeof *m->context + m->place_cap * sizeof *m->place +
           m->n_tables * 256 * sizeof(int) + (size_t)(m->contexts.n + m->places.n) * sizeof(int) +
           m->work_cap * sizeof *m->work + m->pending_cap * sizeof *m->pending + m->n_seen * sizeof *m->seen;
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
    see_work(m, 0);
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
