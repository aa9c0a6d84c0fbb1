/* networks.c - see networks.h */
#include "registry/networks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Networks of IPv4 without public hosts (IANA's registry of special-purpose addresses). */
static const char *const special_v4[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
};

/* The same within 2000::/3; all IPv6 outside of that is special. 2002::/16 (6to4) and Teredo in 2001::/23 carry IPv4
 * addresses. */
static const char *const special_v6[] = {"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"};

static const unsigned char v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* Parses an address into 16 bytes; *width: 32 bits for IPv4, else 128. -1: it is not an address. */
static int parse_address(const char *text, unsigned char out[16], int *width)
{
    *width = 128;
    if (inet_pton(AF_INET6, text, out) == 1)
        return 0;
    *width = 32;
    memcpy(out, v4_prefix, sizeof v4_prefix);
    return inet_pton(AF_INET, text, out + 12) == 1 ? 0 : -1;
}

int ip_network_parse(ip_network *n, const char *text, err *e)
{
    char host[INET6_ADDRSTRLEN + 1];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    int width;
    char *end = NULL;
    snprintf(host, sizeof host, "%.*s", (int)(len < sizeof host ? len : sizeof host - 1), text);
    if (len >= sizeof host || parse_address(host, n->address, &width))
        return err_set(e, "\"%s\" is not a network such as 10.0.0.0/8", text);
    long bits = slash ? strtol(slash + 1, &end, 10) : width;
    if (slash && (end == slash + 1 || *end || slash[1] < '0' || slash[1] > '9' || bits > width))
        return err_set(e, "\"%s\": a network has 0 to %d bits", text, width);
    n->bits = (int)bits + (width == 32 ? 96 : 0);
    return 0;
}

static bool is_in(const ip_network *n, const unsigned char address[16])
{
    int whole = n->bits / 8, rest = n->bits % 8;
    if (memcmp(n->address, address, (size_t)whole) != 0)
        return false;
    return rest == 0 || (n->address[whole] ^ address[whole]) >> (8 - rest) == 0;
}

static bool is_in_any(const char *const *list, int n, const unsigned char address[16])
{
    for (int i = 0; i < n; i++) {
        ip_network one;
        err e;
        CHECK(ip_network_parse(&one, list[i], &e) == 0);
        if (is_in(&one, address))
            return true;
    }
    return false;
}

static bool is_public(const unsigned char address[16])
{
    if (memcmp(address, v4_prefix, sizeof v4_prefix) == 0)
        return !is_in_any(special_v4, sizeof special_v4 / sizeof special_v4[0], address);
    return address[0] >> 5 == 1 && !is_in_any(special_v6, sizeof special_v6 / sizeof special_v6[0], address);
}

bool networks_permit(const ip_network *allowed, int n, const struct sockaddr *a)
{
    unsigned char address[16];
    if (a->sa_family == AF_INET6) {
        memcpy(address, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
    } else if (a->sa_family == AF_INET) {
        memcpy(address, v4_prefix, sizeof v4_prefix);
        memcpy(address + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
    } else {
        return false;
    }
    for (int i = 0; i < n; i++)
        if (is_in(&allowed[i], address))
            return true;
    return is_public(address);
}
