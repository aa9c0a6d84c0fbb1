/* token_counts.h - which tokens a request has seen, for the sampler's penalties
 *
 * Lists each distinct token once, with how often it occurs in the output, in the arrays the
 * sampler reads (sample_spec.seen, seen_output). Plain value: zero-initialise. */
#ifndef PUNICA_ENGINE_TOKEN_COUNTS_H
#define PUNICA_ENGINE_TOKEN_COUNTS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    int n;
    int *token, *in_output; /* [n] */
    size_t cap;
    int *index;  /* hash table [n_index] of entry + 1; 0: empty */
    int n_index; /* power of two, more than 2 n */
} token_counts;

void token_counts_add(token_counts *c, int token, bool is_output);
void token_counts_deinit(token_counts *c);

#endif
