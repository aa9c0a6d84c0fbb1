/* vocab.h - the model's tokens: string to id and back
 *
 * Built once, then read by any number of threads. Strings lie back to back in one block; ids may
 * have gaps. */
#ifndef PUNICA_TEXT_VOCAB_H
#define PUNICA_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

typedef struct { uint32_t hash, id; } vocab_slot;    /* id UINT32_MAX: empty */
typedef struct { uint32_t start, len; } vocab_entry; /* len UINT32_MAX: no token has this id */

typedef struct {
    char *text;             /* all strings */
    vocab_entry *entry;     /* [n_ids] where each token's string is in text */
    size_t n_ids, n_tokens; /* largest id + 1; how many tokens there are */
    size_t max_len;         /* bytes of the longest token */
    vocab_slot *slots;      /* [mask + 1], open addressing */
    size_t mask;
} vocab;

/* Fill v from {"token": id, ...}. 0, or -1 with e set: v needs no deinit then. */
int vocab_init(vocab *v, const json_t *tokens, err *e);
void vocab_deinit(vocab *v);

/* Return the id of this string, or -1. */
int vocab_find(const vocab *v, const char *s, size_t n);

static inline bool vocab_has(const vocab *v, int id)
{
    return id >= 0 && (size_t)id < v->n_ids && v->entry[id].len != UINT32_MAX;
}

/* Return the string of id, for which vocab_has() must be true. Borrowed: while v lives. */
static inline const char *vocab_text(const vocab *v, int id, size_t *n)
{
    *n = v->entry[id].len;
    return v->text + v->entry[id].start;
}

#endif
