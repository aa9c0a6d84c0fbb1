/* link.h - authenticated connections that carry messages between processes
 *
 * A link is a WebSocket (so that it passes through what passes HTTP), over TLS where asked for. Both sides first
 * prove that they know the cluster's secret, without showing it, or show certificates, and say version and role;
 * whoever does not fit is refused with one log line on either side. After that messages (wire.proto) come whole,
 * unchanged and in order until the link is lost. A link is lost when the peer closes, breaks the protocol, or is silent
 * for too long (both sides ping), or when a message was changed on its way (seal.h); what was sent and not yet received
 * is then lost too: recovery is the business of those above.
 *
 * Roles of one process have links, too, over streams that never leave it (event_loop.h: LOOP_SELF).
 *
 * The connecting side tries again by itself, with growing pauses. All on one event loop, one thread. */
#ifndef PUNICA_NET_LINK_H
#define PUNICA_NET_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net/loop.h"
#include "net/wire.pb-c.h"

#define WIRE_VERSION 4

typedef struct net_link net_link; /* link() is POSIX's */

typedef struct {
    const credentials *own; /* borrowed: outlive the link, and may change meanwhile (credentials.h) */
    Hello__Role role;
    const char *name;           /* for logs; NULL: "host/process"; strings are copied */
    uint64_t instance;          /* 0: a random one */
    const char *model;          /* NULL: the scheduler, which has none */
    double ping_every, silence; /* seconds; a peer silent for so long is lost */
    size_t max_message;         /* bytes */
    size_t max_unsent;          /* bytes; with more waiting, a peer that reads none of it for `silence` is lost */
    bool within;                /* all peers are roles of this process: that they come up is no news (LOG_DEBUG) */
} link_options;

link_options link_options_default(void);

/* up: the peer is there; hello is what it said. An accepted link can be sent on only after the call, and link_drop()
 * from within it refuses the peer, which then never was up. message: one has come (valid during the call). down: the
 * link was up and is lost, why in words; a connecting link comes up again by itself, an accepted one is freed after the
 * call. */
typedef struct {
    void (*up)(void *ctx, net_link *l, const Hello *hello);
    void (*message)(void *ctx, net_link *l, const Message *m);
    void (*down)(void *ctx, net_link *l, const char *why);
    void *ctx;
} link_events;

/* "HOST:PORT", "unix:PATH" or "unix:@NAME" (address.h). Starts connecting at once and again for ever. Free with
 * link_free(). */
net_link *link_connect(net_loop *on, const char *address, const link_options *o, const link_events *e, err *error);

typedef struct link_listener link_listener;

/* Port 0: any; the address that others can connect to is then link_listener_address(). */
link_listener *link_listen(net_loop *on, const char *address, const link_options *o, const link_events *e, err *error);
const char *link_listener_address(const link_listener *l);
void link_listener_free(link_listener *l); /* and all its links, without calling down; not from within a callback */

/* Queue a message. Nothing happens on a link that is not up. */
void link_send(net_link *l, const Message *m);
void link_send_packed(net_link *l, const void *message, size_t n); /* the same, a Message packed already */

/* What the owner keeps with a link. */
void link_set_data(net_link *l, void *data);
void *link_data(const net_link *l);

/* "runner gpu3/812 at 10.0.0.3:40112", for logs. */
const char *link_peer(const net_link *l);
bool link_is_within(const net_link *l); /* as its options say */

/* Lose the link now, for this reason, which both sides log; down is called as for any other loss, but not from within
 * this call. */
void link_drop(net_link *l, const char *why);

void link_free(net_link *l); /* of link_connect(); down is not called */

#endif
