/* grammars.c - see grammars.h */
#include "worker/grammars.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/token_bytes.h"

/* Grammars cached, in use or not; make_room() evicts unused ones earlier, when all guides come near GUIDES_MAX_BYTES. */
#define MAX_KEPT 128

/* One grammar. While busy it belongs to the compiling thread, except for salt, kind, text, n, busy and used. */
typedef struct kept_grammar {
    job job; /* first */
    grammars *of;
    char *salt;
    size_t n_owner; /* bytes of the salt that are its tenant's name */
    grammar_kind kind;
    char *text; /* [n] */
    size_t n;
    bool busy;
    uint64_t used; /* clock when it was last asked for */
    guide *is;     /* NULL: failed, or busy */
    err why;
} kept_grammar;

struct grammars {
    vocabulary_source from;
    jobs *compilers;
    token_trie *vocabulary; /* the compiling thread's until the first guide is made; immutable from then on */
    kept_grammar **at;      /* [n] */
    size_t n, cap;
    uint64_t clock; /* calls of grammars_find() */
    uint64_t n_compiled;
    atomic_size_t bytes; /* taken by all guides */
};

typedef struct {
    const tokenizer *t;
    int plain;
    buf text;
} vocabulary_reader;

static const char *bytes_of(void *ctx, int id, size_t *n)
{
    vocabulary_reader *r = ctx;
    buf_clear(&r->text);
    token_bytes_in_text(r->t, r->plain, id, &r->text);
    *n = r->text.len;
    return r->text.data;
}

token_trie *model_vocabulary_read(void *ctx, err *e)
{
    const model_vocabulary *v = ctx;
    tokenizer *t = tokenizer_load(v->model_dir, e);
    if (!t)
        return NULL;
    vocabulary_reader r = {.t = t, .plain = token_plain_id(t)};
    token_trie *trie = token_trie_new(v->vocab, bytes_of, &r);
    buf_free(&r.text);
    tokenizer_free(t);
    return trie;
}

static void compile(job *j)
{
    kept_grammar *x = (kept_grammar *)j;
    grammars *g = x->of;
    if (!g->vocabulary && !(g->vocabulary = g->from.read(g->from.ctx, &x->why)))
        return;
    grammar *made = grammar_compile(x->kind, x->text, x->n, NULL, &x->why);
    x->is = made ? guide_new(made, g->vocabulary, &g->bytes) : NULL;
}

grammars *grammars_new(vocabulary_source from, jobs *compilers)
{
    grammars *g = XNEW(grammars);
    *g = (grammars){.from = from, .compilers = compilers};
    return g;
}

static void kept_free(kept_grammar *x)
{
    guide_drop(x->is);
    free(x->salt);
    free(x->text);
    free(x);
}

void grammars_free(grammars *g)
{
    if (!g)
        return;
    if (g->compilers) {
        for (job *j; (j = jobs_take_back(g->compilers));)
            ((kept_grammar *)j)->busy = false;
        for (size_t i = 0; i < g->n;)
            if (g->at[i]->busy)
                ((kept_grammar *)jobs_finished(g->compilers, true))->busy = false;
            else
                i++;
        jobs_free(g->compilers);
    }
    for (size_t i = 0; i < g->n; i++)
        kept_free(g->at[i]);
    free(g->at);
    token_trie_free(g->vocabulary);
    free(g);
}

static void collect(grammars *g)
{
    for (job *j; g->compilers && (j = jobs_finished(g->compilers, false)); g->n_compiled++)
        ((kept_grammar *)j)->busy = false;
}

static bool has_same_owner(const kept_grammar *a, const kept_grammar *b)
{
    return a->n_owner == b->n_owner && memcmp(a->salt, b->salt, a->n_owner) == 0;
}

/* Returns how many entries the owner of this one has, or how many bytes they take. */
static size_t held_by_owner(const grammars *g, const kept_grammar *of, bool in_bytes)
{
    size_t sum = 0;
    for (size_t i = 0; i < g->n; i++)
        if (!g->at[i]->busy && has_same_owner(g->at[i], of))
            sum += !in_bytes ? 1 : g->at[i]->is ? guide_bytes(g->at[i]->is) : 0;
    return sum;
}

/* Evicts the least recently used entry of the owner that has most entries; unused: that has most bytes, and only one
 * whose guide nobody holds. False: there is none. Requests that hold its guide keep that. */
static bool forget_oldest(grammars *g, bool unused)
{
    size_t oldest = g->n, most = 0;
    for (size_t i = 0; i < g->n; i++) {
        const kept_grammar *x = g->at[i], *best = oldest < g->n ? g->at[oldest] : NULL;
        if (x->busy || (unused && x->is && guide_is_shared(x->is)))
            continue;
        size_t held = best && has_same_owner(best, x) ? most : held_by_owner(g, x, unused);
        if (best && (held < most || (held == most && x->used > best->used)))
            continue;
        oldest = i;
        most = held;
    }
    if (oldest == g->n)
        return false;
    kept_free(g->at[oldest]);
    g->at[oldest] = g->at[--g->n];
    return true;
}

/* Makes room for one more entry, in number and, by evicting unused ones, a quarter of GUIDES_MAX_BYTES. */
static void make_room(grammars *g)
{
    if (g->n >= MAX_KEPT)
        forget_oldest(g, false);
    while (atomic_load(&g->bytes) > GUIDES_MAX_BYTES / 4 * 3 && forget_oldest(g, true))
        ;
}

static kept_grammar *find_kept(grammars *g, const char *salt, grammar_kind kind, const void *text, size_t n)
{
    for (size_t i = 0; i < g->n; i++) {
        kept_grammar *x = g->at[i];
        if (x->kind == kind && x->n == n && (n == 0 || memcmp(x->text, text, n) == 0) && strcmp(x->salt, salt) == 0)
            return x;
    }
    make_room(g);
    kept_grammar *x = XNEW(kept_grammar);
    *x = (kept_grammar){.job = {compile},
                        .of = g,
                        .salt = xstrdup(salt),
                        .n_owner = strcspn(salt, "\n"),
                        .kind = kind,
                        .text = xmalloc(n + 1),
                        .n = n,
                        .busy = g->compilers != NULL};
    if (n)
        memcpy(x->text, text, n);
    g->at = xgrow(g->at, &g->cap, g->n + 1, sizeof *g->at);
    g->at[g->n++] = x;
    if (g->compilers)
        jobs_start(g->compilers, &x->job);
    else
        compile(&x->job);
    return x;
}

uint64_t grammars_compiled(grammars *g)
{
    collect(g);
    return g->n_compiled;
}

grammar_status grammars_find(grammars *g, const char *salt, grammar_kind kind, const void *text, size_t n, guide **out,
                             err *e)
{
    collect(g);
    kept_grammar *x = find_kept(g, salt, kind, text, n);
    x->used = ++g->clock;
    if (x->busy)
        return GRAMMAR_COMPILING;
    if (!x->is) {
        *e = x->why;
        return GRAMMAR_FAILED;
    }
    *out = guide_hold(x->is);
    return GRAMMAR_READY;
}
