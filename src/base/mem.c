/* mem.c - see mem.h */
#include "base/mem.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

static void *or_die(void *p, size_t size)
{
    if (p)
        return p;
    char text[80];
    int n = snprintf(text, sizeof text, "punica: out of memory (wanted %zu bytes)\n", size);
    log_write(text, (size_t)n);
    log_flush();
    abort();
}

void *xmalloc(size_t size)
{
    return or_die(malloc(size ? size : 1), size);
}

void *xcalloc(size_t n, size_t size)
{
    return or_die(calloc(n ? n : 1, size ? size : 1), n * size);
}

void *xrealloc(void *p, size_t size)
{
    return or_die(realloc(p, size ? size : 1), size);
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    char *copy = xmalloc(n + 1);
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return or_die(n < 0 ? NULL : s, 1);
}

void *mem_alloc_block(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    size_t align = bytes >= huge ? huge : 64;
    void *p = NULL;
    if (posix_memalign(&p, align, bytes ? bytes : 1) != 0)
        return NULL;
    if (align == huge)
        madvise(p, bytes / huge * huge, MADV_HUGEPAGE); /* whole huge pages only, so that no memory is wasted */
    return p;
}

/* Reads the number behind `name` at the beginning of a line of a file. False: no line has one. */
static bool read_number(const char *folder, const char *file, const char *name, unsigned long long *n)
{
    char path[256], line[128], form[64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    snprintf(form, sizeof form, "%s%%llu", name);
    FILE *f = fopen(path, "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, form, n) == 1;
    if (f)
        fclose(f);
    return found;
}

size_t mem_left_in_group(const char *folder)
{
    unsigned long long limit, used, files = 0, shared = 0;
    if (!read_number(folder, "memory.max", "", &limit) || !read_number(folder, "memory.current", "", &used))
        return SIZE_MAX;
    read_number(folder, "memory.stat", "file ", &files);
    read_number(folder, "memory.stat", "shmem ", &shared); /* included in `file`, but cannot be dropped */
    files -= shared < files ? shared : files;
    used -= files < used ? files : used;
    return used < limit ? (size_t)(limit - used) : 0;
}

size_t mem_available(void)
{
    unsigned long long kilobytes;
    bool known = read_number("/proc", "meminfo", "MemAvailable: ", &kilobytes);
    size_t all = known ? (size_t)kilobytes * 1024 : (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t ours = mem_left_in_group("/sys/fs/cgroup");
    return ours < all ? ours : all;
}

void *xgrow(void *items, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return items;
    size_t n = *cap ? *cap : 16;
    while (n < need)
        n = n > SIZE_MAX / 2 ? need : n * 2;
    if (n > SIZE_MAX / size)
        or_die(NULL, SIZE_MAX);
    *cap = n;
    return xrealloc(items, n * size);
}
