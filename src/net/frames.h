/* frames.h - messages on a pipe between a runner and its worker: 4 bytes of length, lowest first, then a Message
 *
 * An empty one, from a worker: a step's tokens are about to come. */
#ifndef PUNICA_NET_FRAMES_H
#define PUNICA_NET_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { WORKER_IN_FD = 3, WORKER_OUT_FD = 4 }; /* where a worker finds its pipes */

#define FRAME_MAX ((size_t)64 << 20) /* bytes of a message at most */

/* Append a frame with these bytes. */
void frame_add(buf *out, const void *bytes, size_t n);

/* Incoming bytes are collected until frames are whole. */
typedef struct {
    int fd;
    buf in;
    size_t start;
} frame_reader; /* start: of what is not yet handed out */

/* Whether there are bytes to read, now or within so many seconds. */
bool frame_reader_wait(const frame_reader *r, double seconds);

/* Read the bytes there are; waits for some if fd is one that waits. 1: some came; 0: none; -1: the pipe is closed, or
 * broken, as e says. */
int frame_reader_fill(frame_reader *r, err *e);

/* The next whole message, or NULL with *n 0; valid until the next fill. */
const void *frame_reader_next(frame_reader *r, size_t *n);
void frame_reader_deinit(frame_reader *r);

/* Write all of it, however long the reader takes. -1: there is none any more. */
int frame_write_all(int fd, const void *bytes, size_t n);

#endif
