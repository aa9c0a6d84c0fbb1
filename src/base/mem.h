/* mem.h - host memory
 *
 * Running out of host memory aborts with a message; nobody tests for NULL. Sizes that come from
 * files are checked against the file before they get here. */
#ifndef PUNICA_BASE_MEM_H
#define PUNICA_BASE_MEM_H

#include <stddef.h>

void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* One item, or n of them, zeroed. */
#define XNEW(type) ((type *)xcalloc(1, sizeof(type)))
#define XNEW_ARRAY(type, n) ((type *)xcalloc((n), sizeof(type)))

/* Allocates a block on a 64-byte boundary; a large one on huge pages where the system has them, so that reading it in
 * order costs hardly any TLB misses. NULL when there is not enough memory; free with free(). */
void *mem_alloc_block(size_t bytes);

/* Returns how many bytes can still be allocated without swapping, within the limit of the container that we are in, if
 * it has one. */
size_t mem_available(void);

/* Returns how many bytes a control group (cgroup v2, by its folder) may still take; its page cache counts as free.
 * SIZE_MAX: it has no limit, or does not exist. */
size_t mem_left_in_group(const char *folder);

/* Grows an array (element size `size`) so that `need` elements fit; *cap is updated. Doubles, so appends are
 * amortised constant. Returns the array, which may have moved. */
void *xgrow(void *items, size_t *cap, size_t need, size_t size);

#endif
