/* kv_pool.c - see kv_pool.h: stacks of free page numbers, lists of cached pages by last use, and a hash table of all
 * that can be found
 *
 * Pages of the host are numbered behind those of the device. A content that can be found has a serial number, the same
 * on both sides, by which the pages that follow it refer to it. Where both sides have the content, the page of the
 * device is the one in the hash table. Numbers are not used again, so when a content is lost, the pages that follow it
 * cannot be found any more. They soon are the least recently used and go: a sequence gives its last pages back
 * first. */
#include "engine/kv_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { NONE = -1 };

typedef struct {
    int n_users;        /* sequences that have it; of the host: 0 */
    uint64_t serial;    /* 0: it cannot be found */
    kv_key before;      /* what its content follows, if it can be found */
    int next_alike;     /* next in its chain of the hash table, or NONE */
    int older, newer;   /* in the list of its side, while nobody uses it */
    int twin;           /* the page of the other side with the same content, or NONE */
    uint64_t last_step; /* on the device, while nobody has it: the last step that may use it */
    uint64_t busy;      /* the last move of LANE_IN that writes it, or on the host reads it */
    bool is_arriving;   /* on the host: a move of LANE_OUT writes it */
    bool is_ahead;      /* on the device, cached: it has been seen by kv_pool_save() */
} page;

typedef struct { int oldest, newest, n; } page_list;

/* Moves that have not ended, in order; the first n_begun have begun. */
typedef struct {
    kv_move *at;
    size_t cap;
    int n, n_begun;
    uint64_t n_ended;
    uint64_t last_step; /* the last step that may use a page of the moves that have not begun */
} move_queue;

struct kv_pool {
    page *pages;                /* [n_total + n_host] */
    int *tokens;                /* [n_total + n_host, page_len] of pages that can be found */
    int *free_page, *free_host; /* [n_free], [n_free_host] that cannot be found and are not being written */
    int *chain;                 /* [n_chains] first page of each, or NONE */
    page_list cached;           /* pages of the device that nobody has */
    page_list kept;             /* pages of the host that have arrived */
    /* The cached pages that kv_pool_save() has seen are the oldest: the newest of them, and how many. */
    int last_ahead, n_ahead;
    int n_free, n_total, n_free_host, n_host, page_len;
    unsigned n_chains;  /* a power of two */
    uint64_t n_serials; /* given out */
    uint64_t n_steps, n_steps_done;
    move_queue lane[N_LANES];
    bool must_wait;
};

kv_pool *kv_pool_new(int n_pages, int n_host, int page_len)
{
    size_t n = (size_t)n_pages + (size_t)n_host;
    kv_pool *p = XNEW(kv_pool);
    *p = (kv_pool){.n_free = n_pages,
                   .n_total = n_pages,
                   .n_free_host = n_host,
                   .n_host = n_host,
                   .page_len = page_len,
                   .cached = {NONE, NONE, 0},
                   .kept = {NONE, NONE, 0},
                   .last_ahead = NONE,
                   .n_chains = 16};
    while (p->n_chains < n)
        p->n_chains *= 2;
    p->pages = XNEW_ARRAY(page, n);
    p->tokens = XNEW_ARRAY(int, n *(size_t)page_len);
    p->free_page = XNEW_ARRAY(int, (size_t)n_pages);
    p->free_host = XNEW_ARRAY(int, (size_t)n_host);
    p->chain = XNEW_ARRAY(int, p->n_chains);
    for (int i = 0; i < n_pages; i++)
        p->free_page[i] = n_pages - 1 - i; /* low pages first: memory never needed is never touched */
    for (int i = 0; i < n_host; i++)
        p->free_host[i] = n_pages + n_host - 1 - i;
    for (size_t i = 0; i < n; i++)
        p->pages[i].twin = NONE;
    for (unsigned i = 0; i < p->n_chains; i++)
        p->chain[i] = NONE;
    return p;
}

void kv_pool_free(kv_pool *p)
{
    if (!p)
        return;
    free(p->pages);
    free(p->tokens);
    free(p->free_page);
    free(p->free_host);
    free(p->chain);
    free(p->lane[LANE_OUT].at);
    free(p->lane[LANE_IN].at);
    free(p);
}

int kv_pool_page_len(const kv_pool *p)
{
    return p->page_len;
}

