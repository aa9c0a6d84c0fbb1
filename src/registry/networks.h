/* networks.h - which addresses adapters may be fetched from
 *
 * A source's URL comes from a stranger, but is fetched from inside the network: without a limit, anybody could have us
 * ask the cloud's metadata service, or a neighbour (SSRF). So connections are made only to public addresses, and to the
 * networks that the operator allows. The address of each connection is judged, not the name in the URL, so neither a
 * redirect nor DNS rebinding gets around that. */
#ifndef PUNICA_REGISTRY_NETWORKS_H
#define PUNICA_REGISTRY_NETWORKS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"

/* The addresses that begin with these bits; IPv4 as ::ffff:a.b.c.d. */
typedef struct {
    unsigned char address[16];
    int bits;
} ip_network;

/* Parses "10.0.0.0/8", "fd00::/8", or one address. 0, or -1 with e set. */
int ip_network_parse(ip_network *n, const char *text, err *e);

/* Returns whether a connection may be made: the address is public, or in one of the n allowed networks. */
bool networks_permit(const ip_network *allowed, int n, const struct sockaddr *a);

#endif
