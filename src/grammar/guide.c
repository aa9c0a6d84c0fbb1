/* guide.c - see guide.h */
#include "grammar/guide.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "grammar/machine.h"

#define SPARSE 1024            /* up to this many tokens are kept as a list, not as a mask */
#define MAX_MACHINE (4u << 20) /* bytes; a larger machine forgets all places but the present one */
#define MAX_LIVE (2u << 20)    /* bytes; if it is still larger after that, the output is exhausted */
#define MAX_WARM 16            /* states whose masks are computed ahead */
#define MAX_KEPT (48u << 20)   /* bytes of masks that a guide caches; further ones are computed each time */

/* Work is bounded in steps of some 10 ns (machine.h); visiting a node of the trie is one. Each output has a bucket of
 * steps (a token bucket) that holds enough for SHARE masks. A mask may take a quarter of a full bucket and then refills
 * a sixteenth, about half a walk over the vocabulary: it may now and then take a few ms, and one or two on average.
 * What is cached for all outputs is not charged to the bucket: each state has a bound of its own, and one mask computes
 * at most MAX_COLD of them. */
#define MASK_STEPS 200000    /* for a mask, besides walking over the vocabulary */
#define SHARE 8              /* masks that a full bucket pays for */
#define ADD_STEPS 50000      /* to follow a token */
#define LOCAL_STEPS 200000   /* for what is cached of a state, besides a walk */
#define MAX_COLD 2           /* states that one mask may compute; if more are missing, it walks the whole vocabulary */
#define ALIKE_STEPS 50000000 /* to find states that are alike */

/* The context-independent part of a state's mask: what may come next whatever rule called the state's own. */
typedef struct {
    int *token, n_tokens; /* [n_tokens] if mask is NULL */
    uint32_t *mask;
    int *exit, n_exits; /* nodes of the trie, with others below, at which the rule may have ended */
    bool exhausted;     /* computing it took too many steps; it is incomplete */
} local;

typedef enum { LOCAL_UNKNOWN, LOCAL_BUSY, LOCAL_READY } local_status;

struct guide {
    grammar *g;
    const token_trie *t;
    atomic_int holders;
    pthread_mutex_t lock; /* guards status, bytes and kept; ready: a status has changed */
    pthread_cond_t ready;
    unsigned char *status; /* [n_states] local_status */
    size_t bytes, kept;    /* of memory in all; of that, cached masks */
    atomic_size_t *all;    /* see guide_new() */
    local **of;            /* [n_states] immutable once ready */
    int *like;             /* [n_states] the first state in which the same tokens may come: see find_alike */
};

struct guide_state {
    guide *of;
    machine *m;
    int place;
    long steps;     /* left in the output's bucket */
    bool exhausted; /* the grammar is too ambiguous to be followed further */
    uint32_t *mask;
    int masked; /* the place whose mask it is; PLACE_NONE - 1: of none */
};

/* Walking the trie. */

typedef struct {
    const token_trie *t;
    machine *m;
    uint32_t *mask; /* found tokens are set here */
    int n_found;
    int *exit, n_exits; /* exits found, if looks_for_exits */
    size_t exit_cap;
    bool looks_for_exits;
    int n_walked; /* nodes */
} walk;

static void found(walk *w, int token)
{
    for (; token >= 0; token = w->t->same[token]) {
        w->mask[token >> 5] |= 1u << (token & 31);
        w->n_found++;
    }
}

static void spend(machine *m, long steps)
{
    machine_allow(m, machine_steps_left(m) - steps);
}

/* Walks nodes from..end-1, the subtree below a node of depth `depth` that is at `place`. Stops when the machine is
 * exhausted. */
static void walk_nodes(walk *w, int from, int end, int depth, int place)
{
    const token_trie *t = w->t;
    int at[4097];
    const int *steps[4097];
    int n = 0;
    at[depth] = place;
    steps[depth] = machine_steps(w->m, place);
    for (int i = from; i < end; n++) {
        int d = t->depth[i], to = steps[d - 1][t->byte[i]];
        if (to == PLACE_UNKNOWN) {
            to = machine_next(w->m, at[d - 1], t->byte[i]);
            if (machine_steps_left(w->m) < 0)
                return;
        }
        if (to == PLACE_NONE) {
            i = t->end[i];
            continue;
        }
        if (t->token[i] >= 0)
            found(w, t->token[i]);
        if (t->end[i] > i + 1) {
            at[d] = to;
            steps[d] = machine_steps(w->m, to);
            if (w->looks_for_exits && machine_leaves(w->m, to)) {
                w->exit = xgrow(w->exit, &w->exit_cap, (size_t)w->n_exits + 1, sizeof *w->exit);
                w->exit[w->n_exits++] = i;
            }
        }
        i++;
    }
    w->n_walked += n;
    spend(w->m, n);
}

