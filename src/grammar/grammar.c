/* grammar.c - see grammar.h
 *
 * Nullable rules, which match the empty text, are resolved here: a call of one can be skipped, so a call that is made
 * reads at least one byte. A chain of calls without a byte between them is finite, since left recursion is refused. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/dfa.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/rules.h"
#include "grammar/schema.h"

#define MAX_STEPS 10000000 /* of build_step() */
#define FEW_STEPS (MAX_STEPS / 10)
#define MAX_MEMORY (256u << 20)

static const expr *read_choices(build *b, const char *text, size_t n)
{
    const json_t *list = build_read_json(b, text, n);
    int count = (int)json_array_size(list);
    if (count == 0 || count > 10000)
        build_fail(b, "a choice must be a list of 1 to 10000 strings");
    const expr **part = BUILD_ARRAY(b, const expr *, count);
    for (int i = 0; i < count; i++) {
        const json_t *s = json_array_get(list, (size_t)i);
        if (!json_is_string(s))
            build_fail(b, "a choice must be a list of strings");
        part[i] = expr_text(b, json_string_value(s), json_string_length(s));
    }
    return expr_choice(b, count, part);
}

static const expr *read_grammar(rules *r, grammar_kind kind, const char *text, size_t n)
{
    switch (kind) {
    case GRAMMAR_JSON: return schema_any_object(r);
    case GRAMMAR_SCHEMA: return schema_read(r, text, n);
    case GRAMMAR_REGEX: return expr_dfa(r->b, regex_language(r->b, text, n, REGEX_WHOLE));
    case GRAMMAR_CHOICE: return read_choices(r->b, text, n);
    case GRAMMAR_GBNF: return gbnf_read(r, text, n);
    case GRAMMAR_NONE: break;
    }
    build_fail(r->b, "there is no grammar of kind %d", (int)kind);
}

/* Returns which rules are nullable (match the empty text), [n], by iterating to the fixed point. */
static bool *find_nullable(build *b, nfa **a, int n)
{
    bool *nullable = BUILD_ARRAY(b, bool, n);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++)
            if (!nullable[i] && nfa_is_nullable(b, a[i], nullable))
                more = nullable[i] = true;
    }
    return nullable;
}

/* The states of all rules, numbered in sequence; rule i's begin at base[i]. */
typedef struct {
    build *b;
    const dfa **of;
    int n, n_states, *base;
    bool *live;
} network;

/* A state is live if it accepts, or leads to a live one by a byte or by a call of a rule whose start is live. */
static bool is_live(const network *w, int rule, int i)
{
    const dfa *d = w->of[rule];
    if (d->accepts[i])
        return true;
    for (int k = d->arc_indptr[i]; k < d->arc_indptr[i + 1]; k++)
        if (w->live[w->base[rule] + d->arc[k].to])
            return true;
    for (int k = d->call_indptr[i]; k < d->call_indptr[i + 1]; k++)
        if (w->live[w->base[rule] + d->call[k].to] && w->live[w->base[d->call[k].rule]])
            return true;
    return false;
}

static void find_live(network *w)
{
    w->live = BUILD_ARRAY(w->b, bool, w->n_states);
    for (bool more = true; more;) {
        more = false;
        for (int r = w->n - 1; r >= 0; r--)
            for (int i = w->of[r]->n - 1; i >= 0; i--) {
                const dfa *d = w->of[r];
                build_step(w->b,
                           1 + d->arc_indptr[i + 1] - d->arc_indptr[i] + d->call_indptr[i + 1] - d->call_indptr[i]);
                if (!w->live[w->base[r] + i] && is_live(w, r, i))
                    more = w->live[w->base[r] + i] = true;
            }
    }
}

/* A topological order of the rules: each comes before those that it calls before it reads a byte. */
typedef struct {
    const network *w;
    const rules *names;
    int *rank, *state, next;
} ranking; /* state: 0 new, 1 open, 2 done */

static void rank_rule(ranking *k, int rule)
{
    const dfa *d = k->w->of[rule];
    build_enter(k->w->b);
    k->state[rule] = 1;
    for (int i = d->call_indptr[0]; i < d->call_indptr[1]; i++) {
        int other = d->call[i].rule;
        if (!k->w->live[k->w->base[other]])
            continue;
        if (k->state[other] == 1)
            build_fail(k->w->b, "%s begins with itself (left recursion), which is not served",
                       k->names->at[other].name);
        if (k->state[other] == 0)
            rank_rule(k, other);
    }
    k->state[rule] = 2;
    k->rank[rule] = k->next--;
    build_leave(k->w->b);
}

static int *rank_rules(const network *w, const rules *names)
{
    ranking k = {.w = w,
                 .names = names,
                 .rank = BUILD_ARRAY(w->b, int, w->n),
                 .state = BUILD_ARRAY(w->b, int, w->n),
                 .next = w->n - 1};
    for (int i = 0; i < w->n; i++)
        if (k.state[i] == 0)
            rank_rule(&k, i);
    return k.rank;
}

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *p = xcalloc(n ? n : 1, size);
    if (n)
        memcpy(p, from, n * size);
    return p;
}