int kv_pool_pages_for(const kv_pool *p, int len)
{
    return (len + p->page_len - 1) / p->page_len;
}

static int *tokens_of(const kv_pool *p, int number)
{
    return p->tokens + (size_t)number * (size_t)p->page_len;
}

/* The chain in which a page of these tokens behind `before` stands. */
static int *chain_of(const kv_pool *p, kv_key before, const int *token)
{
    uint64_t hash = rng_mix(before.part[0] ^ rng_mix(before.part[1]));
    for (int i = 0; i < p->page_len; i++)
        hash = rng_mix(hash ^ (uint64_t)token[i]);
    return &p->chain[hash & (p->n_chains - 1)];
}

static bool keys_equal(kv_key a, kv_key b)
{
    return a.part[0] == b.part[0] && a.part[1] == b.part[1];
}

/* What the page behind this one follows. */
static kv_key key_behind(const kv_pool *p, int number)
{
    return (kv_key){{0, p->pages[number].serial}};
}

/* The page of these tokens that follows `before`, or NONE. */
static int find_page(const kv_pool *p, kv_key before, const int *token)
{
    for (int i = *chain_of(p, before, token); i != NONE; i = p->pages[i].next_alike)
        if (keys_equal(p->pages[i].before, before) &&
            memcmp(tokens_of(p, i), token, (size_t)p->page_len * sizeof *token) == 0)
            return i;
    return NONE;
}

/* The link of its chain that points to a page. */
static int *link_to(const kv_pool *p, int number)
{
    int *at = chain_of(p, p->pages[number].before, tokens_of(p, number));
    while (*at != number)
        at = &p->pages[*at].next_alike;
    return at;
}

static bool is_on_host(const kv_pool *p, int number)
{
    return number >= p->n_total;
}

/* The lists, by last use. */

static void list_remove(kv_pool *p, page_list *l, int number)
{
    page *g = &p->pages[number];
    *(g->older == NONE ? &l->oldest : &p->pages[g->older].newer) = g->newer;
    *(g->newer == NONE ? &l->newest : &p->pages[g->newer].older) = g->older;
    l->n--;
}

static void list_append(kv_pool *p, page_list *l, int number)
{
    p->pages[number].older = l->newest;
    p->pages[number].newer = NONE;
    *(l->newest == NONE ? &l->oldest : &p->pages[l->newest].newer) = number;
    l->newest = number;
    l->n++;
}

static void uncache(kv_pool *p, int number)
{
    page *g = &p->pages[number];
    if (p->last_ahead == number)
        p->last_ahead = g->older;
    p->n_ahead -= g->is_ahead;
    g->is_ahead = false;
    list_remove(p, &p->cached, number);
}

/* Moves. */

static uint64_t add_move(kv_pool *p, kv_lane lane, int number, int host)
{
    move_queue *q = &p->lane[lane];
    q->at = xgrow(q->at, &q->cap, (size_t)q->n + 1, sizeof *q->at);
    q->at[q->n++] = (kv_move){number, host - p->n_total};
    if (p->pages[number].last_step > q->last_step)
        q->last_step = p->pages[number].last_step;
    return q->n_ended + (uint64_t)q->n;
}

static bool is_busy(const kv_pool *p, int number)
{
    return p->pages[number].busy > p->lane[LANE_IN].n_ended;
}

/* Puts page `by` into the hash table in place of page `number`, whose content it has or will have. */
static void replace(kv_pool *p, int number, int by)
{
    page *from = &p->pages[number], *to = &p->pages[by];
    *link_to(p, number) = by;
    to->next_alike = from->next_alike;
    to->serial = from->serial;
    to->before = from->before;
    memcpy(tokens_of(p, by), tokens_of(p, number), (size_t)p->page_len * sizeof *p->tokens);
}

static void join_twins(kv_pool *p, int number, int host)
{
    p->pages[number].twin = host;
    p->pages[host].twin = number;
}

/* Drops the content of a page of the host. A page that is being written is free when that has ended. */
static void drop_host(kv_pool *p, int host)
{
    page *h = &p->pages[host];
    if (h->twin == NONE)
        *link_to(p, host) = h->next_alike;
    else
        p->pages[h->twin].twin = NONE;
    h->twin = NONE;
    h->serial = 0;
    if (h->is_arriving)
        return;
    list_remove(p, &p->kept, host);
    p->free_host[p->n_free_host++] = host;
}

