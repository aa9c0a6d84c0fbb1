/* prefixes.c - see prefixes.h */
#include "scheduler/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

typedef struct {
    uint64_t mark;
    uint32_t life;
    int gpu;
} given; /* life 0: none */

enum { WAYS = 4 }; /* of a set: 64 bytes */

struct prefixes {
    size_t n_sets; /* a power of two, or 0 */
    given *at;     /* [n_sets, WAYS] the set of a mark is fixed; in it, the last given comes first */
};

prefixes *prefixes_new(size_t most)
{
    prefixes *p = XNEW(prefixes);
    while (p->n_sets * WAYS < most)
        p->n_sets = p->n_sets ? 2 * p->n_sets : 1;
    size_t bytes = (p->n_sets * WAYS + 1) * sizeof *p->at;
    p->at = mem_alloc_block(bytes);
    CHECK(p->at);
    memset(p->at, 0, bytes);
    return p;
}

void prefixes_free(prefixes *p)
{
    free(p->at);
    free(p);
}

static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return rng_mix(hash + n);
}

/* Hashes what decides beside tokens whether pages are shared. */
static uint64_t root_of(const request *r)
{
    uint64_t hash = rng_mix(r->tenant->number + 1);
    hash = add_bytes(hash, r->what.adapter, r->what.adapter ? strlen(r->what.adapter) : 0);
    return add_bytes(hash, r->what.digest, r->what.digest_bytes);
}

void prefixes_mark(const prefixes *p, const request *r, prefix_marks *out)
{
    int n = p->n_sets ? r->what.n_tokens / PREFIX_UNIT : 0;
    out->n = n < PREFIX_UNITS ? n : PREFIX_UNITS;
    uint64_t hash = n ? root_of(r) : 0;
    for (int i = 0; i < out->n; i++) {
        for (int k = 0; k < PREFIX_UNIT; k++)
            hash = (hash ^ (uint32_t)r->what.token[i * PREFIX_UNIT + k]) * 0x9e3779b97f4a7c15u;
        hash = out->mark[i] = rng_mix(hash);
    }
}

static given *set_of(const prefixes *p, uint64_t mark)
{
    return p->at + (mark & (p->n_sets - 1)) * WAYS;
}

/* Returns the way of a mark in its set, or, if it is not there, the last one. */
static int way_of(const given *set, uint64_t mark)
{
    int way = 0;
    while (way < WAYS - 1 && !(set[way].mark == mark && set[way].life))
        way++;
    return way;
}

static bool is_kept(int units, int n)
{
    return units == n || (units & (units - 1)) == 0;
}

void prefixes_add(prefixes *p, const prefix_marks *m, const gpu *g)
{
    for (int units = 1; units <= m->n; units++) {
        if (!is_kept(units, m->n))
            continue;
        uint64_t mark = m->mark[units - 1];
        given *set = set_of(p, mark);
        memmove(set + 1, set, (size_t)way_of(set, mark) * sizeof *set);
        set[0] = (given){mark, g->life, g->number};
    }
}

int prefixes_find(const prefixes *p, uint64_t mark, uint32_t *life)
{
    const given *set = set_of(p, mark), *found = &set[way_of(set, mark)];
    *life = found->life;
    return found->mark == mark && found->life ? found->gpu : -1;
}
