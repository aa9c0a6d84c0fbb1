/* mem.h - host memory that is always there
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

/* A block on a 64-byte boundary; a large one lies on huge pages where the system has them, so that reading
 * it in order costs no address translation to speak of. NULL when there is not enough; free with free(). */
void *mem_alloc_block(size_t bytes);

/* Bytes of memory this machine can still give without swapping, and the container that we are in, if it has a limit. */
size_t mem_available(void);

/* What a control group (cgroup v2, by its folder) may still take; what it has as cached files counts as not taken.
 * SIZE_MAX: it has no limit, or is none. */
size_t mem_left_in_group(const char *folder);

/* Grow *items (element size `size`) so that `need` fit; *cap is updated. Doubles, so appends are
 * amortised constant. */
void *xgrow(void *items, size_t *cap, size_t need, size_t size);

#endif
