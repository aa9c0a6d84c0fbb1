/* stream.h - connections as two streams of bytes, and how they are made
 *
 * A dialer makes connections to one address, an acceptor takes those that others make. Both, and the streams that come
 * of them, belong to a loop (loop.h), which has two implementations. */
#ifndef PUNICA_NET_STREAM_H
#define PUNICA_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct net_stream net_stream;
typedef struct dialer dialer;
typedef struct acceptor acceptor;

/* open: connected, TLS included. bytes: there are more to read. lost: the peer closed, or the connection broke; why in
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
    bool (*peer_has_role)(net_stream *, const char *role); /* NULL, as the next: there is no TLS here */
    bool (*channel_key)(net_stream *, uint8_t key[32]);
} stream_ops;

struct net_stream {
    const stream_ops *ops;
    stream_events events; /* its owner sets them; all NULL: nobody listens any more */
    bool is_open;
    bool is_private;   /* both ends are in this process: nobody else can read or change what it carries */
    double drained_at; /* when some of what waits to be sent was taken, or began to wait */
};

/* Queue bytes to be sent. */
static inline void stream_write(net_stream *s, const void *bytes, size_t n)
{
    s->ops->write(s, bytes, n);
}

/* How many bytes wait to be sent. */
static inline size_t stream_unsent(net_stream *s)
{
    return s->ops->unsent(s);
}

/* The first bytes that have come, at most so many, in one piece; they stay. */
static inline const char *stream_peek(net_stream *s, size_t most, size_t *n)
{
    return s->ops->peek(s, most, n);
}

/* Take up to n of the bytes that have come; to NULL drops them. Returns how many. */
static inline size_t stream_read(net_stream *s, void *to, size_t n)
{
    return s->ops->read(s, to, n);
}

/* Send what is queued, then close our half, and drop whatever comes. The peer has read the last byte when lost is
 * called: closing with bytes unread would take it from the peer. */
static inline void stream_finish(net_stream *s)
{
    s->ops->finish(s);
}

/* Whether the peer has shown a certificate that it has this role (credentials.h). */
static inline bool stream_peer_has_role(net_stream *s, const char *role)
{
    return s->ops->peer_has_role && s->ops->peer_has_role(s, role);
}

/* What only the two ends of this connection know. False: it is not encrypted, so there is no such thing. */
static inline bool stream_channel_key(net_stream *s, uint8_t key[32])
{
    return s->ops->channel_key && s->ops->channel_key(s, key);
}

/* Close at once. */
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
    const char *host; /* what the peer is called in an HTTP request */
};

/* Start a connection; open or lost follows. NULL with e set when it cannot even be tried. */
static inline net_stream *dialer_dial(dialer *d, const stream_events *events, err *e)
{
    return d->ops->dial(d, events, e);
}

static inline void dialer_free(dialer *d)
{
    if (d)
        d->ops->free(d);
}

/* accepted: one has come; the stream is the receiver's, which sets its events. from: its address in words. spare: file
 * descriptors are running out, so close a connection that can be missed; false when there is none. */
typedef struct {
    void (*accepted)(void *ctx, net_stream *s, const char *from);
    bool (*spare)(void *ctx);
    void *ctx;
} acceptor_events;

struct acceptor {
    void (*free)(acceptor *);
    const char *address; /* that others can connect to */
};

static inline void acceptor_free(acceptor *a)
{
    if (a)
        a->free(a);
}

#endif
