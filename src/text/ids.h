/* ids.h - a growing array of token ids
 *
 * Plain value: zero-initialise (`ids x = {0}`), add, ids_free. */
#ifndef PUNICA_TEXT_IDS_H
#define PUNICA_TEXT_IDS_H

#include <stddef.h>
#include <stdlib.h>

#include "base/mem.h"

typedef struct {
    int *items;
    size_t n, cap;
} ids;

static inline void ids_add(ids *x, int id)
{
    if (x->n == x->cap)
        x->items = xgrow(x->items, &x->cap, x->n + 1, sizeof *x->items);
    x->items[x->n++] = id;
}

static inline void ids_free(ids *x)
{
    free(x->items);
    *x = (ids){0};
}

#endif
