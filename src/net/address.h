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
    socklen_t path_len;      /* size of path, as bind() wants it */
} address;

int address_parse(address *a, const char *text, err *e);

/* Makes a socket address to bind or connect to; a host name is looked up, which may block. */
int address_resolve(const address *a, struct sockaddr_storage *out, socklen_t *len, err *e);

/* Writes "1.2.3.4:80", "unix:PATH" or "unix:@NAME" into text, cut off after n - 1 bytes. len: size of s. */
void address_print(const struct sockaddr *s, socklen_t len, char *text, size_t n);

/* Returns whether only this host can reach the address. */
bool address_is_local(const address *a);

/* Returns a number for the network of a printed address, all of which one party may own: an IPv4 address, or the first
 * half (/64) of an IPv6 address. 0 for anything else. */
uint64_t address_network(const char *printed);

#endif
