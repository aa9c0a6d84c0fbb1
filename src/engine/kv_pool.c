/* kv_pool.c - see kv_pool.h: a stack of free page numbers */
#include "engine/kv_pool.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

struct kv_pool {
    int *free_page;         /* [n_free] */
    int n_free, n_total, page_len;
};

kv_pool *kv_pool_new(int n_pages, int page_len)
{
    kv_pool *p = XNEW(kv_pool);
    *p = (kv_pool){.free_page = XNEW_ARRAY(int, (size_t)n_pages), .n_free = n_pages, .n_total = n_pages, .page_len = page_len};
    for (int i = 0; i < n_pages; i++)
        p->free_page[i] = n_pages - 1 - i;      /* low pages first: memory never needed is never touched */
    return p;
}

void kv_pool_free(kv_pool *p)
{
    if (!p)
        return;
    free(p->free_page);
    free(p);
}

int kv_pool_pages_for(const kv_pool *p, int len)
{
    return (len + p->page_len - 1) / p->page_len;
}

int kv_pool_reserve(kv_pool *p, kv_seq *seq, int len)
{
    int want = kv_pool_pages_for(p, len);
    if (want - seq->n_pages > p->n_free)
        return -1;
    if (want > seq->cap) {
        seq->cap = want + want / 2 + 4;
        seq->page = xrealloc(seq->page, (size_t)seq->cap * sizeof *seq->page);
    }
    while (seq->n_pages < want)
        seq->page[seq->n_pages++] = p->free_page[--p->n_free];
    return 0;
}

void kv_pool_release(kv_pool *p, kv_seq *seq)
{
    CHECK(p->n_free + seq->n_pages <= p->n_total);
    while (seq->n_pages > 0)
        p->free_page[p->n_free++] = seq->page[--seq->n_pages];
    free(seq->page);
    *seq = (kv_seq){0};
}

int kv_pool_free_pages(const kv_pool *p)
{
    return p->n_free;
}

int kv_pool_total_pages(const kv_pool *p)
{
    return p->n_total;
}