/* Copies all live states into heap memory. Nothing may fail from here on: it would leak. */
static grammar *pack(const network *w, const int *rank, int root)
{
    grammar *g = XNEW(grammar);
    int n_arcs = 0, n_calls = 0;
    for (int r = 0; r < w->n; r++) {
        n_arcs += w->of[r]->arc_indptr[w->of[r]->n];
        n_calls += w->of[r]->call_indptr[w->of[r]->n];
    }
    *g = (grammar){.n_states = w->n_states,
                   .n_rules = w->n,
                   .root = root,
                   .rank = copy_of(rank, (size_t)w->n, sizeof *rank),
                   .start = copy_of(w->base, (size_t)w->n, sizeof *w->base),
                   .accepts = XNEW_ARRAY(bool, (size_t)w->n_states),
                   .arc_indptr = XNEW_ARRAY(int, (size_t)w->n_states + 1),
                   .arc = XNEW_ARRAY(grammar_arc, (size_t)n_arcs + 1),
                   .call_indptr = XNEW_ARRAY(int, (size_t)w->n_states + 1),
                   .call = XNEW_ARRAY(grammar_call, (size_t)n_calls + 1)};
    n_arcs = n_calls = 0;
    for (int r = 0; r < w->n; r++)
        for (int i = 0; i < w->of[r]->n; i++) {
            const dfa *d = w->of[r];
            int base = w->base[r];
            g->accepts[base + i] = d->accepts[i];
            for (int k = d->arc_indptr[i]; k < d->arc_indptr[i + 1]; k++)
                if (w->live[base + d->arc[k].to])
                    g->arc[n_arcs++] = (grammar_arc){d->arc[k].lo, d->arc[k].hi, base + d->arc[k].to};
            for (int k = d->call_indptr[i]; k < d->call_indptr[i + 1]; k++)
                if (w->live[base + d->call[k].to] && w->live[w->base[d->call[k].rule]])
                    g->call[n_calls++] = (grammar_call){d->call[k].rule, base + d->call[k].to};
            g->arc_indptr[base + i + 1] = n_arcs;
            g->call_indptr[base + i + 1] = n_calls;
        }
    return g;
}

static grammar *make_network(rules *r, int root)
{
    build *b = r->b;
    nfa **a = BUILD_ARRAY(b, nfa *, r->n);
    network w = {.b = b, .n = r->n, .of = BUILD_ARRAY(b, const dfa *, r->n), .base = BUILD_ARRAY(b, int, r->n)};
    for (int i = 0; i < r->n; i++)
        a[i] = nfa_of(b, r->at[i].body);
    const bool *nullable = find_nullable(b, a, r->n);
    for (int i = 0; i < r->n; i++) {
        w.of[i] = nfa_determinise(b, a[i], nullable);
        w.base[i] = w.n_states;
        w.n_states += w.of[i]->n;
    }
    find_live(&w);
    if (!w.live[w.base[root]])
        build_fail(b, "nothing can match it");
    int *rank = rank_rules(&w, r);
    return pack(&w, rank, root);
}

static grammar *compile_within(long steps, grammar_kind kind, const char *text, size_t n, const atomic_bool *stop,
                               bool *took_too_long, err *e)
{
    build *b = XNEW(build);
    grammar *volatile g = NULL;
    *b = (build){.memory = {.limit = MAX_MEMORY}, .steps_left = steps, .check_at = steps, .stop = stop, .e = e};
    if (n > GRAMMAR_MAX_TEXT) {
        err_set(e, "it has %zu bytes; %u are the most", n, GRAMMAR_MAX_TEXT);
    } else if (setjmp(b->failed) == 0) {
        rules *r = BUILD_NEW(b, rules);
        r->b = b;
        const expr *is = read_grammar(r, kind, text, n);
        int root = rules_add(r, "the grammar", is);
        g = make_network(r, root);
    }
    *took_too_long = b->took_too_long;
    json_decref(b->document);
    json_decref(b->made);
    arena_free(&b->memory);
    free(b);
    return g;
}

grammar *grammar_compile(grammar_kind kind, const char *text, size_t n, const atomic_bool *stop, err *e)
{
    bool took_too_long;
    return compile_within(MAX_STEPS, kind, text, n, stop, &took_too_long, e);
}

grammar *grammar_compile_soon(grammar_kind kind, const char *text, size_t n, bool *takes_long, err *e)
{
    return compile_within(FEW_STEPS, kind, text, n, NULL, takes_long, e);
}

size_t grammar_bytes(const grammar *g)
{
    size_t n = (size_t)g->n_states, arcs = (size_t)g->arc_indptr[n], calls = (size_t)g->call_indptr[n];
    return sizeof *g + n * (2 * sizeof(int) + sizeof(bool)) + arcs * sizeof *g->arc + calls * sizeof *g->call +
           (size_t)g->n_rules * 2 * sizeof(int);
}

void grammar_free(grammar *g)
{
    if (!g)
        return;
    free(g->arc_indptr);
    free(g->arc);
    free(g->call_indptr);
    free(g->call);
    free(g->accepts);
    free(g->start);
    free(g->rank);
    free(g);
}
