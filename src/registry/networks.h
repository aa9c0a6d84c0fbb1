/* networks.h - which addresses adapters may be fetched from
 *
 * A source's URL is a stranger's, and what fetches it stands inside: without a limit it would ask the cloud's metadata
 * service, or a neighbour, for whoever names them (SSRF). So it connects to public addresses only, and to those
 * networks that the operator allows. It is the address of each connection that is judged, not the name in the URL:
 * neither a redirect nor a name server that changes its mind gets around that. */
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

/* "10.0.0.0/8", "fd00::/8", or one address. */
int ip_network_parse(ip_network *n, const char *text, err *e);

/* Whether a connection may be made: the address is public, or in one of the n allowed networks. */
bool networks_permit(const ip_network *allowed, int n, const struct sockaddr *a);

#endif
