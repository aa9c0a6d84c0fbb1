/* stream.h - connections: a stream of bytes each way
 *
 * A dialer makes connections to one address, an acceptor accepts those that others make. They and their streams belong
 * to a loop (loop.h), which has two implementations. */
#ifndef PUNICA_NET_STREAM_H
#define PUNICA_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct net_stream net_stream;
typedef struct dialer dialer;
typedef struct acceptor acceptor;

/* open: connected, TLS included. bytes: more bytes can be read. lost: the peer closed, or the connection broke; why in
 * words. Called from the loop, never from within a function of the stream. */
typedef struct {
    void (*open)(void *ctx);
    void (*bytes)(void *ctx);
    void (*lost)(void *ctx, const char *why);
    void *ctx;
} stream_events;

typedef struct {
    void (*write)(net_stream *, const void *bytes, size_t n);
    size_t (*unsent)(net_stream *);
    const char *(*peek)(net_stream *, size_t most, size_t *n);
    size_t (*read)(net_stream *, void *to, size_t n);
    void (*finish)(net_stream *);
    void (*free)(net_stream *);
    bool (*peer_has_role)(net_stream *, const char *role); /* this and the next are NULL where there is no TLS */
    bool (*channel_key)(net_stream *, uint8_t key[32]);
} stream_ops;

struct net_stream {
    const stream_ops *ops;
    stream_events events; /* set by its owner; may be NULL, also one by one */
    bool is_open;
    bool is_private;   /* both ends are in this process: nobody else can read or change what it carries */
    double drained_at; /* when queued bytes were last taken by the network, or began to wait */
};

/* Queues bytes to be sent. */
static inline void stream_write(net_stream *s, const void *bytes, size_t n)
{
    s->ops->write(s, bytes, n);
}

/* Returns how many bytes wait to be sent. */
static inline size_t stream_unsent(net_stream *s)
{
    return s->ops->unsent(s);
}

/* Returns the first bytes that have come, *n of them (at most `most`), contiguous, without consuming them. */
static inline const char *stream_peek(net_stream *s, size_t most, size_t *n)
{
    return s->ops->peek(s, most, n);
}

/* Consumes up to n of the bytes that have come; to NULL drops them. Returns how many. */
static inline size_t stream_read(net_stream *s, void *to, size_t n)
{
    return s->ops->read(s, to, n);
}

/* Sends what is queued, then closes our half; input is dropped. `lost` is called when the peer has closed, having read
 * everything: a full close with input unread could destroy what the peer has not read yet. */
static inline void stream_finish(net_stream *s)
{
    s->ops->finish(s);
}

/* Returns whether the peer has shown a certificate for this role (credentials.h). */
static inline bool stream_peer_has_role(net_stream *s, const char *role)
{
    return s->ops->peer_has_role && s->ops->peer_has_role(s, role);
}

/* Gives a key that only the two ends of this connection know. False: the connection has no TLS, so there is none. */
static inline bool stream_channel_key(net_stream *s, uint8_t key[32])
{
    return s->ops->channel_key && s->ops->channel_key(s, key);
}

/* Closes and frees the stream at once. s may be NULL. */
static inline void stream_free(net_stream *s)
{
    if (s)
        s->ops->free(s);
}

typedef struct {
    net_stream *(*dial)(dialer *, const stream_events *, err *);
    void (*free)(dialer *);
} dialer_ops;

struct dialer {
    const dialer_ops *ops;
    const char *host; /* the peer's name for Host in an HTTP request */
};

/* Starts a connection; `open` or `lost` is called later. NULL with e set when it cannot be tried. */
static inline net_stream *dialer_dial(dialer *d, const stream_events *events, err *e)
{
    return d->ops->dial(d, events, e);
}

static inline void dialer_free(dialer *d)
{
    if (d)
        d->ops->free(d);
}

/* accepted: a connection has come from this address; the callback takes over the stream and sets its events. spare:
 * file descriptors are running out; closes a connection that can be spared, false when there is none. */
typedef struct {
    void (*accepted)(void *ctx, net_stream *s, const char *from);
    bool (*spare)(void *ctx);
    void *ctx;
} acceptor_events;

struct acceptor {
    void (*free)(acceptor *);
    const char *address; /* for others to connect to */
};

static inline void acceptor_free(acceptor *a)
{
    if (a)
        a->free(a);
}

#endif
