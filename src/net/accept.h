/* accept.h - listeners that rest when the process has no file descriptors left */
#ifndef PUNICA_NET_ACCEPT_H
#define PUNICA_NET_ACCEPT_H

#include <event2/event.h>
#include <event2/listener.h>
#include <sys/socket.h>

/* Connections that the kernel keeps until they are accepted. Whoever comes when it is full tries again after a second,
 * so it is as long as the system allows (net.core.somaxconn). */
enum { ACCEPT_BACKLOG = SOMAXCONN };

/* Make l log an error of accept() and then rest for up to a second, where it would try again and again: those who want
 * to connect wait so long. What it returns must be freed, with event_free(), before l. */
struct event *accept_rest(struct evconnlistener *l);

#endif
