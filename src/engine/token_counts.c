/* token_counts.c - see token_counts.h. Open addressing from token to entry. */
#include "engine/token_counts.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

/* The place in the hash table where the token is, or would go. */
static int *place_of(const token_counts *c, int token)
{
    uint64_t i = rng_mix((uint64_t)token + 1);
    for (;; i++) {
        int *p = &c->index[i & (uint64_t)(c->n_index - 1)];
        if (*p == 0 || c->token[*p - 1] == token)
            return p;
    }
}

static void grow(token_counts *c)
{
    size_t cap = c->cap;
    c->token = xgrow(c->token, &cap, (size_t)c->n + 1, sizeof *c->token);
    c->in_output = xrealloc(c->in_output, cap * sizeof *c->in_output);
    c->cap = cap;
    if (2 * (c->n + 1) < c->n_index)
        return;
    c->n_index = c->n_index ? 2 * c->n_index : 64;
    free(c->index);
    c->index = XNEW_ARRAY(int, (size_t)c->n_index);
    for (int i = 0; i < c->n; i++)
        *place_of(c, c->token[i]) = i + 1;
}

void token_counts_add(token_counts *c, int token, bool is_output)
{
    grow(c);
    int *place = place_of(c, token);
    if (*place == 0) {
        c->token[c->n] = token;
        c->in_output[c->n] = 0;
        *place = ++c->n;
    }
    c->in_output[*place - 1] += is_output;
}

void token_counts_deinit(token_counts *c)
{
    free(c->token);
    free(c->in_output);
    free(c->index);
    *c = (token_counts){0};
}