static local *compute_local(const guide *g, int state)
{
    int words = guide_mask_words(g->t->vocab);
    machine *m = machine_new(g->g);
    walk w = {.t = g->t, .m = m, .mask = XNEW_ARRAY(uint32_t, (size_t)words), .looks_for_exits = true};
    machine_allow(m, LOCAL_STEPS + g->t->n);
    walk_nodes(&w, 0, g->t->n, 0, machine_begin_at(m, state));
    local *l = XNEW(local);
    *l = (local){.mask = w.mask, .exit = w.exit, .n_exits = w.n_exits, .exhausted = machine_steps_left(m) < 0};
    machine_free(m);
    if (w.n_found > SPARSE && !l->exhausted)
        return l;
    l->token = XNEW_ARRAY(int, l->exhausted ? 1 : (size_t)w.n_found + 1);
    for (int i = 0; i < words && !l->exhausted; i++)
        for (uint32_t bits = w.mask[i]; bits; bits &= bits - 1)
            l->token[l->n_tokens++] = 32 * i + __builtin_ctz(bits);
    free(l->mask);
    l->mask = NULL;
    return l;
}

static void local_free(local *l)
{
    if (!l)
        return;
    free(l->token);
    free(l->mask);
    free(l->exit);
    free(l);
}

static size_t bytes_of(const local *l, int vocab)
{
    size_t words = l->mask ? (size_t)guide_mask_words(vocab) : (size_t)l->n_tokens;
    return sizeof *l + words * sizeof(uint32_t) + (size_t)l->n_exits * sizeof(int);
}

static void count_bytes(guide *g, size_t n)
{
    g->bytes += n;
    if (g->all)
        atomic_fetch_add(g->all, n);
}

/* Returns the local of a state, computed by the first thread that asks while others wait. *cold counts down how many
 * the caller may still compute; NULL when this one is missing and none are left. *own is NULL, or the local itself
 * where there was no room to cache it: the caller frees it. */
static const local *local_of(guide *g, int state, int *cold, local **own)
{
    state = g->like[state];
    pthread_mutex_lock(&g->lock);
    while (g->status[state] == LOCAL_BUSY)
        pthread_cond_wait(&g->ready, &g->lock);
    bool missing = g->status[state] == LOCAL_UNKNOWN, mine = missing && (*cold)-- > 0;
    if (mine)
        g->status[state] = LOCAL_BUSY;
    pthread_mutex_unlock(&g->lock);
    *own = NULL;
    if (!mine)
        return missing ? NULL : g->of[state];
    local *l = compute_local(g, state);
    pthread_mutex_lock(&g->lock);
    bool room = g->kept < MAX_KEPT && (!g->all || atomic_load(g->all) < GUIDES_MAX_BYTES);
    if (room) {
        g->of[state] = l;
        g->kept += bytes_of(l, g->t->vocab);
        count_bytes(g, bytes_of(l, g->t->vocab));
    } else {
        *own = l;
    }
    g->status[state] = room ? LOCAL_READY : LOCAL_UNKNOWN;
    pthread_cond_broadcast(&g->ready);
    pthread_mutex_unlock(&g->lock);
    return l;
}

/* Partition refinement: two states are alike if the same bytes can be read from them, as far as the longest token goes.
 * Each round hashes a state's arcs and calls with the previous round's numbers of the states they lead to, so after k
 * rounds equal numbers mean alike for k bytes. (A call reads at least one byte.) So of the thousands of states that
 * count the characters of a string, all that are far from its limits share one mask. */

static uint64_t mix(uint64_t h, uint64_t x)
{
    return rng_mix(h * 0x9e3779b97f4a7c15u + x);
}

static uint64_t number_of(const grammar *g, int state, const uint64_t *before)
{
    uint64_t h = 2u + g->accepts[state]; /* never 0, as arcs and calls are not: mix(0, 0) is 0 */
    for (int k = g->arc_indptr[state]; k < g->arc_indptr[state + 1]; k++)
        h = mix(mix(h, 1u << 17 | (uint64_t)g->arc[k].lo << 8 | g->arc[k].hi), before[g->arc[k].to]);
    for (int k = g->call_indptr[state]; k < g->call_indptr[state + 1]; k++)
        h = mix(mix(h, 1u << 16 | (uint64_t)g->call[k].rule), before[g->call[k].to]);
    return h;
}

