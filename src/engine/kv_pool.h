/* kv_pool.h - page ledger of one device's KvCache, and the prefix cache in it
 *
 * Hands pages to sequences and takes them back. Bookkeeping only: no device memory is touched
 * here, so it runs without a device. Owned by the engine; engine thread only.
 *
 * A full page whose keys and values are computed can be found again by what they are made of: the tokens in it, everything before
 * them, and whatever else changes them (kv_key). So sequences that begin alike share pages, which are only read from then on,
 * and a page that nobody uses any more keeps its content until it is needed for something else:
 *
 *            reserve                      publish                     release
 *   free ───────────────▶ of a sequence ───────────▶ shared by several ───────▶ cached, by last use
 *     ▲                        │ release                    ▲                      │      │
 *     └────────────────────────┘                            └──────── share ───────┘      │
 *     └──────────────────────── reserve, when no other is free: the least recently used ──┘
 *
 * Pages are compared by their tokens, not by a hash of them: two that differ are never taken for each other. */
#ifndef PUNICA_ENGINE_KV_POOL_H
#define PUNICA_ENGINE_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kv_pool kv_pool;

/* What stands before a page: of the first page, what the caller says (the adapter and whatever else changes keys and values), of
 * others, the page before it with all that stood before that. part[0] is not 0 in what callers make; all 0: nothing may be
 * shared. */
typedef struct { uint64_t part[2]; } kv_key;

typedef struct {
    int *page;                  /* [n_pages], owned */
    int n_pages, cap;
    int n_known;                /* of these, from the first on, were shared or published */
    kv_key last;                /* of the last of those */
} kv_seq;                       /* zero-initialise */

/* n_pages pages of page_len tokens. Never NULL; free with kv_pool_free(). */
kv_pool *kv_pool_new(int n_pages, int page_len);
void kv_pool_free(kv_pool *p);

/* Make room for len tokens in seq. 0, or -1 with nothing changed when the pool is short. */
int kv_pool_reserve(kv_pool *p, kv_seq *seq, int len);

/* How many whole pages at the beginning of token[n] are there already, computed under root; *in_use: how many of them
 * sequences have, so that sharing them takes nothing from those that are free. */
int kv_pool_find(const kv_pool *p, kv_key root, const int *token, int n, int *in_use);

/* Let an empty seq begin with the pages that kv_pool_find() finds. Returns how many tokens they hold. */
int kv_pool_share(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n);

/* The keys and values of the first n of seq's tokens are computed: its full pages can be found from now on. */
void kv_pool_publish(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n);

/* Give all pages of seq back and free its table. */
void kv_pool_release(kv_pool *p, kv_seq *seq);

int kv_pool_pages_for(const kv_pool *p, int len);       /* pages that len tokens take */
int kv_pool_free_pages(const kv_pool *p);               /* that no sequence has, cached or not */
int kv_pool_cached_pages(const kv_pool *p);             /* that no sequence has, and can be found */
int kv_pool_total_pages(const kv_pool *p);

void kv_pool_check(const kv_pool *p);                   /* abort unless it agrees with itself; takes time */

#endif
