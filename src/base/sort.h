/* sort.h - orders for qsort() and bsearch() */
#ifndef PUNICA_BASE_SORT_H
#define PUNICA_BASE_SORT_H

#include <string.h>

/* Compares elements that are strings, char *. */
static inline int sort_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
