/* prefixes.c - see prefixes.h */
#include "scheduler/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "base/id_map.h"
#include "base/mem.h"
#include "base/rng.h"

typedef struct given {
    uint64_t mark, life;
    int gpu;
    TAILQ_ENTRY(given) order;
} given;

struct prefixes {
    size_t most;
    id_map *by_mark;            /* of given */
    slab *memory;
    TAILQ_HEAD(, given) all;    /* the least recently given first */
};

prefixes *prefixes_new(size_t most)
{
    prefixes *p = XNEW(prefixes);
    *p = (prefixes){.most = most, .by_mark = id_map_new(), .memory = slab_new(sizeof(given))};
    TAILQ_INIT(&p->all);
    return p;
}

void prefixes_free(prefixes *p)
{
    id_map_free(p->by_mark);
    slab_free(p->memory);
    free(p);
}

static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return rng_mix(hash + n);
}

/* What else decides whether pages are shared. */
static uint64_t root_of(const request *r)
{
    uint64_t hash = rng_mix(r->tenant->number + 1);
    hash = add_bytes(hash, r->what.adapter, r->what.adapter ? strlen(r->what.adapter) : 0);
    return add_bytes(hash, r->what.digest, r->what.digest_bytes);
}

int prefixes_mark(const prefixes *p, const request *r, uint64_t mark[PREFIX_UNITS])
{
    int n = p->most ? r->what.n_tokens / PREFIX_UNIT : 0;
    n = n < PREFIX_UNITS ? n : PREFIX_UNITS;
    uint64_t hash = n ? root_of(r) : 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < PREFIX_UNIT; k++)
            hash = (hash ^ (uint32_t)r->what.token[i * PREFIX_UNIT + k]) * 0x9e3779b97f4a7c15u;
        hash = mark[i] = rng_mix(hash);
    }
    return n;
}

static given *take_entry(prefixes *p, uint64_t mark)
{
    given *g = id_map_get(p->by_mark, mark);
    if (g) {
        TAILQ_REMOVE(&p->all, g, order);
        return g;
    }
    g = id_map_count(p->by_mark) < p->most ? slab_take(p->memory) : TAILQ_FIRST(&p->all);
    if (id_map_count(p->by_mark) == p->most) {
        TAILQ_REMOVE(&p->all, g, order);
        id_map_remove(p->by_mark, g->mark);
    }
    g->mark = mark;
    id_map_put(p->by_mark, mark, g);
    return g;
}

static bool is_kept(int units, int n)
{
    return units == n || (units & (units - 1)) == 0;
}

void prefixes_add(prefixes *p, const uint64_t *mark, int n, const gpu *g)
{
    for (int units = 1; units <= n; units++) {
        if (!is_kept(units, n))
            continue;
        given *entry = take_entry(p, mark[units - 1]);
        entry->gpu = g->number;
        entry->life = g->life;
        TAILQ_INSERT_TAIL(&p->all, entry, order);
    }
}

int prefixes_find(const prefixes *p, uint64_t mark, uint64_t *life)
{
    const given *g = id_map_get(p->by_mark, mark);
    if (!g)
        return -1;
    *life = g->life;
    return g->gpu;
}

size_t prefixes_count(const prefixes *p)
{
    return id_map_count(p->by_mark);
}
