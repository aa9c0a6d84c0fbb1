/* kv_pool.h - page ledger of one device's KvCache
 *
 * Hands pages to sequences and takes them back. Bookkeeping only: no device memory is touched
 * here, so it runs without a device. Owned by the engine; engine thread only. */
#ifndef PUNICA_ENGINE_KV_POOL_H
#define PUNICA_ENGINE_KV_POOL_H

typedef struct kv_pool kv_pool;
typedef struct { int *page; int n_pages, cap; } kv_seq;    /* page: [n_pages], owned; zero-initialise */

/* n_pages pages of page_len tokens. Never NULL; free with kv_pool_free(). */
kv_pool *kv_pool_new(int n_pages, int page_len);
void kv_pool_free(kv_pool *p);

/* Make room for len tokens in seq. 0, or -1 with nothing changed when the pool is short. */
int kv_pool_reserve(kv_pool *p, kv_seq *seq, int len);

/* Give all pages of seq back and free its table. */
void kv_pool_release(kv_pool *p, kv_seq *seq);

int kv_pool_pages_for(const kv_pool *p, int len);       /* pages that len tokens take */
int kv_pool_free_pages(const kv_pool *p);
int kv_pool_total_pages(const kv_pool *p);

#endif
