/* id_map.c - see id_map.h. Linear probing over a power-of-two table kept at most half full. Removal closes the gap
 * by moving later entries of the run back, so that no tombstones pile up however long the map lives. */
#include "base/id_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

typedef struct {
    uint64_t id;
    void *item;
} slot; /* item NULL: empty */

struct id_map {
    slot *slots; /* [n_slots] */
    size_t n_slots, count;
};

static size_t home(const id_map *m, uint64_t id)
{
    return rng_mix(id) & (m->n_slots - 1);
}

/* Returns the slot that holds the id, or the empty one where it would go. */
static size_t find_slot(const id_map *m, uint64_t id)
{
    size_t i = home(m, id);
    while (m->slots[i].item && m->slots[i].id != id)
        i = (i + 1) & (m->n_slots - 1);
    return i;
}

static void rehash(id_map *m, size_t n_slots)
{
    slot *old = m->slots;
    size_t n_old = m->n_slots;
    m->slots = mem_alloc_block(n_slots * sizeof *m->slots);
    CHECK(m->slots);
    memset(m->slots, 0, n_slots * sizeof *m->slots);
    m->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].item)
            m->slots[find_slot(m, old[i].id)] = old[i];
    free(old);
}

id_map *id_map_new(void)
{
    id_map *m = XNEW(id_map);
    rehash(m, 64);
    return m;
}

void id_map_free(id_map *m)
{
    if (!m)
        return;
    free(m->slots);
    free(m);
}

size_t id_map_count(const id_map *m)
{
    return m->count;
}

void *id_map_get(const id_map *m, uint64_t id)
{
    return m->slots[find_slot(m, id)].item;
}

void id_map_put(id_map *m, uint64_t id, void *item)
{
    if ((m->count + 1) * 2 > m->n_slots)
        rehash(m, m->n_slots * 2);
    slot *s = &m->slots[find_slot(m, id)];
    CHECK(item && !s->item);
    *s = (slot){id, item};
    m->count++;
}

void id_map_remove(id_map *m, uint64_t id)
{
    size_t mask = m->n_slots - 1, gap = find_slot(m, id);
    CHECK(m->slots[gap].item);
    for (size_t i = (gap + 1) & mask; m->slots[i].item; i = (i + 1) & mask) {
        size_t from_home = (i - home(m, m->slots[i].id)) & mask, from_gap = (i - gap) & mask;
        if (from_home < from_gap)
            continue; /* it must stay at or behind its home */
        m->slots[gap] = m->slots[i];
        gap = i;
    }
    m->slots[gap] = (slot){0};
    m->count--;
}