typedef struct {
    uint64_t number;
    int state;
} numbered;

static int by_number(const void *x, const void *y)
{
    const numbered *a = x, *b = y;
    return a->number != b->number ? (a->number > b->number ? 1 : -1) : (a->state > b->state) - (a->state < b->state);
}

/* Returns how many different numbers there are; sets like[i] to the first state with the number of state i. */
static int group(const uint64_t *number, int n, numbered *scratch, int *like)
{
    int groups = 0;
    for (int i = 0; i < n; i++)
        scratch[i] = (numbered){number[i], i};
    qsort(scratch, (size_t)n, sizeof *scratch, by_number);
    for (int i = 0, first = 0; i < n; i++) {
        if (i == 0 || scratch[i].number != scratch[i - 1].number) {
            first = scratch[i].state;
            groups++;
        }
        like[scratch[i].state] = first;
    }
    return groups;
}

/* Returns `like` of a guide; the caller frees. If computing it would take too long, no state is like another. */
static int *find_alike(const grammar *g, int rounds)
{
    int n = g->n_states, *like = XNEW_ARRAY(int, (size_t)n), groups = 0;
    long cost = n + g->arc_indptr[n] + g->call_indptr[n];
    for (int i = 0; i < n && cost * rounds > ALIKE_STEPS; i++)
        like[i] = i;
    if (cost * rounds > ALIKE_STEPS)
        return like;
    uint64_t *now = XNEW_ARRAY(uint64_t, (size_t)n), *before = XNEW_ARRAY(uint64_t, (size_t)n);
    numbered *scratch = XNEW_ARRAY(numbered, (size_t)n);
    for (int k = 0; k < rounds; k++) {
        uint64_t *old = before;
        before = now;
        now = old;
        for (int i = 0; i < n; i++)
            now[i] = number_of(g, i, before);
        if (k % 8 != 7)
            continue;
        int found = group(now, n, scratch, like);
        if (found == groups)
            break; /* the partition is stable */
        groups = found;
    }
    group(now, n, scratch, like);
    free(scratch);
    free(before);
    free(now);
    return like;
}

/* Returns for how many bytes a state has arcs. */
static int width_of(const grammar *g, int state)
{
    int n = 0;
    for (int k = g->arc_indptr[state]; k < g->arc_indptr[state + 1]; k++)
        n += g->arc[k].hi - g->arc[k].lo + 1;
    return n;
}

guide *guide_new(grammar *g, const token_trie *t, atomic_size_t *all)
{
    guide *x = XNEW(guide);
    x->g = g;
    x->t = t;
    x->all = all;
    count_bytes(x, grammar_bytes(g) + sizeof *x + (size_t)g->n_states * (sizeof *x->of + sizeof *x->like + 1));
    atomic_init(&x->holders, 1);
    CHECK(pthread_mutex_init(&x->lock, NULL) == 0);
    CHECK(pthread_cond_init(&x->ready, NULL) == 0);
    x->status = XNEW_ARRAY(unsigned char, (size_t)g->n_states);
    x->of = XNEW_ARRAY(local *, (size_t)g->n_states);
    x->like = find_alike(g, t->max_depth + 1);
    for (int i = 0, cold = MAX_WARM; i < g->n_states && cold > 0; i++)
        if (x->like[i] == i && width_of(g, i) > 64) {
            local *own;
            local_of(x, i, &cold, &own);
            local_free(own);
        }
    return x;
}

guide *guide_hold(guide *g)
{
    atomic_fetch_add(&g->holders, 1);
    return g;
}

void guide_drop(guide *g)
{
    if (!g || atomic_fetch_sub(&g->holders, 1) != 1)
        return;
    if (g->all)
        atomic_fetch_sub(g->all, g->bytes);
    for (int i = 0; i < g->g->n_states; i++)
        local_free(g->of[i]);
    free(g->of);
    free(g->like);
    free(g->status);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->ready);
    grammar_free(g->g);
    free(g);
}

bool guide_is_shared(const guide *g)
{
    return atomic_load(&g->holders) > 1;
}

size_t guide_bytes(guide *g)
{
    pthread_mutex_lock(&g->lock);
    size_t n = g->bytes;
    pthread_mutex_unlock(&g->lock);
    return n;
}

static long share_of(const guide *g)
{
    return SHARE * (long)(g->t->n + MASK_STEPS);
}

