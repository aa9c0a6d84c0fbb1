/* deadly_request.c - preloaded into a runner: its workers die of a certain request
 *
 * As of a bug that one input meets: a worker that has read the bytes of environment DEADLY_BYTES (hexadecimal) reports
 * the request as taken in and aborts in the step that follows. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKER_IN = 3, WORKER_OUT = 4, MAX_BYTES = 64 };

static int n_writes_left = -1; /* -1: nothing deadly has come */

static size_t deadly_bytes(unsigned char *out)
{
    const char *hex = getenv("DEADLY_BYTES");
    size_t n = 0;
    for (; hex && hex[0] && hex[1] && n < MAX_BYTES; hex += 2)
        out[n++] = (unsigned char)strtoul((char[]){hex[0], hex[1], 0}, NULL, 16);
    return n;
}

ssize_t read(int fd, void *to, size_t room)
{
    ssize_t (*real)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    ssize_t n = real(fd, to, room);
    unsigned char deadly[MAX_BYTES];
    if (fd == WORKER_IN && n > 0 && memmem(to, (size_t)n, deadly, deadly_bytes(deadly)))
        n_writes_left = 1;
    return n;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (fd == WORKER_OUT && n_writes_left >= 0 && n_writes_left-- == 0)
        abort();
    return real(fd, bytes, n);
}
