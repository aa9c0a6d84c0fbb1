/* address.c - see address.h */
#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_unix(address *a, const char *path, err *e)
{
    a->is_unix = true;
    a->path.sun_family = AF_UNIX;
    if (!*path || strlen(path) >= sizeof a->path.sun_path)
        return err_set(e, "\"unix:%s\": the path must have 1 to %zu bytes", path, sizeof a->path.sun_path - 1);
    strcpy(a->path.sun_path, path);
    a->path_len = sizeof a->path;
    if (*path == '@') { /* an abstract name is ended by its length, not by a NUL */
        a->path.sun_path[0] = '\0';
        a->path_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    }
    return 0;
}

static bool is_port(const char *text)
{
    char *end;
    long port = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && port <= 65535 && strlen(text) < sizeof((address *)0)->port;
}

int address_parse(address *a, const char *text, err *e)
{
    *a = (address){0};
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(a, text + 5, e);
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !is_port(colon + 1))
        return err_set(e, "\"%s\" is no address; write HOST:PORT or unix:PATH", text);
    bool brackets = *text == '[' && colon[-1] == ']';
    const char *host = text + brackets;
    size_t n = (size_t)(colon - host) - brackets;
    if (n == 0 || n >= sizeof a->host || (!brackets && memchr(host, ':', n)))
        return err_set(e, "\"%s\" is no address; write HOST:PORT, [IPV6]:PORT or unix:PATH", text);
    memcpy(a->host, host, n);
    strcpy(a->port, colon + 1);
    return 0;
}

int address_resolve(const address *a, struct sockaddr_storage *out, socklen_t *len, err *e)
{
    if (a->is_unix) {
        memcpy(out, &a->path, sizeof a->path);
        *len = a->path_len;
        return 0;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int status = getaddrinfo(a->host, a->port, &hints, &found);
    if (status)
        return err_set(e, "cannot find host %s: %s", a->host, gai_strerror(status));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

bool address_is_local(const address *a)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (a->is_unix || strcmp(a->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, a->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, a->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static void print_unix(const struct sockaddr_un *s, socklen_t len, char *text, size_t n)
{
    size_t max = len > offsetof(struct sockaddr_un, sun_path) ? len - offsetof(struct sockaddr_un, sun_path) : 0;
    bool has_no_file = max > 1 && s->sun_path[0] == '\0';
    const char *name = s->sun_path + has_no_file;
    snprintf(text, n, "unix:%s%.*s", has_no_file ? "@" : "", (int)strnlen(name, max - has_no_file), name);
}

void address_print(const struct sockaddr *s, socklen_t len, char *text, size_t n)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (s->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)s;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(text, n, "%s:%d", host, ntohs(in->sin_port));
    } else if (s->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)s;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(text, n, "[%s]:%d", host, ntohs(in->sin6_port));
    } else {
        print_unix((const void *)s, len, text, n);
    }
}

uint64_t address_network(const char *printed)
{
    address a;
    err e;
    struct in_addr v4;
    struct in6_addr v6;
    uint64_t half = 0;
    if (address_parse(&a, printed, &e) || a.is_unix)
        return 0;
    if (inet_pton(AF_INET, a.host, &v4) == 1)
        return UINT64_C(1) << 32 | ntohl(v4.s_addr);
    if (inet_pton(AF_INET6, a.host, &v6) != 1)
        return 0;
    memcpy(&half, &v6, sizeof half);
    if (IN6_IS_ADDR_V4MAPPED(&v6))
        memcpy(&half, &v6.s6_addr[8], sizeof half);
    return half;
}
