/* event_loop.h - the loop of production: libevent, the machine's clocks, sockets with and without TLS */
#ifndef PUNICA_NET_EVENT_LOOP_H
#define PUNICA_NET_EVENT_LOOP_H

#include <event2/event.h>

#include "net/loop.h"

typedef struct {
    net_loop base;                  /* first: what roles get */
    struct event_base *events;  /* for what speaks libevent itself: HTTP servers, subprocesses, signals */
} event_loop;

event_loop *event_loop_new(void);
void event_loop_free(event_loop *l);    /* l may be NULL */

/* What addresses and credentials become (socket_stream.c). */
dialer *socket_dialer_new(net_loop *l, const char *address, const credentials *own, err *e);
acceptor *socket_acceptor_new(net_loop *l, const char *address, const credentials *own, const acceptor_events *events, err *e);

#endif