/* Drops the content of a page of the device. A copy on the host stays and is found instead; one that is still being
 * written is void. */
static void forget(kv_pool *p, int number)
{
    page *g = &p->pages[number];
    int host = g->twin;
    if (host != NONE && p->pages[host].is_arriving) {
        drop_host(p, host);
        host = NONE;
    }
    if (host != NONE) {
        replace(p, number, host);
        p->pages[host].twin = NONE;
    } else {
        *link_to(p, number) = g->next_alike;
    }
    g->twin = NONE;
    g->serial = 0;
}

/* The cached page to be taken next: the oldest that is not being written, or else the oldest. */
static int oldest_quiet(const kv_pool *p)
{
    int number = p->cached.oldest;
    while (number != NONE && is_busy(p, number))
        number = p->pages[number].newer;
    return number != NONE ? number : p->cached.oldest;
}

static int take_page(kv_pool *p)
{
    int number;
    if (p->n_free > 0) {
        number = p->free_page[--p->n_free];
    } else {
        number = oldest_quiet(p);
        uncache(p, number);
        forget(p, number);
    }
    p->must_wait |= is_busy(p, number);
    p->pages[number].n_users = 1;
    return number;
}

static void append_page(kv_seq *seq, int number)
{
    if (seq->n_pages == seq->cap) {
        seq->cap = seq->cap + seq->cap / 2 + 4;
        seq->page = xrealloc(seq->page, (size_t)seq->cap * sizeof *seq->page);
    }
    seq->page[seq->n_pages++] = number;
}

int kv_pool_reserve(kv_pool *p, kv_seq *seq, int len)
{
    int want = kv_pool_pages_for(p, len);
    if (want - seq->n_pages > kv_pool_free_pages(p))
        return -1;
    while (seq->n_pages < want)
        append_page(seq, take_page(p));
    return 0;
}

static bool is_shareable(kv_key root)
{
    return root.part[0] != 0;
}

kv_found kv_pool_find(const kv_pool *p, kv_key root, const int *token, int n)
{
    kv_found f = {0};
    kv_key before = root;
    for (; is_shareable(root) && (f.n_pages + 1) * p->page_len <= n; f.n_pages++) {
        int number = find_page(p, before, token + f.n_pages * p->page_len);
        if (number == NONE)
            break;
        f.in_use += p->pages[number].n_users > 0;
        f.n_far += is_on_host(p, number);
        f.n_near += f.n_far == 0;
        before = key_behind(p, number);
    }
    return f;
}

/* Takes a page of the device for a content on the host and queues the copy. The content is found on the device from now
 * on. */
static int fetch(kv_pool *p, int host)
{
    int number = take_page(p);
    replace(p, host, number);
    join_twins(p, number, host);
    p->pages[number].busy = p->pages[host].busy = add_move(p, LANE_IN, number, host);
    return number;
}

/* Marks the host's copies of what seq shares as used now, the first page last: without it those behind are of no
 * use. */
static void touch_twins(kv_pool *p, const kv_seq *seq)
{
    for (int i = seq->n_pages - 1; i >= 0; i--) {
        int host = p->pages[seq->page[i]].twin;
        if (host == NONE || p->pages[host].is_arriving)
            continue;
        list_remove(p, &p->kept, host);
        list_append(p, &p->kept, host);
    }
}

int kv_pool_share(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n)
{
    CHECK(seq->n_pages == 0);
    seq->last = root;
    while (is_shareable(root) && (seq->n_pages + 1) * p->page_len <= n) {
        int number = find_page(p, seq->last, token + seq->n_pages * p->page_len);
        if (number == NONE)
            break;
        if (!is_on_host(p, number) && p->pages[number].n_users++ == 0)
            uncache(p, number);
        append_page(seq, number);
        seq->last = key_behind(p, number);
    }
    for (int i = 0; i < seq->n_pages; i++) { /* only now: no page taken here may be one of its own */
        if (is_on_host(p, seq->page[i]))
            seq->page[i] = fetch(p, seq->page[i]);
        uint64_t busy = p->pages[seq->page[i]].busy;
        seq->arrives = busy > seq->arrives ? busy : seq->arrives;
    }
    touch_twins(p, seq);
    seq->n_known = seq->n_pages;
    return seq->n_pages * p->page_len;
}

