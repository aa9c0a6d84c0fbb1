/* image_cache.c - see image_cache.h */
#include "engine/image_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/lora.h"

typedef struct {
    char *name;
    lora *image; /* its data lies in the region, at `at` */
    size_t at, bytes;
    uint64_t last_used;
} cached_image;

struct image_cache {
    backend *be;  /* borrowed */
    char *region; /* NULL: no pinned memory */
    size_t size;
    cached_image *entries; /* [n] by place in the region */
    int n;
    size_t cap;
    uint64_t clock;
    lora *outside; /* the last image that has no place in the region, or NULL */
    char *outside_name;
};

image_cache *image_cache_new(backend *be, size_t bytes)
{
    image_cache *c = XNEW(image_cache);
    *c = (image_cache){.be = be, .region = be->ops->alloc_host(be, bytes)};
    c->size = c->region ? bytes : 0;
    return c;
}

static void drop(image_cache *c, int i)
{
    cached_image *e = &c->entries[i];
    free(e->name);
    e->image->data = NULL; /* the region's */
    lora_free(e->image, NULL);
    memmove(e, e + 1, (size_t)(c->n - i - 1) * sizeof *e);
    c->n--;
}

void image_cache_free(image_cache *c)
{
    if (!c)
        return;
    while (c->n > 0)
        drop(c, c->n - 1);
    lora_free(c->outside, NULL);
    free(c->outside_name);
    if (c->region)
        c->be->ops->release_host(c->be, c->region);
    free(c->entries);
    free(c);
}

const lora *image_cache_find(image_cache *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->entries[i].name, name) == 0) {
            c->entries[i].last_used = ++c->clock;
            return c->entries[i].image;
        }
    return c->outside && strcmp(c->outside_name, name) == 0 ? c->outside : NULL;
}

/* Finds the first gap of so many bytes: *at is its place, *before the entry behind it. False if there is none. */
static bool find_gap(const image_cache *c, size_t bytes, size_t *at, int *before)
{
    size_t end = 0;
    for (int i = 0; i <= c->n; i++) {
        size_t next = i < c->n ? c->entries[i].at : c->size;
        if (next - end >= bytes) {
            *at = end;
            *before = i;
            return true;
        }
        end = i < c->n ? c->entries[i].at + c->entries[i].bytes : end;
    }
    return false;
}

static void drop_oldest(image_cache *c)
{
    int oldest = 0;
    for (int i = 1; i < c->n; i++)
        if (c->entries[i].last_used < c->entries[oldest].last_used)
            oldest = i;
    drop(c, oldest);
}

const lora *image_cache_add(image_cache *c, const char *name, lora *host)
{
    size_t bytes = (host->bytes + 4095) / 4096 * 4096, at;
    int before;
    lora_free(c->outside, NULL);
    free(c->outside_name);
    c->outside = NULL;
    c->outside_name = NULL;
    if (bytes > c->size) {
        c->outside_name = xstrdup(name);
        return c->outside = host;
    }
    while (!find_gap(c, bytes, &at, &before))
        drop_oldest(c);
    c->entries = xgrow(c->entries, &c->cap, (size_t)c->n + 1, sizeof *c->entries);
    cached_image *e = &c->entries[before];
    memmove(e + 1, e, (size_t)(c->n++ - before) * sizeof *e);
    *e = (cached_image){.name = xstrdup(name),
                        .image = lora_index(host, c->region + at),
                        .at = at,
                        .bytes = bytes,
                        .last_used = ++c->clock};
    memcpy(c->region + at, host->data, host->bytes);
    lora_free(host, NULL);
    return e->image;
}

void image_cache_each(const image_cache *c, void (*each)(void *ctx, const char *name), void *ctx)
{
    for (int i = 0; i < c->n; i++)
        each(ctx, c->entries[i].name);
    if (c->outside_name)
        each(ctx, c->outside_name);
}
