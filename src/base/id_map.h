/* id_map.h - hash map from 64-bit ids to pointers, with removal
 *
 * The pointers are borrowed. One thread. */
#ifndef PUNICA_BASE_ID_MAP_H
#define PUNICA_BASE_ID_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct id_map id_map;

id_map *id_map_new(void);
void id_map_free(id_map *m);
size_t id_map_count(const id_map *m);

void *id_map_get(const id_map *m, uint64_t id);      /* NULL: not there */
void id_map_put(id_map *m, uint64_t id, void *item); /* must not be there yet; item not NULL */
void id_map_remove(id_map *m, uint64_t id);          /* must be there */

#endif
