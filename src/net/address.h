/* address.h - where to listen or connect: "HOST:PORT", "[IPV6]:PORT", "unix:PATH", or "unix:@NAME" for a unix socket
 * without a file (Linux's abstract namespace) */
#ifndef PUNICA_NET_ADDRESS_H
#define PUNICA_NET_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"

typedef struct {
    bool is_unix;
    char host[256], port[8]; /* when not is_unix; host without brackets */
    struct sockaddr_un path; /* when is_unix; sun_path begins with NUL for @NAME */
    socklen_t path_len;      /* of all of it */
} address;

int address_parse(address *a, const char *text, err *e);

/* A socket address to bind or connect to; a host name is looked up, which may take its time. */
int address_resolve(const address *a, struct sockaddr_storage *out, socklen_t *len, err *e);

/* "1.2.3.4:80", "unix:PATH" or "unix:@NAME" into text, cut off where it is too long. len: of s. */
void address_print(const struct sockaddr *s, socklen_t len, char *text, size_t n);

/* Whether only this host can reach it. */
bool address_is_local(const address *a);

/* A number for the network of a printed address, of which one party may have all addresses: an IPv4 address, or the
 * first half of an IPv6 address. 0 for all others. */
uint64_t address_network(const char *printed);

#endif
