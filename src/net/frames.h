/* frames.h - messages on a pipe between a runner and its worker: 4 bytes of length, little-endian, then a Message
 *
 * An empty frame from a worker is a notice: a step's tokens are about to come. */
#ifndef PUNICA_NET_FRAMES_H
#define PUNICA_NET_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { WORKER_IN_FD = 3, WORKER_OUT_FD = 4 }; /* where a worker finds its pipes */

#define FRAME_MAX ((size_t)64 << 20) /* bytes of a message at most */

/* Appends a frame with n bytes, at most FRAME_MAX. */
void frame_add(buf *out, const void *bytes, size_t n);

/* Collects incoming bytes until frames are whole. Zero-initialise all but fd, which is borrowed. */
typedef struct {
    int fd;
    buf in;
    size_t start; /* index in `in` of the first byte not handed out yet */
} frame_reader;

/* Waits up to so many seconds (0: not at all) for bytes to read. Returns whether there are any. */
bool frame_reader_wait(const frame_reader *r, double seconds);

/* Reads the bytes there are; blocks until some come if fd blocks. 1: some came; 0: none; -1 with e set: the pipe is
 * closed or broken, or a frame is too large. */
int frame_reader_fill(frame_reader *r, err *e);

/* Returns the next whole message, valid until the next fill; NULL with *n 0: there is none yet. */
const void *frame_reader_next(frame_reader *r, size_t *n);

/* Returns whether the next frame is too large: nothing can be read any more. */
bool frame_reader_is_stuck(const frame_reader *r);
void frame_reader_deinit(frame_reader *r);

#endif