bool kv_pool_has_arrived(const kv_pool *p, const kv_seq *seq)
{
    return seq->arrives <= p->lane[LANE_IN].n_ended;
}

/* Makes a page of a sequence findable. */
static void publish_page(kv_pool *p, int number, kv_key before, const int *token)
{
    page *g = &p->pages[number];
    int *chain = chain_of(p, before, token);
    memcpy(tokens_of(p, number), token, (size_t)p->page_len * sizeof *token);
    g->serial = ++p->n_serials;
    g->before = before;
    g->next_alike = *chain;
    *chain = number;
}

void kv_pool_publish(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n)
{
    if (!is_shareable(root))
        return;
    if (seq->n_known == 0)
        seq->last = root;
    for (; (seq->n_known + 1) * p->page_len <= n; seq->n_known++) {
        const int *of_page = token + seq->n_known * p->page_len;
        int number = find_page(p, seq->last, of_page), own = seq->page[seq->n_known];
        if (number == NONE) { /* else another sequence has published the same: later pages follow that one */
            number = own;
            publish_page(p, number, seq->last, of_page);
        } else if (is_on_host(p, number)) { /* it was computed, as that is faster than fetching it */
            replace(p, number, own);
            join_twins(p, own, number);
            number = own;
        }
        seq->last = key_behind(p, number);
    }
}

void kv_pool_spoil(kv_pool *p, kv_seq *seq)
{
    for (int i = 0; i < seq->n_pages; i++) {
        const page *g = &p->pages[seq->page[i]];
        if (g->twin != NONE)
            drop_host(p, g->twin);
        if (g->serial)
            forget(p, seq->page[i]);
    }
}

void kv_pool_release(kv_pool *p, kv_seq *seq)
{
    while (seq->n_pages > 0) {
        int number = seq->page[--seq->n_pages];
        CHECK(p->pages[number].n_users > 0);
        if (--p->pages[number].n_users > 0)
            continue;
        p->pages[number].last_step = p->n_steps;
        if (p->pages[number].serial)
            list_append(p, &p->cached, number);
        else
            p->free_page[p->n_free++] = number;
    }
    free(seq->page);
    *seq = (kv_seq){0};
}

/* Takes a page of the host to write to: a free one, or the least recently used that is not being read. NONE: there is
 * none. */
static int take_host(kv_pool *p)
{
    int host = p->kept.oldest;
    if (p->n_free_host == 0) {
        while (host != NONE && is_busy(p, host))
            host = p->pages[host].newer;
        if (host == NONE)
            return NONE;
        drop_host(p, host);
    }
    return p->free_host[--p->n_free_host];
}

/* Queues the copy of a page of the device to one of the host. */
static void save(kv_pool *p, int number, int host)
{
    page *h = &p->pages[host];
    h->serial = p->pages[number].serial;
    h->before = p->pages[number].before;
    h->is_arriving = true;
    memcpy(tokens_of(p, host), tokens_of(p, number), (size_t)p->page_len * sizeof *p->tokens);
    join_twins(p, number, host);
    add_move(p, LANE_OUT, number, host);
}

/* How many of the free pages kv_pool_save() makes safe to take: at most half of what the host holds, or it would have
 * little but copies of what the device still has. */
static int goal_ahead(const kv_pool *p)
{
    return p->n_total / 4 < p->n_host / 2 ? p->n_total / 4 : p->n_host / 2;
}

void kv_pool_save(kv_pool *p, int most)
{
    while (p->n_free + p->n_ahead < goal_ahead(p) && p->lane[LANE_OUT].n < most) {
        int number = p->last_ahead == NONE ? p->cached.oldest : p->pages[p->last_ahead].newer;
        if (number == NONE)
            return;
        if (p->pages[number].twin == NONE) {
            int host = is_busy(p, number) ? NONE : take_host(p);
            if (host == NONE)
                return;
            save(p, number, host);
        }
        p->pages[number].is_ahead = true;
        p->last_ahead = number;
        p->n_ahead++;
    }
}

void kv_pool_note_steps(kv_pool *p, uint64_t n_given, uint64_t n_done)
{
    p->n_steps = n_given;
    p->n_steps_done = n_done;
}

