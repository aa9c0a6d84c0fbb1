/* reply.h - the answer to one call, at once or as a stream
 *
 * Watches the client meanwhile: one that goes away, or does not read what it asked for, is given up at once. Two
 * implementations: http_reply.h, and the clients of sim/. */
#ifndef PUNICA_FRONTEND_REPLY_H
#define PUNICA_FRONTEND_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "net/client_loss.h"

typedef struct reply reply;

typedef struct {
    void (*add_header)(reply *, const char *name, const char *value);
    void (*send)(reply *, int status, const char *type, const buf *body, bool close);
    void (*begin)(reply *, const char *type);
    void (*add)(reply *, const buf *bytes);
    void (*flush)(reply *);
    bool (*end)(reply *);
} reply_ops;

/* client: its address, for the log; "": not known. gone: called when the client is lost; the reply is freed, and must
 * not be used from within the call. It is not called once the reply has been sent or ended. The owner sets gone and
 * ctx. */
struct reply {
    const reply_ops *ops;
    const char *client; /* borrowed: while the reply lives */
    void (*gone)(void *ctx, client_loss why);
    void *ctx;
};

/* Adds a header, before anything is sent. */
static inline void reply_add_header(reply *r, const char *name, const char *value)
{
    r->ops->add_header(r, name, value);
}

/* Sends the whole answer and frees the reply. close: the connection is not used again. */
static inline void reply_send(reply *r, int status, const char *type, const buf *body, bool close)
{
    r->ops->send(r, status, type, body, close);
}

/* A stream: begin, add any number of times, end, which frees the reply. add sends at once, and may be called on any
 * thread while the loop's waits for it; flush, to be called after it on the loop's thread, sees to what the kernel
 * did not take, and has gone called, later, when the client has too much unread. end returns false if it had by then:
 * it is cut off, its stream unfinished. */
static inline void reply_begin(reply *r, const char *type)
{
    r->ops->begin(r, type);
}

static inline void reply_add(reply *r, const buf *bytes)
{
    r->ops->add(r, bytes);
}

static inline void reply_flush(reply *r)
{
    r->ops->flush(r);
}

static inline bool reply_end(reply *r)
{
    return r->ops->end(r);
}

#endif
