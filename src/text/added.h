/* added.h - added tokens: strings that are found in the text before the model sees it
 *
 * Tokens that are not `normalized` are looked for first, in the raw text; the others then, in their
 * normalised form, in the normalised text between those. The leftmost match counts; of several
 * there, the longest. Immutable once made. */
#ifndef PUNICA_TEXT_ADDED_H
#define PUNICA_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "text/normalizer.h"
#include "text/spans.h"
#include "text/vocab.h"

typedef struct {
    char *content; /* [n] as the file has it */
    size_t n;
    char *sought; /* [n_sought] what is looked for: content, normalised if need be */
    size_t n_sought;
    int id;
    bool single_word, lstrip, rstrip, normalized, special;
} added_token;

typedef struct added_tokens added_tokens;

/* Reads tokenizer.json's "added_tokens" (list may be NULL). NULL with e set on failure; free with
 * added_tokens_free(). */
added_tokens *added_tokens_new(const json_t *list, const vocab *v, const normalizer *z, err *e);
void added_tokens_free(added_tokens *a);

/* Returns how many bytes of text one added token can stand for at most; 1 if there are no tokens, 0 if there is no
 * bound: lstrip and rstrip take in any amount of white space. */
size_t added_tokens_longest(const added_tokens *a);

/* Returns whether some special token is looked for in the normalised text. */
bool added_tokens_has_normalized_special(const added_tokens *a);

size_t added_tokens_n_ids(const added_tokens *a);                     /* largest id + 1; 0: none */
const added_token *added_tokens_by_id(const added_tokens *a, int id); /* or NULL */
const added_token *added_tokens_find(const added_tokens *a, const char *content, size_t n); /* or NULL */

/* A text being cut into added tokens and what lies between them. */
typedef struct {
    const added_tokens *a;
    bool normalized; /* which of the two kinds is looked for */
    matcher *m;
    const char *text;         /* borrowed: until the scan ends */
    size_t n, from, done;     /* searched up to from; spans handed out up to done */
    const added_token *found; /* the token to hand out next, after the text before it; NULL: none found yet */
    size_t found_start, found_end;
    const text_spans *own; /* set after begin: special tokens are found only within these; NULL: anywhere */
} added_scan;

typedef struct {
    const added_token *token;
    size_t start, end;
} added_span; /* token NULL: plain text */

void added_scan_begin(added_scan *s, const added_tokens *a, bool normalized, matcher *m, const char *text, size_t n);

/* Fills in the next span, from left to right. False at the end. */
bool added_scan_next(added_scan *s, added_span *span);

#endif
