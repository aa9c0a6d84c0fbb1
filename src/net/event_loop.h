/* event_loop.h - the event loop used in production: libevent, the machine's clocks, sockets with and without TLS */
#ifndef PUNICA_NET_EVENT_LOOP_H
#define PUNICA_NET_EVENT_LOOP_H

#include <event2/event.h>

#include "net/loop.h"

#define LOOP_SELF \
    "self" /* the address by which roles of one process reach each other; not a valid address for users (address.h) */

typedef struct inner_acceptor inner_acceptor;

typedef struct {
    net_loop base;             /* first: the interface that roles use */
    struct event_base *events; /* for code that uses libevent directly: HTTP servers, subprocesses, signals */
    inner_acceptor *acceptor;  /* listens at LOOP_SELF; borrowed; NULL: nobody does */
} event_loop;

event_loop *event_loop_new(void);
void event_loop_free(event_loop *l); /* l may be NULL */

/* The dialer and acceptor for LOOP_SELF (inner_stream.c). Nobody outside can read or change their streams, so
 * credentials are not checked. At most one acceptor at a time. */
dialer *inner_dialer_new(event_loop *l);
acceptor *inner_acceptor_new(event_loop *l, const acceptor_events *events);

/* The dialer and acceptor for all other addresses (socket_stream.c). */
dialer *socket_dialer_new(net_loop *l, const char *address, const credentials *own, err *e);
acceptor *socket_acceptor_new(net_loop *l, const char *address, const credentials *own, const acceptor_events *events,
                              err *e);

#endif
