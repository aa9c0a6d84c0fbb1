/* kv_pool.h - page ledger of one device's KvCache, the prefix cache in it, and the cache's second tier in host memory
 *
 * Hands pages to sequences and takes them back. Bookkeeping only: no device memory is touched
 * here, so it runs without a device. Owned by the engine; engine thread only.
 *
 * A full page whose keys and values are computed can be found again by what they are made of: the tokens in it,
 * everything before them, and whatever else changes them (kv_key). So sequences that begin alike share pages, which are
 * only read from then on, and a page that nobody uses any more keeps its content until it is needed for something else:
 *
 *            reserve                      publish                     release
 *   free ───────────────▶ of a sequence ───────────▶ shared by several ───────▶ cached, by last use
 *     ▲                        │ release                    ▲                      │      │
 *     └────────────────────────┘                            └──────── share ───────┘      │
 *     └──────────────────────── reserve, when no other is free: the least recently used ──┘
 *
 * Pages are compared by their tokens, not by a hash of them: two that differ are never taken for each other.
 *
 * Where there are host pages, contents outlive their page of the device. Those that will be taken next are copied to
 * the host ahead of time (kv_pool_save()), so that taking one waits for nothing; if it is taken before its copy has
 * ended, the copy is void and the content lost. A content that is on the host alone gets a page of the device when a
 * sequence shares it, and comes back; the sequence has to wait until it has arrived. The copy on the host stays, least
 * recently used first to go:
 *
 *   on the device ── save ──▶ on both ── the page is taken ──▶ on the host
 *                               ▲                                  │
 *                               └────────────── share ─────────────┘
 *
 * What is to be copied is decided here and done by host_tier.h: moves of a lane begin and end in the order in which
 * they were decided on, beside the device's work. */
#ifndef PUNICA_ENGINE_KV_POOL_H
#define PUNICA_ENGINE_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kv_pool kv_pool;

/* What stands before a page: of the first page, what the caller says (the adapter and whatever else changes keys and
 * values), of others, the page before it with all that stood before that. part[0] is not 0 in what callers make; all 0:
 * nothing may be shared. */
typedef struct { uint64_t part[2]; } kv_key;

typedef struct {
    int *page; /* [n_pages], owned */
    int n_pages, cap;
    int n_known;      /* of these, from the first on, were shared or published */
    kv_key last;      /* of the last of those */
    uint64_t arrives; /* the move after which all of its pages are there */
} kv_seq;             /* zero-initialise */

/* n_pages pages of page_len tokens on the device, n_host on the host. Never NULL; free with kv_pool_free(). */
kv_pool *kv_pool_new(int n_pages, int n_host, int page_len);
void kv_pool_free(kv_pool *p);

/* Make room for len tokens in seq. 0, or -1 with nothing changed when the pool is short. */
int kv_pool_reserve(kv_pool *p, kv_seq *seq, int len);

/* The whole pages at the beginning of a text that are there already. */
typedef struct {
    int n_pages;
    int in_use; /* sequences have: sharing them takes nothing from those that are free */
    int n_near; /* before the first that is on the host alone */
    int n_far;  /* on the host alone */
} kv_found;

/* Those of token[n], computed under root. */
kv_found kv_pool_find(const kv_pool *p, kv_key root, const int *token, int n);

/* Let an empty seq begin with the pages that kv_pool_find() finds, for which there must be room. Returns how many
 * tokens they hold. */
int kv_pool_share(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n);

/* Whether what seq shares is on the device: before, nothing may be computed with it. */
bool kv_pool_has_arrived(const kv_pool *p, const kv_seq *seq);

/* The keys and values of the first n of seq's tokens are computed: its full pages can be found from now on. */
void kv_pool_publish(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n);

/* What is in seq's pages may be wrong: nobody finds them any more. */
void kv_pool_spoil(kv_pool *p, kv_seq *seq);

/* Give all pages of seq back and free its table. */
void kv_pool_release(kv_pool *p, kv_seq *seq);

int kv_pool_page_len(const kv_pool *p);
int kv_pool_pages_for(const kv_pool *p, int len); /* pages that len tokens take */
int kv_pool_free_pages(const kv_pool *p);         /* that no sequence has, cached or not */
int kv_pool_cached_pages(const kv_pool *p);       /* that no sequence has, and can be found */
int kv_pool_total_pages(const kv_pool *p);

/* Moves between the device and the host. */
typedef enum { LANE_OUT, LANE_IN, N_LANES } kv_lane;
typedef struct { int page, host; } kv_move; /* numbers from 0, each on its side */

/* Have contents copied to the host, those that will be lost next first, until enough of the free pages can be taken
 * without loss, or `most` moves are under way. */
void kv_pool_save(kv_pool *p, int most);

/* How many steps were given to the device so far, and how many of them are done. */
void kv_pool_tell_steps(kv_pool *p, uint64_t n_given, uint64_t n_done);

/* The moves that are to begin now; [*n], valid until the next call. *behind_steps: not before the steps that the device
 * was given are done, since one of them may write or read a page of these. */
const kv_move *kv_pool_begin_moves(kv_pool *p, kv_lane lane, int *n, bool *behind_steps);

/* The n moves that began first have ended. */
void kv_pool_end_moves(kv_pool *p, kv_lane lane, int n);

/* Whether a page was handed out that is still being written: nothing may be computed before all moves have ended.
 * Asking clears it. */
bool kv_pool_must_wait(kv_pool *p);

typedef struct {
    int n_total, n_used;     /* pages of the host */
    int moving[N_LANES];     /* decided on and not ended */
    uint64_t moved[N_LANES]; /* ended, since the pool was made; void ones too */
} kv_tier;

kv_tier kv_pool_tier(const kv_pool *p);

void kv_pool_check(const kv_pool *p); /* abort unless it agrees with itself; takes time */

#endif
