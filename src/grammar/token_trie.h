/* token_trie.h - the vocabulary as a tree of bytes
 *
 * Nodes are in preorder, so that a walk is a loop over arrays and skipping a subtree is one jump. */
#ifndef PUNICA_GRAMMAR_TOKEN_TRIE_H
#define PUNICA_GRAMMAR_TOKEN_TRIE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int vocab;       /* ids are below it */
    int n;           /* nodes; the root is not one */
    uint8_t *byte;   /* [n] on the edge to the node */
    uint16_t *depth; /* [n] 1: below the root */
    int *end;        /* [n] the first node behind its subtree */
    int *token;      /* [n] a token that ends here, or -1 */
    int *same;       /* [vocab] another token of the same bytes, or -1 */
    int max_depth;
    uint32_t *text_indptr; /* [vocab + 1] */
    char *text;            /* all tokens' bytes, by id */
} token_trie;

/* A function that returns the bytes of token id, [*n], valid until the next call. *n is 0 for what is never part of a
 * text: special tokens and unused ids. */
typedef const char *token_bytes_fn(void *ctx, int id, size_t *n);

token_trie *token_trie_new(int vocab, token_bytes_fn *bytes, void *ctx);
void token_trie_free(token_trie *t);

static inline const char *token_trie_text(const token_trie *t, int id, size_t *n)
{
    *n = t->text_indptr[id + 1] - t->text_indptr[id];
    return t->text + t->text_indptr[id];
}

#endif
