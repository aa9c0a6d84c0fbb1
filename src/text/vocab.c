/* vocab.c - see vocab.h */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"

#define MAX_GAP 1000000 /* ids lie below twice the number of tokens plus this */
#define MAX_TEXT ((size_t)1 << 30)

static uint32_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u, w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = rng_mix(h ^ w);
    }
    if (n) {
        w = 0;
        memcpy(&w, s, n);
        h = rng_mix(h ^ w);
    }
    return (uint32_t)(h >> 32);
}

/* The slot that holds the string, or the empty one where it belongs. */
static vocab_slot *find_slot(const vocab *v, uint32_t hash, const char *s, size_t n)
{
    for (size_t i = hash & v->mask;; i = (i + 1) & v->mask) {
        vocab_slot *slot = &v->slots[i];
        if (slot->id == UINT32_MAX)
            return slot;
        if (slot->hash != hash)
            continue;
        const vocab_entry *x = &v->entry[slot->id];
        if (x->len == n && (n == 0 || memcmp(v->text + x->start, s, n) == 0))
            return slot;
    }
}

int vocab_find(const vocab *v, const char *s, size_t n)
{
    if (n > v->max_len)
        return -1;
    uint32_t id = find_slot(v, hash_bytes(s, n), s, n)->id;
    return id == UINT32_MAX ? -1 : (int)id;
}

/* Checks all ids and sets n_ids. */
static int measure(vocab *v, json_t *tokens, err *e)
{
    size_t limit = json_object_size(tokens) * 2 + MAX_GAP;
    for (void *it = json_object_iter(tokens); it; it = json_object_iter_next(tokens, it)) {
        const json_t *value = json_object_iter_value(it);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (size_t)id >= limit)
            return err_set(e, "vocab: token \"%s\" has no usable id: it must be an integer from 0 to %zu",
                           json_object_iter_key(it), limit - 1);
        if ((size_t)id >= v->n_ids)
            v->n_ids = (size_t)id + 1;
    }
    return 0;
}

static void alloc_tables(vocab *v, size_t n_tokens)
{
    v->entry = xmalloc(v->n_ids * sizeof *v->entry);
    memset(v->entry, 0xff, v->n_ids * sizeof *v->entry);
    size_t n_slots = 16;
    while (n_slots < n_tokens * 2)
        n_slots *= 2;
    v->mask = n_slots - 1;
    v->slots = xmalloc(n_slots * sizeof *v->slots);
    memset(v->slots, 0xff, n_slots * sizeof *v->slots);
}

static int fill(vocab *v, json_t *tokens, err *e)
{
    buf text = {0};
    int rc = 0;
    for (void *it = json_object_iter(tokens); it && rc == 0; it = json_object_iter_next(tokens, it)) {
        const char *key = json_object_iter_key(it);
        size_t n = json_object_iter_key_len(it), id = (size_t)json_integer_value(json_object_iter_value(it));
        if (vocab_has(v, (int)id))
            rc = err_set(e, "vocab: tokens \"%.*s\" and \"%s\" have the same id %zu", (int)v->entry[id].len,
                         text.data + v->entry[id].start, key, id);
        else if (text.len + n > MAX_TEXT)
            rc = err_set(e, "vocab: more than %zu bytes of tokens", MAX_TEXT);
        if (rc)
            break;
        v->entry[id] = (vocab_entry){.start = (uint32_t)text.len, .len = (uint32_t)n};
        v->max_len = n > v->max_len ? n : v->max_len;
        v->n_tokens++;
        buf_add(&text, key, n);
    }
    v->text = text.data;
    return rc;
}

int vocab_init(vocab *v, const json_t *tokens, err *e)
{
    *v = (vocab){0};
    if (!json_is_object(tokens))
        return err_set(e, "\"vocab\" must be an object of token strings and ids");
    json_t *iterated = (json_t *)tokens; /* jansson's iterators take no const */
    if (measure(v, iterated, e))
        return -1;
    alloc_tables(v, json_object_size(tokens));
    if (fill(v, iterated, e)) {
        vocab_deinit(v);
        return -1;
    }
    for (uint32_t id = 0; id < v->n_ids; id++)
        if (vocab_has(v, (int)id)) {
            size_t n;
            const char *s = vocab_text(v, (int)id, &n);
            uint32_t hash = hash_bytes(s, n);
            *find_slot(v, hash, s, n) = (vocab_slot){.hash = hash, .id = id};
        }
    return 0;
}

void vocab_deinit(vocab *v)
{
    free(v->text);
    free(v->entry);
    free(v->slots);
    *v = (vocab){0};
}
