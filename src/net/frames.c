/* frames.c - see frames.h */
#include "net/frames.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define FRAME_HEAD 4

void frame_add(buf *out, const void *bytes, size_t n)
{
    CHECK(n <= FRAME_MAX);
    char *head = buf_extend(out, FRAME_HEAD);
    for (int i = 0; i < FRAME_HEAD; i++)
        head[i] = (char)(n >> 8 * i);
    buf_add(out, bytes, n);
}

/* Returns the length of the message behind a head of FRAME_HEAD bytes; -1 when it is more than FRAME_MAX. */
static long frame_length(const void *head)
{
    const uint8_t *h = head;
    uint32_t n = (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
    return n <= FRAME_MAX ? (long)n : -1;
}

/* Moves the bytes not handed out yet to the front. */
static void compact(frame_reader *r)
{
    buf_drop(&r->in, r->start);
    r->start = 0;
}

bool frame_reader_wait(const frame_reader *r, double seconds)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    return poll(&p, 1, seconds > 0 ? (int)(seconds * 1000) : 0) > 0;
}

int frame_reader_fill(frame_reader *r, err *e)
{
    compact(r);
    enum { ROOM = 1 << 16 };
    char *to = buf_extend(&r->in, ROOM);
    ssize_t n = read(r->fd, to, ROOM);
    r->in.len -= n > 0 ? ROOM - (size_t)n : ROOM;
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : err_set(e, "cannot read the pipe: %s", strerror(errno));
    if (n == 0)
        return err_set(e, "the pipe is closed");
    return frame_reader_is_stuck(r) ? err_set(e, "a frame of more than %zu bytes", FRAME_MAX) : 1;
}

const void *frame_reader_next(frame_reader *r, size_t *n)
{
    size_t have = r->in.len - r->start;
    *n = 0;
    if (have < FRAME_HEAD)
        return NULL;
    const char *head = r->in.data + r->start;
    long length = frame_length(head);
    if (length < 0 || have - FRAME_HEAD < (size_t)length)
        return NULL;
    *n = (size_t)length;
    r->start += FRAME_HEAD + *n;
    return head + FRAME_HEAD;
}

bool frame_reader_is_stuck(const frame_reader *r)
{
    return r->in.len - r->start >= FRAME_HEAD && frame_length(r->in.data + r->start) < 0;
}

void frame_reader_deinit(frame_reader *r)
{
    buf_free(&r->in);
    r->start = 0;
}
