/* link.h - authenticated connections that carry messages between processes
 *
 * A link is a WebSocket (so that it passes HTTP proxies), over TLS where asked for. Both sides first prove that they
 * know the cluster's secret, without showing it, or show certificates, and say version and role; a peer that does not
 * fit is refused with one log line on either side. After that messages (wire.proto) arrive whole, unchanged and in
 * order until the link is lost. A link is lost when the peer closes, breaks the protocol, or is silent for too long
 * (both sides ping), or when a message was changed on its way (seal.h); what was sent and not yet received is lost with
 * it: recovery is up to the link's users.
 *
 * Roles of one process have links, too, over streams that never leave it (event_loop.h: LOOP_SELF).
 *
 * The connecting side reconnects by itself, with exponential backoff. All on one event loop, one thread. */
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
    const credentials *own; /* borrowed: must outlive the link; may change meanwhile (credentials.h) */
    Hello__Role role;
    const char *name;           /* for logs; NULL: "host/process"; strings are copied */
    uint64_t instance;          /* 0: a random one */
    const char *model;          /* NULL: for the scheduler, which has none */
    double ping_every, silence; /* seconds; a peer silent for `silence` is lost */
    size_t max_message;         /* bytes */
    size_t max_unsent;          /* bytes; with more waiting, a peer that reads none of it for `silence` is lost */
    bool within;                /* all peers are roles of this process: links that come up are logged as LOG_DEBUG */
} link_options;

link_options link_options_default(void);

/* up: the peer has proved itself; hello is what it said. An accepted link can send only after the call returns, and
 * link_drop() from within it refuses the peer: down does not follow then. message: one has come (valid during the
 * call). down: a link that was up is lost, why in words; a connecting link connects again by itself, an accepted one is
 * freed after the call. */
typedef struct {
    void (*up)(void *ctx, net_link *l, const Hello *hello);
    void (*message)(void *ctx, net_link *l, const Message *m);
    void (*down)(void *ctx, net_link *l, const char *why);
    void *ctx;
} link_events;

/* Makes a link to "HOST:PORT", "unix:PATH" or "unix:@NAME" (address.h). It starts connecting at once, and reconnects
 * for ever. Free with link_free(). NULL with error set when the address is bad. */
net_link *link_connect(net_loop *on, const char *address, const link_options *o, const link_events *e, err *error);

typedef struct link_listener link_listener;

/* Listens for links. Port 0: any; link_listener_address() says which. NULL with error set when it cannot listen
 * there. */
link_listener *link_listen(net_loop *on, const char *address, const link_options *o, const link_events *e, err *error);
const char *link_listener_address(const link_listener *l);
void link_listener_free(link_listener *l); /* frees its links too, without calling down; not from within a callback */

/* Queues a message; on a link that is not up it is dropped. */
void link_send(net_link *l, const Message *m);
void link_send_packed(net_link *l, const void *message, size_t n); /* the same, for a Message already packed */

/* A pointer that the owner keeps with a link. */
void link_set_data(net_link *l, void *data);
void *link_data(const net_link *l);

/* "runner gpu3/812 at 10.0.0.3:40112", for logs. */
const char *link_peer(const net_link *l);
bool link_is_within(const net_link *l); /* `within` of its options */

/* Ends the link for this reason, which both sides log. down is called as for any other loss, after this call. */
void link_drop(net_link *l, const char *why);

void link_free(net_link *l); /* only for links of link_connect(); down is not called */

#endif