guide_state *guide_state_new(guide *g)
{
    guide_state *s = XNEW(guide_state);
    *s = (guide_state){.of = guide_hold(g),
                       .m = machine_new(g->g),
                       .steps = share_of(g),
                       .masked = PLACE_NONE - 1,
                       .mask = XNEW_ARRAY(uint32_t, (size_t)guide_mask_words(g->t->vocab) + 1)};
    s->place = machine_begin(s->m);
    return s;
}

void guide_state_free(guide_state *s)
{
    if (!s)
        return;
    machine_free(s->m);
    free(s->mask);
    guide_drop(s->of);
    free(s);
}

/* Frees what a machine that has grown too large remembers, and ends an output that is too ambiguous. */
static void enforce_limits(guide_state *s)
{
    bool masked = s->masked == s->place;
    s->exhausted = s->exhausted || machine_steps_left(s->m) < 0;
    if (!s->exhausted && s->place != PLACE_NONE && machine_bytes(s->m) > MAX_MACHINE) {
        s->place = machine_keep(s->m, s->place);
        s->exhausted = machine_bytes(s->m) > MAX_LIVE;
    }
    if (s->exhausted) {
        s->place = PLACE_NONE;
        memset(s->mask, 0, (size_t)guide_mask_words(s->of->t->vocab) * sizeof *s->mask);
    }
    s->masked = masked ? s->place : PLACE_NONE - 1;
}

bool guide_state_add(guide_state *s, int token)
{
    size_t n = 0;
    const char *text = token >= 0 && token < s->of->t->vocab ? token_trie_text(s->of->t, token, &n) : NULL;
    if (n == 0) {
        s->place = PLACE_NONE;
        return false;
    }
    machine_allow(s->m, ADD_STEPS);
    for (size_t i = 0; i < n && s->place != PLACE_NONE; i++)
        s->place = machine_next(s->m, s->place, (uint8_t)text[i]);
    enforce_limits(s);
    return s->place != PLACE_NONE;
}

static void add_local(walk *w, const local *l)
{
    for (int i = 0; !l->mask && i < l->n_tokens; i++)
        w->mask[l->token[i] >> 5] |= 1u << (l->token[i] & 31);
    for (int i = 0, n = guide_mask_words(w->t->vocab); l->mask && i < n; i++)
        w->mask[i] |= l->mask[i];
}

/* Adds the tokens that an item allows. Returns false where it is better to walk the whole vocabulary for all items at
 * once: this item's local is missing and no more may be computed, or half the trie has been walked already. */
static bool walk_item(guide_state *s, walk *w, machine_item x, int *cold)
{
    const token_trie *t = w->t;
    local *own;
    const local *l = local_of(s->of, x.state, cold, &own);
    if (!l)
        return false;
    s->exhausted = s->exhausted || l->exhausted;
    add_local(w, l);
    int after = l->n_exits ? machine_after(s->m, x.context) : PLACE_NONE;
    for (int k = 0; after != PLACE_NONE && k < l->n_exits && w->n_walked < t->n / 2 && machine_steps_left(s->m) >= 0;
         k++)
        walk_nodes(w, l->exit[k] + 1, t->end[l->exit[k]], t->depth[l->exit[k]], after);
    local_free(own);
    return w->n_walked < t->n / 2;
}

static void walk_place(guide_state *s)
{
    walk w = {.t = s->of->t, .m = s->m, .mask = s->mask};
    int n, cold = MAX_COLD;
    machine_items(s->m, s->place, &n);
    for (int i = 0; i < n && !s->exhausted && machine_steps_left(s->m) >= 0; i++) {
        machine_item x = machine_items(s->m, s->place, &n)[i]; /* items move when places are added */
        if (!walk_item(s, &w, x, &cold)) {
            walk_nodes(&w, 0, w.t->n, 0, s->place);
            return;
        }
    }
}

const uint32_t *guide_state_mask(guide_state *s)
{
    if (s->masked == s->place)
        return s->mask;
    memset(s->mask, 0, (size_t)guide_mask_words(s->of->t->vocab) * sizeof *s->mask);
    s->masked = s->place;
    if (s->place == PLACE_NONE)
        return s->mask;
    long share = share_of(s->of), most = share / 4, allowed = s->steps < most ? s->steps : most;
    machine_allow(s->m, allowed);
    walk_place(s);
    s->steps += machine_steps_left(s->m) - allowed + share / 16;
    s->steps = s->steps < share ? s->steps : share;
    enforce_limits(s);
    return s->mask;
}

bool guide_state_is_exhausted(const guide_state *s)
{
    return s->exhausted;
}

bool guide_state_may_end(const guide_state *s)
{
    return machine_may_end(s->m, s->place);
}