const kv_move *kv_pool_begin_moves(kv_pool *p, kv_lane lane, int *n, bool *behind_steps)
{
    move_queue *q = &p->lane[lane];
    *behind_steps = q->last_step > p->n_steps_done;
    q->last_step = 0;
    *n = q->n - q->n_begun;
    const kv_move *first = *n ? q->at + q->n_begun : NULL;
    q->n_begun = q->n;
    return first;
}

static void end_save(kv_pool *p, const kv_move *m)
{
    int host = p->n_total + m->host;
    p->pages[host].is_arriving = false;
    if (p->pages[host].serial)
        list_append(p, &p->kept, host);
    else
        p->free_host[p->n_free_host++] = host;
}

void kv_pool_end_moves(kv_pool *p, kv_lane lane, int n)
{
    move_queue *q = &p->lane[lane];
    CHECK(n <= q->n_begun);
    for (int i = 0; i < n && lane == LANE_OUT; i++)
        end_save(p, &q->at[i]);
    if (n < q->n)
        memmove(q->at, q->at + n, (size_t)(q->n - n) * sizeof *q->at);
    q->n -= n;
    q->n_begun -= n;
    q->n_ended += (uint64_t)n;
}

bool kv_pool_must_wait(kv_pool *p)
{
    bool must = p->must_wait;
    p->must_wait = false;
    return must;
}

kv_tier kv_pool_tier(const kv_pool *p)
{
    kv_tier t = {.n_total = p->n_host, .n_used = p->kept.n};
    for (int lane = 0; lane < N_LANES; lane++) {
        t.moving[lane] = p->lane[lane].n;
        t.moved[lane] = p->lane[lane].n_ended;
    }
    return t;
}

int kv_pool_free_pages(const kv_pool *p)
{
    return p->n_free + p->cached.n;
}

int kv_pool_cached_pages(const kv_pool *p)
{
    return p->cached.n;
}

int kv_pool_total_pages(const kv_pool *p)
{
    return p->n_total;
}

/* Checks that its pages are linked both ways and can be found. */
static void check_list(const kv_pool *p, const page_list *l)
{
    int n = 0;
    for (int i = l->oldest; i != NONE; i = p->pages[i].newer, n++) {
        CHECK(p->pages[i].n_users == 0 && p->pages[i].serial != 0);
        CHECK(p->pages[i].newer == NONE ? l->newest == i : p->pages[p->pages[i].newer].older == i);
    }
    CHECK(n == l->n);
}

/* Checks that what can be found is found, itself or its twin on the device, and that twins agree. */
static void check_page(const kv_pool *p, int number)
{
    const page *g = &p->pages[number];
    int twin = g->twin, shown = is_on_host(p, number) && twin != NONE ? twin : number;
    CHECK(g->serial == 0 || find_page(p, g->before, tokens_of(p, number)) == shown);
    CHECK(twin == NONE || (p->pages[twin].twin == number && p->pages[twin].serial == g->serial && g->serial != 0));
    CHECK(twin == NONE || is_on_host(p, twin) != is_on_host(p, number));
}

void kv_pool_check(const kv_pool *p)
{
    int n_unused = 0, n_found = 0, n_chained = 0, n_arriving = 0, n_ahead = 0;
    check_list(p, &p->cached);
    check_list(p, &p->kept);
    for (int i = 0; i < p->n_total + p->n_host; i++) {
        const page *g = &p->pages[i];
        check_page(p, i);
        n_unused += !is_on_host(p, i) && g->n_users == 0;
        n_found += g->serial != 0 && (!is_on_host(p, i) || g->twin == NONE);
        n_arriving += g->is_arriving;
        n_ahead += g->is_ahead;
    }
    for (unsigned c = 0; c < p->n_chains; c++)
        for (int i = p->chain[c]; i != NONE; i = p->pages[i].next_alike)
            n_chained++;
    CHECK(n_unused == p->n_free + p->cached.n && n_found == n_chained && n_ahead == p->n_ahead);
    CHECK(n_arriving == p->lane[LANE_OUT].n && p->n_free_host + p->kept.n + n_arriving == p->n_host);
    for (int i = p->last_ahead; i != NONE; i = p->pages[i].older)
        n_ahead -= p->pages[i].is_ahead;
    CHECK(n_ahead == 0);
}
