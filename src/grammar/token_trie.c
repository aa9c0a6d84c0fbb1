/* token_trie.c - see token_trie.h */
#include "grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define MAX_BYTES 4096 /* a longer token is left out */

/* A token for sorting. */
typedef struct {
    const char *text;
    uint32_t n;
    int id;
} trie_text;

static int by_text(const void *x, const void *y)
{
    const trie_text *a = x, *b = y;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    if (order)
        return order;
    return a->n != b->n ? (a->n > b->n) - (a->n < b->n) : (a->id > b->id) - (a->id < b->id);
}

static void read_texts(token_trie *t, token_bytes_fn *bytes, void *ctx)
{
    buf all = {0};
    t->text_indptr = XNEW_ARRAY(uint32_t, (size_t)t->vocab + 1);
    buf_add(&all, "", 0);
    for (int i = 0; i < t->vocab; i++) {
        size_t n = 0;
        const char *text = bytes(ctx, i, &n);
        if (n <= MAX_BYTES)
            buf_add(&all, text, n);
        t->text_indptr[i + 1] = (uint32_t)all.len;
    }
    t->text = buf_take(&all);
}

static size_t common(const trie_text *a, const trie_text *b)
{
    size_t n = 0, most = a->n < b->n ? a->n : b->n;
    while (n < most && a->text[n] == b->text[n])
        n++;
    return n;
}

static void make_nodes(token_trie *t, const trie_text *e, int n)
{
    int open[MAX_BYTES + 1], last = -1; /* open[d]: the node of depth d above the current one */
    for (int i = 0; i < n; i++) {
        size_t shared = i ? common(&e[i - 1], &e[i]) : 0;
        if (i && e[i].n == e[i - 1].n && shared == e[i].n) {
            t->same[last] = e[i].id;
            last = e[i].id;
            continue;
        }
        for (size_t d = i ? e[i - 1].n : 0; d > shared; d--)
            t->end[open[d]] = t->n;
        for (size_t d = shared + 1; d <= e[i].n; d++) {
            open[d] = t->n;
            t->byte[t->n] = (uint8_t)e[i].text[d - 1];
            t->depth[t->n] = (uint16_t)d;
            t->token[t->n++] = -1;
        }
        t->token[t->n - 1] = last = e[i].id;
        t->max_depth = (int)e[i].n > t->max_depth ? (int)e[i].n : t->max_depth;
    }
    for (size_t d = n ? e[n - 1].n : 0; d > 0; d--)
        t->end[open[d]] = t->n;
}

token_trie *token_trie_new(int vocab, token_bytes_fn *bytes, void *ctx)
{
    token_trie *t = XNEW(token_trie);
    t->vocab = vocab;
    read_texts(t, bytes, ctx);
    trie_text *e = XNEW_ARRAY(trie_text, (size_t)vocab + 1);
    t->same = XNEW_ARRAY(int, (size_t)vocab + 1);
    int n = 0;
    for (int i = 0; i < vocab; i++) {
        size_t len;
        const char *text = token_trie_text(t, i, &len);
        t->same[i] = -1;
        if (len)
            e[n++] = (trie_text){text, (uint32_t)len, i};
    }
    qsort(e, (size_t)n, sizeof *e, by_text);
    size_t most = t->text_indptr[vocab] + 1;
    t->byte = XNEW_ARRAY(uint8_t, most);
    t->depth = XNEW_ARRAY(uint16_t, most);
    t->end = XNEW_ARRAY(int, most);
    t->token = XNEW_ARRAY(int, most);
    make_nodes(t, e, n);
    free(e);
    return t;
}

void token_trie_free(token_trie *t)
{
    if (!t)
        return;
    free(t->byte);
    free(t->depth);
    free(t->end);
    free(t->token);
    free(t->same);
    free(t->text_indptr);
    free(t->text);
    free(t);
}
