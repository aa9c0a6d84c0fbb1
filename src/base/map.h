/* map.h - hash map from byte strings to 64-bit values
 *
 * Open addressing, keys copied into the map's own storage. One thread. */
#ifndef PUNICA_BASE_MAP_H
#define PUNICA_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct map map;

map *map_new(size_t expected); /* expected entries; it grows as needed */
void map_free(map *m);
size_t map_count(const map *m);

/* Inserts or replaces. */
void map_put(map *m, const void *key, size_t key_len, int64_t value);

/* True and *value set when the key is there. value may be NULL. */
bool map_get(const map *m, const void *key, size_t key_len, int64_t *value);

#endif
