/* accept.h - listeners that pause when the process has no file descriptors left */
#ifndef PUNICA_NET_ACCEPT_H
#define PUNICA_NET_ACCEPT_H

#include <event2/event.h>
#include <event2/listener.h>
#include <sys/socket.h>

/* Connections that the kernel queues until they are accepted. A client that finds the queue full retries after a
 * second, so it is as long as the system allows (net.core.somaxconn). */
enum { ACCEPT_BACKLOG = SOMAXCONN };

/* Makes l log an error of accept() and then pause for up to a second, instead of retrying in a busy loop; clients wait
 * meanwhile. Returns an event that must be freed, with event_free(), before l. */
struct event *accept_add_backoff(struct evconnlistener *l);

#endif
