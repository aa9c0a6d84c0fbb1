/* map.c - see map.h. Linear probing over a power-of-two table kept at most half full. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"

typedef struct {
    uint64_t hash;
    size_t key_at, key_len;
    int64_t value;
} slot; /* hash 0: empty */

struct map {
    slot *slots; /* [n_slots] */
    size_t n_slots, count;
    buf keys; /* all keys, back to back */
};

static uint64_t hash_bytes(const void *key, size_t n)
{
    const unsigned char *p = key;
    uint64_t h = 0x9e3779b97f4a7c15u ^ n, w;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = rng_mix(h ^ w);
    }
    w = 0;
    if (n)
        memcpy(&w, p, n);
    h = rng_mix(h ^ w ^ ((uint64_t)n << 56));
    return h ? h : 1;
}

static slot *find_slot(const map *m, uint64_t h, const void *key, size_t key_len)
{
    size_t mask = m->n_slots - 1;
    for (size_t i = h & mask;; i = (i + 1) & mask) {
        slot *s = &m->slots[i];
        if (s->hash == 0)
            return s;
        if (s->hash == h && s->key_len == key_len &&
            (key_len == 0 || memcmp(m->keys.data + s->key_at, key, key_len) == 0))
            return s;
    }
}

static void rehash(map *m, size_t n_slots)
{
    slot *old = m->slots;
    size_t n_old = m->n_slots;
    m->slots = XNEW_ARRAY(slot, n_slots);
    m->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].hash == 0)
            continue;
        size_t j = old[i].hash & (n_slots - 1);
        while (m->slots[j].hash)
            j = (j + 1) & (n_slots - 1);
        m->slots[j] = old[i];
    }
    free(old);
}

map *map_new(size_t expected)
{
    map *m = XNEW(map);
    size_t n = 16;
    while (n < expected * 2)
        n *= 2;
    rehash(m, n);
    return m;
}

void map_free(map *m)
{
    if (!m)
        return;
    free(m->slots);
    buf_free(&m->keys);
    free(m);
}

size_t map_count(const map *m)
{
    return m->count;
}

void map_put(map *m, const void *key, size_t key_len, int64_t value)
{
    if ((m->count + 1) * 2 > m->n_slots)
        rehash(m, m->n_slots * 2);
    uint64_t h = hash_bytes(key, key_len);
    slot *s = find_slot(m, h, key, key_len);
    if (s->hash == 0) {
        *s = (slot){.hash = h, .key_at = m->keys.len, .key_len = key_len};
        buf_add(&m->keys, key, key_len);
        m->count++;
    }
    s->value = value;
}

bool map_get(const map *m, const void *key, size_t key_len, int64_t *value)
{
    const slot *s = find_slot(m, hash_bytes(key, key_len), key, key_len);
    if (s->hash == 0)
        return false;
    if (value)
        *value = s->value;
    return true;
}
