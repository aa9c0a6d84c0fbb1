/* dfa.c - see dfa.h */
#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

/* The NFA: one entry, one exit, edges in lists. */

typedef enum { EDGE_NOTHING, EDGE_BYTES, EDGE_CALL } edge_kind;
typedef struct {
    edge_kind kind;
    uint8_t lo, hi;
    int rule, to, next;
} nfa_edge; /* next: the node's next edge, or -1 */

struct nfa {
    build *b;
    int n, cap; /* nodes */
    int *first; /* [n] its first edge, or -1 */
    nfa_edge *edge;
    int n_edges, edge_cap;
    int start, end;
};

static int add_node(nfa *a)
{
    build_step(a->b, 1);
    a->first = build_grow(a->b, a->first, &a->cap, a->n + 1, sizeof *a->first);
    a->first[a->n] = -1;
    return a->n++;
}

static void add_edge(nfa *a, int from, nfa_edge edge)
{
    build_step(a->b, 1);
    a->edge = build_grow(a->b, a->edge, &a->edge_cap, a->n_edges + 1, sizeof *a->edge);
    edge.next = a->first[from];
    a->edge[a->n_edges] = edge;
    a->first[from] = a->n_edges++;
}

/* Adds an edge that reads nothing, unless it is there already. */
static void add_epsilon(nfa *a, int from, int to)
{
    int last = a->first[from];
    if (from == to || (last >= 0 && a->edge[last].kind == EDGE_NOTHING && a->edge[last].to == to))
        return;
    add_edge(a, from, (nfa_edge){.kind = EDGE_NOTHING, .to = to});
}

static void write_expr(nfa *a, const expr *x, int from, int to);

static void write_sequence(nfa *a, const expr *x, int from, int to)
{
    for (int i = 0; i < x->n; i++) {
        int next = i + 1 < x->n ? add_node(a) : to;
        write_expr(a, x->part[i], from, next);
        from = next;
    }
}

static void write_repeat(nfa *a, const expr *x, int from, int to)
{
    for (int i = 0; i < x->min; i++) {
        int next = add_node(a);
        write_expr(a, x->part[0], from, next);
        from = next;
    }
    if (x->max == REPEAT_ANY) {
        int loop = add_node(a);
        add_epsilon(a, from, loop);
        write_expr(a, x->part[0], loop, loop);
        add_epsilon(a, loop, to);
        return;
    }
    for (int i = x->min; i < x->max; i++) {
        int next = add_node(a);
        add_epsilon(a, from, to);
        write_expr(a, x->part[0], from, next);
        from = next;
    }
    add_epsilon(a, from, to);
}

static void write_graph(nfa *a, const expr *x, int from, int to)
{
    int *node = BUILD_ARRAY(a->b, int, x->n_nodes);
    for (int i = 0; i < x->n_nodes; i++)
        node[i] = add_node(a);
    add_epsilon(a, from, node[0]);
    add_epsilon(a, node[1], to);
    for (int i = 0; i < x->n; i++)
        if (x->edge[i].label)
            write_expr(a, x->edge[i].label, node[x->edge[i].from], node[x->edge[i].to]);
        else
            add_epsilon(a, node[x->edge[i].from], node[x->edge[i].to]);
}

static void write_dfa(nfa *a, const dfa *d, int from, int to)
{
    int base = a->n;
    for (int i = 0; i < d->n; i++)
        add_node(a);
    add_epsilon(a, from, base);
    for (int i = 0; i < d->n; i++) {
        for (int k = d->arc_indptr[i]; k < d->arc_indptr[i + 1]; k++)
            add_edge(a, base + i,
                     (nfa_edge){.kind = EDGE_BYTES, .lo = d->arc[k].lo, .hi = d->arc[k].hi, .to = base + d->arc[k].to});
        if (d->accepts[i])
            add_epsilon(a, base + i, to);
    }
}

