/* held_versions.c - see held_versions.h */
#include "frontend/held_versions.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"
#include "registry/disk_cache.h"

typedef struct {
    int n_holders;
    disk_pin pin;
} held; /* pin: all zero if the cache does not have it */

struct held_versions {
    disk_cache *cache;
    map *by_digest; /* from digest to index in all */
    held *all;      /* [n] every version that ever was held */
    size_t n, cap;
};

held_versions *held_versions_new(const char *dir, err *e)
{
    disk_cache *c = disk_cache_open(dir, 0, e);
    if (!c)
        return NULL;
    held_versions *h = XNEW(held_versions);
    *h = (held_versions){.cache = c, .by_digest = map_new(64)};
    return h;
}

void held_versions_free(held_versions *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++)
        disk_cache_unpin(&h->all[i].pin);
    free(h->all);
    map_free(h->by_digest);
    disk_cache_close(h->cache);
    free(h);
}

static held *find_held(held_versions *h, const digest *d)
{
    int64_t at;
    if (map_get(h->by_digest, d->byte, DIGEST_BYTES, &at))
        return &h->all[at];
    h->all = xgrow(h->all, &h->cap, h->n + 1, sizeof *h->all);
    map_put(h->by_digest, d->byte, DIGEST_BYTES, (int64_t)h->n);
    h->all[h->n] = (held){0};
    return &h->all[h->n++];
}

void held_versions_hold(held_versions *h, const digest *d)
{
    if (!h)
        return;
    held *v = find_held(h, d);
    if (v->n_holders++ > 0)
        return;
    char hex[DIGEST_HEX];
    digest_to_hex(d, hex);
    disk_cache_pin_digest(h->cache, hex, &v->pin);
}

void held_versions_release(held_versions *h, const digest *d)
{
    if (!h)
        return;
    held *v = find_held(h, d);
    CHECK(v->n_holders > 0);
    if (--v->n_holders == 0)
        disk_cache_unpin(&v->pin);
}
