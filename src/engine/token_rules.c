/* token_rules.c - see token_rules.h */
#include "engine/token_rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *p = xcalloc(n ? n : 1, size);
    if (n)
        memcpy(p, from, n * size);
    return p;
}

void token_rules_copy(token_rules *to, const token_rules *from)
{
    int n_words = from->n_bad ? from->bad_indptr[from->n_bad] : 0;
    *to = *from;
    to->grammar = from->grammar ? guide_hold(from->grammar) : NULL;
    to->biased = copy_of(from->biased, (size_t)from->n_bias, sizeof *from->biased);
    to->bias = copy_of(from->bias, (size_t)from->n_bias, sizeof *from->bias);
    to->allowed = copy_of(from->allowed, (size_t)from->n_allowed, sizeof *from->allowed);
    to->bad_indptr = copy_of(from->bad_indptr, from->n_bad ? (size_t)from->n_bad + 1 : 0, sizeof *from->bad_indptr);
    to->bad = copy_of(from->bad, (size_t)n_words, sizeof *from->bad);
}

void token_rules_deinit(token_rules *r)
{
    guide_drop(r->grammar);
    free(r->biased);
    free(r->bias);
    free(r->allowed);
    free(r->bad_indptr);
    free(r->bad);
    *r = (token_rules){0};
}

static int check_ids(const int *id, int n, int vocab, const char *what, err *e)
{
    for (int i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= vocab)
            return err_set(e, "%s: token id %d is outside the vocabulary of %d", what, id[i], vocab);
    return 0;
}

int token_rules_check(const token_rules *r, int vocab, err *e)
{
    for (int i = 0; i < r->n_bad; i++)
        if (r->bad_indptr[i + 1] <= r->bad_indptr[i])
            return err_set(e, "bad_words: a word is empty");
    int n_bad = r->n_bad ? r->bad_indptr[r->n_bad] : 0;
    return check_ids(r->biased, r->n_bias, vocab, "logit_bias", e) ||
                   check_ids(r->allowed, r->n_allowed, vocab, "allowed_token_ids", e) ||
                   check_ids(r->bad, n_bad, vocab, "bad_words", e)
               ? -1
               : 0;
}

static void set_bit(uint32_t *mask, int id, bool on)
{
    mask[id >> 5] = on ? mask[id >> 5] | 1u << (id & 31) : mask[id >> 5] & ~(1u << (id & 31));
}

/* Tokens that the list names, or all. */
static void fill_allowed(const token_rules *r, int vocab, uint32_t *mask)
{
    memset(mask, r->n_allowed ? 0 : 0xff, (size_t)guide_mask_words(vocab) * sizeof *mask);
    for (int i = 0; i < r->n_allowed; i++)
        set_bit(mask, r->allowed[i], true);
    if (!r->n_allowed && vocab % 32)
        mask[vocab / 32] = (1u << vocab % 32) - 1;
}

static void forbid_words(const token_rules *r, const int *token, int n, int n_output, uint32_t *mask)
{
    for (int i = 0; i < r->n_bad; i++) {
        const int *word = r->bad + r->bad_indptr[i];
        int before = r->bad_indptr[i + 1] - r->bad_indptr[i] - 1;
        if (before <= n_output && (before == 0 || memcmp(token + n - before, word, (size_t)before * sizeof *word) == 0))
            set_bit(mask, word[before], false);
    }
}

static bool is_empty(const uint32_t *mask, int words)
{
    for (int i = 0; i < words; i++)
        if (mask[i])
            return false;
    return true;
}

bool token_rules_fill(const token_rules *r, guide_state *state, const int *token, int n, int n_output, const int *end,
                      int n_end, int vocab, uint32_t *mask, bool *only_end)
{
    int words = guide_mask_words(vocab);
    *only_end = false;
    fill_allowed(r, vocab, mask);
    const uint32_t *next = state ? guide_state_mask(state) : NULL;
    for (int i = 0; next && i < words; i++)
        mask[i] &= next[i];
    forbid_words(r, token, n, n_output, mask);
    if (!state)
        return !is_empty(mask, words);
    bool may_end = guide_state_may_end(state), goes_on = !is_empty(mask, words);
    for (int i = 0; i < n_end && may_end; i++)
        set_bit(mask, end[i], true);
    *only_end = may_end && !goes_on;
    return goes_on || (may_end && n_end > 0);
}