static void write_expr(nfa *a, const expr *x, int from, int to)
{
    build_enter(a->b);
    switch (x->kind) {
    case EXPR_NEVER: break;
    case EXPR_EMPTY: add_epsilon(a, from, to); break;
    case EXPR_BYTES: add_edge(a, from, (nfa_edge){.kind = EDGE_BYTES, .lo = x->lo, .hi = x->hi, .to = to}); break;
    case EXPR_SEQUENCE: write_sequence(a, x, from, to); break;
    case EXPR_CHOICE:
        for (int i = 0; i < x->n; i++)
            write_expr(a, x->part[i], from, to);
        break;
    case EXPR_REPEAT: write_repeat(a, x, from, to); break;
    case EXPR_RULE: add_edge(a, from, (nfa_edge){.kind = EDGE_CALL, .rule = x->rule, .to = to}); break;
    case EXPR_DFA: write_dfa(a, x->automaton, from, to); break;
    case EXPR_GRAPH: write_graph(a, x, from, to); break;
    }
    build_leave(a->b);
}

nfa *nfa_of(build *b, const expr *x)
{
    nfa *a = BUILD_NEW(b, nfa);
    a->b = b;
    a->start = add_node(a);
    a->end = add_node(a);
    write_expr(a, x, a->start, a->end);
    return a;
}

/* Sets of nodes, closed under epsilon edges. */

typedef struct {
    const nfa *a;
    const bool *nullable; /* by rule: it matches the empty text; NULL: none does */
    int *mark, round;     /* [n] the round in which a node was met */
    int *set, n;          /* [n] */
} closure;

static closure closure_new(build *b, const nfa *a, const bool *nullable)
{
    return (closure){.a = a, .nullable = nullable, .mark = BUILD_ARRAY(b, int, a->n), .set = BUILD_ARRAY(b, int, a->n)};
}

static void meet(closure *c, int node)
{
    if (c->mark[node] == c->round)
        return;
    c->mark[node] = c->round;
    c->set[c->n++] = node;
}

static int by_number(const void *x, const void *y)
{
    return *(const int *)x - *(const int *)y;
}

/* Puts the closure of the seeds into set[0..n), sorted. */
static void close_over(closure *c, const int *seed, int n_seeds)
{
    c->round++;
    c->n = 0;
    for (int i = 0; i < n_seeds; i++)
        meet(c, seed[i]);
    for (int i = 0; i < c->n; i++) {
        int n = 1;
        for (int k = c->a->first[c->set[i]]; k >= 0; k = c->a->edge[k].next, n++) {
            const nfa_edge *e = &c->a->edge[k];
            if (e->kind == EDGE_NOTHING || (e->kind == EDGE_CALL && c->nullable && c->nullable[e->rule]))
                meet(c, e->to);
        }
        build_step(c->a->b, n);
    }
    qsort(c->set, (size_t)c->n, sizeof *c->set, by_number);
}

bool nfa_is_nullable(build *b, const nfa *a, const bool *nullable)
{
    closure c = closure_new(b, a, nullable);
    close_over(&c, &a->start, 1);
    return c.mark[a->end] == c.round;
}

/* The subset construction. */

typedef struct { int *set, n; } node_set;

typedef struct {
    build *b;
    const nfa *a;
    closure c;
    node_set *state;                /* [d->n] */
    int state_cap, *table, n_table; /* hash table of state + 1 */
    dfa *d;
    int arcs, arc_cap, calls, call_cap, ptr_cap, call_ptr_cap, accept_cap;
    int *seed; /* scratch [n] */
} subset;

