/* kv_pool.c - see kv_pool.h: a stack of free page numbers, a list of cached pages by last use, and a hash table of all that can
 * be found
 *
 * A page that can be found has a serial number, which is what its followers know it by. The number dies with its content, so
 * followers of a page that was taken for something else cannot be found any more; they go when they are the least recently used, which
 * is soon: a sequence gives its last pages back first. */
#include "engine/kv_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { NONE = -1 };

typedef struct {
    int n_users;                /* sequences that have it */
    uint64_t serial;            /* 0: it cannot be found */
    kv_key before;              /* what its content follows; of a page that can be found */
    int next_alike;             /* in its chain of the hash table */
    int older, newer;           /* in the list of cached pages, while nobody uses it */
} page;

struct kv_pool {
    page *pages;                /* [n_total] */
    int *tokens;                /* [n_total, page_len] of pages that can be found */
    int *free_page;             /* [n_free] that cannot be found */
    int *chain;                 /* [n_chains] first page of each, or NONE */
    int oldest, newest;         /* cached */
    int n_free, n_cached, n_total, page_len;
    unsigned n_chains;          /* a power of two */
    uint64_t n_serials;         /* given out */
};

kv_pool *kv_pool_new(int n_pages, int page_len)
{
    kv_pool *p = XNEW(kv_pool);
    *p = (kv_pool){.n_free = n_pages, .n_total = n_pages, .page_len = page_len, .oldest = NONE, .newest = NONE, .n_chains = 16};
    while (p->n_chains < (unsigned)n_pages)
        p->n_chains *= 2;
    p->pages = XNEW_ARRAY(page, (size_t)n_pages);
    p->tokens = XNEW_ARRAY(int, (size_t)n_pages * (size_t)page_len);
    p->free_page = XNEW_ARRAY(int, (size_t)n_pages);
    p->chain = XNEW_ARRAY(int, p->n_chains);
    for (int i = 0; i < n_pages; i++)
        p->free_page[i] = n_pages - 1 - i;      /* low pages first: memory never needed is never touched */
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
    free(p->chain);
    free(p);
}

int kv_pool_pages_for(const kv_pool *p, int len)
{
    return (len + p->page_len - 1) / p->page_len;
}

static int *tokens_of(const kv_pool *p, int number)
{
    return p->tokens + (size_t)number * (size_t)p->page_len;
}

/* The chain in which a page of these tokens stands. */
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

/* What stands before the page behind this one. */
static kv_key key_behind(const kv_pool *p, int number)
{
    return (kv_key){{0, p->pages[number].serial}};
}

/* The page of these tokens behind what stands before, or NONE. */
static int find_page(const kv_pool *p, kv_key before, const int *token)
{
    for (int i = *chain_of(p, before, token); i != NONE; i = p->pages[i].next_alike)
        if (keys_equal(p->pages[i].before, before) && memcmp(tokens_of(p, i), token, (size_t)p->page_len * sizeof *token) == 0)
            return i;
    return NONE;
}

/* The list of cached pages. */

static void uncache(kv_pool *p, int number)
{
    page *g = &p->pages[number];
    *(g->older == NONE ? &p->oldest : &p->pages[g->older].newer) = g->newer;
    *(g->newer == NONE ? &p->newest : &p->pages[g->newer].older) = g->older;
    p->n_cached--;
}

static void cache(kv_pool *p, int number)
{
    p->pages[number].older = p->newest;
    p->pages[number].newer = NONE;
    *(p->newest == NONE ? &p->oldest : &p->pages[p->newest].newer) = number;
    p->newest = number;
    p->n_cached++;
}

/* Its content is not wanted any more. */
static void forget(kv_pool *p, int number)
{
    int *at = chain_of(p, p->pages[number].before, tokens_of(p, number));
    while (*at != number)
        at = &p->pages[*at].next_alike;
    *at = p->pages[number].next_alike;
    p->pages[number].serial = 0;
}

static int take_page(kv_pool *p)
{
    int number;
    if (p->n_free > 0) {
        number = p->free_page[--p->n_free];
    } else {
        number = p->oldest;
        uncache(p, number);
        forget(p, number);
    }
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

int kv_pool_find(const kv_pool *p, kv_key root, const int *token, int n, int *in_use)
{
    int n_found = 0;
    kv_key before = root;
    *in_use = 0;
    for (; is_shareable(root) && (n_found + 1) * p->page_len <= n; n_found++) {
        int number = find_page(p, before, token + n_found * p->page_len);
        if (number == NONE)
            break;
        *in_use += p->pages[number].n_users > 0;
        before = key_behind(p, number);
    }
    return n_found;
}

int kv_pool_share(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n)
{
    CHECK(seq->n_pages == 0);
    seq->last = root;
    while (is_shareable(root) && (seq->n_pages + 1) * p->page_len <= n) {
        int number = find_page(p, seq->last, token + seq->n_pages * p->page_len);
        if (number == NONE)
            break;
        if (p->pages[number].n_users++ == 0)
            uncache(p, number);
        append_page(seq, number);
        seq->last = key_behind(p, number);
    }
    seq->n_known = seq->n_pages;
    return seq->n_pages * p->page_len;
}

/* A page of a sequence can be found from now on. */
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
        int number = find_page(p, seq->last, of_page);
        if (number == NONE) {           /* else somebody has computed the same meanwhile: what follows is known behind theirs */
            number = seq->page[seq->n_known];
            publish_page(p, number, seq->last, of_page);
        }
        seq->last = key_behind(p, number);
    }
}

void kv_pool_release(kv_pool *p, kv_seq *seq)
{
    while (seq->n_pages > 0) {
        int number = seq->page[--seq->n_pages];
        CHECK(p->pages[number].n_users > 0);
        if (--p->pages[number].n_users > 0)
            continue;
        if (p->pages[number].serial)
            cache(p, number);
        else
            p->free_page[p->n_free++] = number;
    }
    free(seq->page);
    *seq = (kv_seq){0};
}

int kv_pool_free_pages(const kv_pool *p)
{
    return p->n_free + p->n_cached;
}

int kv_pool_cached_pages(const kv_pool *p)
{
    return p->n_cached;
}

int kv_pool_total_pages(const kv_pool *p)
{
    return p->n_total;
}

void kv_pool_check(const kv_pool *p)
{
    int n_cached = 0, n_unused = 0, n_found = 0, n_chained = 0;
    for (int i = p->oldest; i != NONE; i = p->pages[i].newer) {
        CHECK(p->pages[i].n_users == 0 && p->pages[i].serial != 0);
        CHECK(p->pages[i].newer == NONE ? p->newest == i : p->pages[p->pages[i].newer].older == i);
        n_cached++;
    }
    for (int i = 0; i < p->n_total; i++) {
        n_unused += p->pages[i].n_users == 0;
        n_found += p->pages[i].serial != 0;
        CHECK(p->pages[i].serial == 0 || find_page(p, p->pages[i].before, tokens_of(p, i)) == i);
    }
    for (unsigned c = 0; c < p->n_chains; c++)
        for (int i = p->chain[c]; i != NONE; i = p->pages[i].next_alike)
            n_chained++;
    CHECK(n_cached == p->n_cached && n_unused == p->n_free + p->n_cached && n_found == n_chained);
}
