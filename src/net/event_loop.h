/* event_loop.h - the loop of production: libevent, the machine's clocks, sockets with and without TLS */
#ifndef PUNICA_NET_EVENT_LOOP_H
#define PUNICA_NET_EVENT_LOOP_H

#include <event2/event.h>

#include "net/loop.h"

#define LOOP_SELF \
    "self" /* the address at which roles of one process find each other; no user can give it (address.h) */

typedef struct inner_acceptor inner_acceptor;

typedef struct {
    net_loop base;             /* first: what roles get */
    struct event_base *events; /* for what speaks libevent itself: HTTP servers, subprocesses, signals */
    inner_acceptor *door;      /* who listens at LOOP_SELF; borrowed; NULL: nobody does */
} event_loop;

event_loop *event_loop_new(void);
void event_loop_free(event_loop *l); /* l may be NULL */

/* What LOOP_SELF becomes (inner_stream.c): streams that nobody outside can read or change, so credentials are not
 * looked at. One may listen. */
dialer *inner_dialer_new(event_loop *l);
acceptor *inner_acceptor_new(event_loop *l, const acceptor_events *events);

/* What other addresses and credentials become (socket_stream.c). */
dialer *socket_dialer_new(net_loop *l, const char *address, const credentials *own, err *e);
acceptor *socket_acceptor_new(net_loop *l, const char *address, const credentials *own, const acceptor_events *events,
                              err *e);

#endif