static uint64_t hash_of(const int *set, int n)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < n; i++)
        h = (h ^ (uint64_t)set[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static void rehash(subset *s)
{
    s->n_table = s->n_table ? s->n_table * 2 : 64;
    s->table = BUILD_ARRAY(s->b, int, s->n_table);
    for (int i = 0; i < s->d->n; i++) {
        uint64_t h = hash_of(s->state[i].set, s->state[i].n);
        while (s->table[h & (uint64_t)(s->n_table - 1)])
            h++;
        s->table[h & (uint64_t)(s->n_table - 1)] = i + 1;
    }
}

/* Returns the state of the set in s->c, added if it is new. */
static int state_of_set(subset *s)
{
    closure *c = &s->c;
    if (2 * (s->d->n + 1) > s->n_table)
        rehash(s);
    uint64_t h = hash_of(c->set, c->n);
    for (;; h++) {
        int at = s->table[h & (uint64_t)(s->n_table - 1)];
        if (!at)
            break;
        const node_set *x = &s->state[at - 1];
        if (x->n == c->n && memcmp(x->set, c->set, (size_t)c->n * sizeof *c->set) == 0)
            return at - 1;
    }
    int id = s->d->n++;
    s->table[h & (uint64_t)(s->n_table - 1)] = id + 1;
    s->state = build_grow(s->b, s->state, &s->state_cap, s->d->n, sizeof *s->state);
    s->state[id] = (node_set){BUILD_ARRAY(s->b, int, c->n), c->n};
    memcpy(s->state[id].set, c->set, (size_t)c->n * sizeof *c->set);
    s->d->accepts = build_grow(s->b, s->d->accepts, &s->accept_cap, s->d->n, sizeof *s->d->accepts);
    s->d->accepts[id] = c->mark[s->a->end] == c->round;
    return id;
}

static void add_arc(subset *s, int lo, int hi, int to)
{
    s->d->arc = build_grow(s->b, s->d->arc, &s->arc_cap, s->arcs + 1, sizeof *s->d->arc);
    s->d->arc[s->arcs++] = (dfa_arc){(uint8_t)lo, (uint8_t)hi, to};
}

typedef struct {
    int n_bytes, n_calls;
    const nfa_edge **bytes, **calls;
    int cap_bytes, cap_calls;
} outgoing;

static void gather(subset *s, int state, outgoing *l)
{
    l->n_bytes = l->n_calls = 0;
    for (int i = 0; i < s->state[state].n; i++)
        for (int k = s->a->first[s->state[state].set[i]]; k >= 0; k = s->a->edge[k].next) {
            build_step(s->b, 1);
            const nfa_edge *e = &s->a->edge[k];
            if (e->kind == EDGE_BYTES) {
                l->bytes = build_grow(s->b, l->bytes, &l->cap_bytes, l->n_bytes + 1, sizeof *l->bytes);
                l->bytes[l->n_bytes++] = e;
            } else if (e->kind == EDGE_CALL) {
                l->calls = build_grow(s->b, l->calls, &l->cap_calls, l->n_calls + 1, sizeof *l->calls);
                l->calls[l->n_calls++] = e;
            }
        }
}

/* Adds a state's arcs. Bytes between two cuts are on the same edges, so they lead to the same state. */
static void add_arcs(subset *s, const outgoing *l)
{
    bool cut[257] = {false};
    int last = -1; /* the arc before this piece, if it ends where this begins */
    for (int i = 0; i < l->n_bytes; i++)
        cut[l->bytes[i]->lo] = cut[l->bytes[i]->hi + 1] = true;
    for (int lo = 0, hi; lo < 256; lo = hi + 1) {
        for (hi = lo; hi < 255 && !cut[hi + 1];)
            hi++;
        int n = 0;
        for (int i = 0; i < l->n_bytes; i++)
            if (l->bytes[i]->lo <= lo && l->bytes[i]->hi >= hi)
                s->seed[n++] = l->bytes[i]->to;
        build_step(s->b, 1 + l->n_bytes / 4);
        if (n == 0) {
            last = -1;
            continue;
        }
        close_over(&s->c, s->seed, n);
        int to = state_of_set(s);
        if (last >= 0 && s->d->arc[last].to == to)
            s->d->arc[last].hi = (uint8_t)hi;
        else
            add_arc(s, lo, hi, to);
        last = s->arcs - 1;
    }
}

static void add_calls(subset *s, const outgoing *l)
{
    for (int i = 0; i < l->n_calls; i++) {
        int n = 0, rule = l->calls[i]->rule;
        bool done = false;
        for (int k = 0; k < l->n_calls; k++)
            if (l->calls[k]->rule == rule) {
                done = done || k < i;
                s->seed[n++] = l->calls[k]->to;
            }
        build_step(s->b, l->n_calls);
        if (done)
            continue;
        close_over(&s->c, s->seed, n);
        int to = state_of_set(s);
        s->d->call = build_grow(s->b, s->d->call, &s->call_cap, s->calls + 1, sizeof *s->d->call);
        s->d->call[s->calls++] = (dfa_call){rule, to};
    }
}

const dfa *nfa_determinise(build *b, const nfa *a, const bool *nullable)
{
    dfa *d = BUILD_NEW(b, dfa);
    subset s = {.b = b, .a = a, .d = d, .c = closure_new(b, a, nullable)};
    s.seed = BUILD_ARRAY(b, int, a->n_edges + 1);
    outgoing l = {0};
    close_over(&s.c, &a->start, 1);
    state_of_set(&s);
    for (int i = 0; i < d->n; i++) {
        d->arc_indptr = build_grow(b, d->arc_indptr, &s.ptr_cap, i + 2, sizeof *d->arc_indptr);
        d->call_indptr = build_grow(b, d->call_indptr, &s.call_ptr_cap, i + 2, sizeof *d->call_indptr);
        gather(&s, i, &l);
        add_arcs(&s, &l);
        add_calls(&s, &l);
        d->arc_indptr[i + 1] = s.arcs;
        d->call_indptr[i + 1] = s.calls;
    }
    return d;
}

const dfa *dfa_of(build *b, const expr *x)
{
    return nfa_determinise(b, nfa_of(b, x), NULL);
}

/* Languages. */

int dfa_next(const dfa *x, int state, uint8_t byte)
{
    for (int k = x->arc_indptr[state]; k < x->arc_indptr[state + 1]; k++)
        if (byte >= x->arc[k].lo && byte <= x->arc[k].hi)
            return x->arc[k].to;
    return -1;
}

bool dfa_matches(const dfa *x, const char *text, size_t n)
{
    int state = 0;
    for (size_t i = 0; i < n && state >= 0; i++)
        state = dfa_next(x, state, (uint8_t)text[i]);
    return state >= 0 && x->accepts[state];
}

/* Returns which states are live, [x->n]: can reach an accepting one. */
static bool *find_live(build *b, const dfa *x)
{
    bool *live = BUILD_ARRAY(b, bool, x->n);
    memcpy(live, x->accepts, (size_t)x->n * sizeof *live);
    for (bool more = true; more;) {
        more = false;
        for (int i = x->n - 1; i >= 0; i--) {
            build_step(b, 1 + x->arc_indptr[i + 1] - x->arc_indptr[i]);
            for (int k = x->arc_indptr[i]; !live[i] && k < x->arc_indptr[i + 1]; k++)
                more = live[i] = live[x->arc[k].to];
        }
    }
    return live;
}

bool dfa_is_empty(build *b, const dfa *x)
{
    return !find_live(b, x)[0];
}

/* Returns x without its dead states; state 0 stays, even if dead. */
static const dfa *trim(build *b, const dfa *x)
{
    bool *live = find_live(b, x);
    int *number = BUILD_ARRAY(b, int, x->n), n = 0, arcs = 0;
    live[0] = true;
    for (int i = 0; i < x->n; i++)
        number[i] = live[i] ? n++ : -1;
    dfa *d = BUILD_NEW(b, dfa);
    *d = (dfa){.n = n,
               .arc_indptr = BUILD_ARRAY(b, int, n + 1),
               .arc = BUILD_ARRAY(b, dfa_arc, x->arc_indptr[x->n]),
               .call_indptr = BUILD_ARRAY(b, int, n + 1),
               .accepts = BUILD_ARRAY(b, bool, n)};
    for (int i = 0; i < x->n; i++) {
        if (!live[i])
            continue;
        d->accepts[number[i]] = x->accepts[i];
        for (int k = x->arc_indptr[i]; k < x->arc_indptr[i + 1]; k++)
            if (live[x->arc[k].to])
                d->arc[arcs++] = (dfa_arc){x->arc[k].lo, x->arc[k].hi, number[x->arc[k].to]};
        d->arc_indptr[number[i] + 1] = arcs;
    }
    return d;
}

/* The product of two automata, for intersection and difference. y's state is -1 once y has refused a byte. */

typedef struct { int x, y; } pair;

typedef struct {
    build *b;
    dfa *d;
    pair *state;
    int state_cap, accept_cap, ptr_cap, arcs, arc_cap, *table, n_table;
} product;

static uint64_t hash_pair(pair p)
{
    uint64_t h = ((uint64_t)(unsigned)p.x << 32 | (unsigned)p.y) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 31;
}

static void rehash_pairs(product *p)
{
    p->n_table = p->n_table ? p->n_table * 2 : 64;
    p->table = BUILD_ARRAY(p->b, int, p->n_table);
    for (int i = 0; i < p->d->n; i++) {
        uint64_t h = hash_pair(p->state[i]);
        while (p->table[h & (uint64_t)(p->n_table - 1)])
            h++;
        p->table[h & (uint64_t)(p->n_table - 1)] = i + 1;
    }
}

static int state_of_pair(product *p, pair s)
{
    if (2 * (p->d->n + 1) > p->n_table)
        rehash_pairs(p);
    uint64_t h = hash_pair(s);
    for (int at; (at = p->table[h & (uint64_t)(p->n_table - 1)]); h++)
        if (p->state[at - 1].x == s.x && p->state[at - 1].y == s.y)
            return at - 1;
    int id = p->d->n++;
    build_step(p->b, 4);
    p->table[h & (uint64_t)(p->n_table - 1)] = id + 1;
    p->state = build_grow(p->b, p->state, &p->state_cap, p->d->n, sizeof *p->state);
    p->state[id] = s;
    return id;
}

static void add_product_arc(product *p, int lo, int hi, pair to)
{
    build_step(p->b, 1);
    p->d->arc = build_grow(p->b, p->d->arc, &p->arc_cap, p->arcs + 1, sizeof *p->d->arc);
    p->d->arc[p->arcs++] = (dfa_arc){(uint8_t)lo, (uint8_t)hi, state_of_pair(p, to)};
}

/* Adds the arcs of a pair of states: those of x's state, cut where y's state leads somewhere else. */
static void add_product_arcs(product *p, const dfa *x, const dfa *y, pair s, bool minus)
{
    for (int k = x->arc_indptr[s.x]; k < x->arc_indptr[s.x + 1]; k++)
        for (int lo = x->arc[k].lo, end = x->arc[k].hi; lo <= end;) {
            int hi = end, to = -1;
            build_step(p->b, s.y < 0 ? 1 : 1 + y->arc_indptr[s.y + 1] - y->arc_indptr[s.y]);
            for (int m = s.y < 0 ? 0 : y->arc_indptr[s.y]; s.y >= 0 && m < y->arc_indptr[s.y + 1]; m++) {
                const dfa_arc *other = &y->arc[m];
                if (other->lo <= lo && other->hi >= lo) {
                    to = other->to;
                    hi = other->hi < hi ? other->hi : hi;
                } else if (other->lo > lo && other->lo <= hi) {
                    hi = other->lo - 1;
                }
            }
            if (to >= 0 || minus)
                add_product_arc(p, lo, hi, (pair){x->arc[k].to, to});
            lo = hi + 1;
        }
}

static const dfa *product_of(build *b, const dfa *x, const dfa *y, bool minus)
{
    dfa *d = BUILD_NEW(b, dfa);
    product p = {.b = b, .d = d};
    state_of_pair(&p, (pair){0, 0});
    for (int i = 0; i < d->n; i++) {
        pair s = p.state[i];
        d->accepts = build_grow(b, d->accepts, &p.accept_cap, i + 1, sizeof *d->accepts);
        d->arc_indptr = build_grow(b, d->arc_indptr, &p.ptr_cap, i + 2, sizeof *d->arc_indptr);
        bool in_y = s.y >= 0 && y->accepts[s.y];
        d->accepts[i] = x->accepts[s.x] && (minus ? !in_y : in_y);
        add_product_arcs(&p, x, y, s, minus);
        d->arc_indptr[i + 1] = p.arcs;
    }
    d->call_indptr = BUILD_ARRAY(b, int, d->n + 1);
    return trim(b, d);
}

const dfa *dfa_and(build *b, const dfa *x, const dfa *y)
{
    return product_of(b, x, y, false);
}

const dfa *dfa_minus(build *b, const dfa *x, const dfa *y)
{
    return product_of(b, x, y, true);
}

const dfa *dfa_or(build *b, const dfa *x, const dfa *y)
{
    return dfa_of(b, expr_either(b, expr_dfa(b, x), expr_dfa(b, y)));
}
