/* link_state.h - the state of a link (internal to link.c and link_listener.c)
 *
 * session.c handles what is said on one connection; a link outlives its sessions:
 *
 *   connecting side    pausing ──▶ connecting ──▶ in session ──▶ lost ──▶ pausing ...   link.c
 *   listening side                 connecting ──▶ in session ──▶ lost ──▶ freed         link.c, link_listener.c */
#ifndef PUNICA_NET_LINK_STATE_H
#define PUNICA_NET_LINK_STATE_H

#include "base/buf.h"
#include "net/link.h"
#include "net/log_limit.h"
#include "net/session.h"

typedef enum { LINK_PAUSING, LINK_CONNECTING, LINK_IN_SESSION, LINK_LOST } link_state;

/* What all links of a listener share; a connecting link has one of its own. */
typedef struct {
    net_loop *on;     /* borrowed: outlives it */
    link_options opt; /* its strings are owned */
    link_events events;
    proof_side side;
    log_limit logged; /* refusals logged lately */
} link_endpoint;

typedef struct link_network link_network; /* where links come from: link_listener.c's */

struct net_link {
    link_endpoint *end; /* owned by the connecting side, else the listener's */
    link_state state;
    bool was_up, freed; /* freed: its owner called link_free() from within a callback; finish() frees it */
    bool welcoming;     /* the callback `up` of an accepted link is running */
    int depth;          /* of callbacks that are running */
    const char *how;    /* LINK_LOST: "lost %s: %s" and so on */
    char why[256];
    net_stream *stream;         /* the connection; NULL when pausing, or when it could not be tried */
    session *session;           /* exists as long as stream */
    net_stream *lingering;      /* a connection kept open for a refused peer to read why; may be stream */
    char where[128], peer[400]; /* the peer's address; the peer in words */
    double last_heard, up_since;
    loop_timer *timer, *finish;
    buf out; /* a message being sent */
    void *data;
    /* connecting side only */
    dialer *to;
    double pause;
    uint64_t n_pauses;
    /* listening side only */
    link_listener *listener; /* borrowed; NULL: the connecting side */
    net_link *prev, *next;   /* in the listener's list */
    link_network *from;      /* borrowed from the listener */
    uint64_t number;         /* in order of arrival */
};

/* Initialises an endpoint. Strings of the options are copied. */
void link_endpoint_init(link_endpoint *end, net_loop *on, const link_options *o, const link_events *e, proof_side side);
void link_endpoint_deinit(link_endpoint *end);

/* Begins a link of a listener over stream, which it takes over, to a peer at address `from`. */
void link_accept(net_link *l, net_stream *stream, const char *from);
net_link *link_new(link_endpoint *end, link_listener *listener);
void link_destroy(net_link *l);

/* Destroys an accepted link that has not come up, and logs why unless it was lost for another reason before. */
void link_hang_up(net_link *l, const char *why);

/* Takes a link that is being destroyed out of its listener's list. */
void link_listener_remove(net_link *l);

#endif
