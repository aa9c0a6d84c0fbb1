/* image_cache.h - adapters in pinned host memory, ready to be copied to a device
 *
 * One region claimed at the start (pinning memory stalls a device, so it is not done while steps run), handed out by
 * first fit; the least recently used images make room for new ones. An image larger than the region, and any where
 * there is no pinned memory, is kept in ordinary memory until the next add: slower to copy, but right. One thread at a
 * time. */
#ifndef PUNICA_ENGINE_IMAGE_CACHE_H
#define PUNICA_ENGINE_IMAGE_CACHE_H

#include "backend/backend.h"

typedef struct image_cache image_cache;

image_cache *image_cache_new(backend *be, size_t bytes);
void image_cache_free(image_cache *c); /* c may be NULL */

/* The image of this name, valid until the next add; NULL if there is none. */
const lora *image_cache_find(image_cache *c, const char *name);

/* Take over an adapter in ordinary host memory. Returns its image, never NULL, valid until the next add. */
const lora *image_cache_add(image_cache *c, const char *name, lora *host);

/* Call each() with every image's name. */
void image_cache_each(const image_cache *c, void (*each)(void *ctx, const char *name), void *ctx);

#endif
