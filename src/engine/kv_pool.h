/* kv_pool.h - page ledger of one device's KvCache, the prefix cache in it, and the cache's second tier in host memory
 *
 * Hands pages to sequences and takes them back. Bookkeeping only: no device memory is touched
 * here, so it runs without a device. Owned by the engine; engine thread only.
 *
 * A full page whose keys and values are computed can be found again by all that they depend on: the tokens in it,
 * everything before them, and the adapter (kv_key). So sequences that begin alike share pages, which are only read from
 * then on, and a page that nobody uses any more keeps its content until it is needed for something else:
 *
 *            reserve                      publish                     release
 *   free ───────────────▶ of a sequence ───────────▶ shared by several ───────▶ cached, by last use
 *     ▲                        │ release                    ▲                      │      │
 *     └────────────────────────┘                            └──────── share ───────┘      │
 *     └──────────────────────── reserve, when no other is free: the least recently used ──┘
 *
 * Pages are compared by their tokens, not by a hash of them: two that differ are never taken for each other.
 *
 * With host pages, a content can outlive its page of the device. Contents that will be lost next are copied to the host
 * ahead of time (kv_pool_save()), so that no step waits for that; if a page is taken before its copy has ended, the
 * copy is void and the content lost. When a sequence shares a content that is on the host alone, the content gets a
 * page of the device and is copied back; the sequence waits until it has arrived. The copy on the host stays until it
 * is the least recently used:
 *
 *   on the device ── save ──▶ on both ── the page is taken ──▶ on the host
 *                               ▲                                  │
 *                               └────────────── share ─────────────┘
 *
 * The pool decides what is copied; host_tier.h copies it, beside the device's work. The moves of a lane begin and end
 * in the order of these decisions. */
#ifndef PUNICA_ENGINE_KV_POOL_H
#define PUNICA_ENGINE_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define KV_PAGE_LEN 16 /* tokens of a page, outside of tests */

typedef struct kv_pool kv_pool;

/* What a page follows. For the first page it is the root, given by the caller: the adapter and whatever else changes
 * keys and values. For any other it is the page before, and so all that stands before that. part[0] of a root is not 0;
 * all 0: nothing may be shared. */
typedef struct { uint64_t part[2]; } kv_key;

typedef struct {
    int *page; /* [n_pages], owned */
    int n_pages, cap;
    int n_known;      /* of these, the first so many were shared or published */
    kv_key last;      /* what the page behind those follows */
    uint64_t arrives; /* the move of LANE_IN after which all of its pages are there */
} kv_seq;             /* zero-initialise */

/* n_pages pages of page_len tokens on the device, n_host on the host. Never NULL; free with kv_pool_free(). */
kv_pool *kv_pool_new(int n_pages, int n_host, int page_len);
void kv_pool_free(kv_pool *p);

/* Make room for len tokens in seq. 0, or -1 with nothing changed when the pool is short. */
int kv_pool_reserve(kv_pool *p, kv_seq *seq, int len);

/* The full pages at the beginning of a text whose content is there already. */
typedef struct {
    int n_pages;
    int in_use; /* of these, sequences have them: sharing them takes no free page */
    int n_near; /* of these, before the first that is on the host alone */
    int n_far;  /* of these, on the host alone */
} kv_found;

/* Find those of token[n] under root. Changes nothing. */
kv_found kv_pool_find(const kv_pool *p, kv_key root, const int *token, int n);

/* Let an empty seq begin with the pages that kv_pool_find() finds; there must be free pages for those not in use.
 * Returns how many tokens they hold. */
int kv_pool_share(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n);

/* Returns whether all pages that seq shares are on the device. Until then nothing may be computed with them. */
bool kv_pool_has_arrived(const kv_pool *p, const kv_seq *seq);

/* Make the full pages among seq's first n tokens findable. Their keys and values must be computed. */
void kv_pool_publish(kv_pool *p, kv_seq *seq, kv_key root, const int *token, int n);

/* Mark the contents of seq's pages as unreliable: kv_pool_find() no longer finds them. */
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
typedef struct { int page, host; } kv_move; /* page numbers on the device and on the host, each from 0 */

/* Queue copies to the host, of contents that will be lost next first, until enough of the free pages can be taken
 * without loss, or `most` moves are under way. */
void kv_pool_save(kv_pool *p, int most);

/* Note how many steps were given to the device so far, and how many of them are done. */
void kv_pool_note_steps(kv_pool *p, uint64_t n_given, uint64_t n_done);

/* Return the moves that are to begin now; [*n], valid until the next call. *behind_steps: they may begin only when the
 * steps that the device was given are done, since one of these may use their pages. */
const kv_move *kv_pool_begin_moves(kv_pool *p, kv_lane lane, int *n, bool *behind_steps);

/* Note that the n oldest moves of a lane have ended. */
void kv_pool_end_moves(kv_pool *p, kv_lane lane, int n);

/* Returns whether a page was handed out that a move still writes: nothing may be computed before all moves have ended.
 * Asking clears it. */
bool kv_pool_must_wait(kv_pool *p);

typedef struct {
    int n_total, n_used;     /* pages of the host */
    int moving[N_LANES];     /* decided on and not ended */
    uint64_t moved[N_LANES]; /* ended, since the pool was made; void ones too */
} kv_tier;

kv_tier kv_pool_tier(const kv_pool *p);

void kv_pool_check(const kv_pool *p); /* abort unless all invariants hold; slow */

#endif
