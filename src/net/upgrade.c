/* upgrade.c - see upgrade.h */
#include "net/upgrade.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PATH "/punica/link"

static bool may_begin(const char *data, size_t n, const char *with)
{
    size_t len = strlen(with);
    return memcmp(data, with, n < len ? n : len) == 0;
}

int upgrade_head_length(const char *data, size_t n, err *e)
{
    if (!may_begin(data, n, "GET " PATH) && !may_begin(data, n, "HTTP/1.1 "))
        return err_set(e, "not a request for " PATH " (is TLS on, on one side only?)");
    size_t seen = n < UPGRADE_MAX_HEAD ? n : UPGRADE_MAX_HEAD;
    const char *end = memmem(data, seen, "\r\n\r\n", 4);
    if (end)
        return (int)(end - data) + 4;
    return n < UPGRADE_MAX_HEAD ? 0 : err_set(e, "an HTTP head of more than %d bytes", UPGRADE_MAX_HEAD);
}

void upgrade_make_key(char key[UPGRADE_KEY_SIZE], const uint8_t random[UPGRADE_KEY_BYTES])
{
    EVP_EncodeBlock((unsigned char *)key, random, UPGRADE_KEY_BYTES);
}

/* base64(sha1(key + the GUID of RFC 6455)) */
static void accept_of(const char *key, char out[UPGRADE_ACCEPT_SIZE])
{
    char text[UPGRADE_KEY_SIZE + 40];
    int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1((const unsigned char *)text, (size_t)n, digest);
    EVP_EncodeBlock((unsigned char *)out, digest, sizeof digest);
}

void upgrade_write_request(buf *out, const char *host, const char *key)
{
    buf_printf(out,
               "GET " PATH " HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n",
               host, key);
}

void upgrade_write_response(buf *out, const char *key)
{
    char accept[UPGRADE_ACCEPT_SIZE];
    accept_of(key, accept);
    buf_printf(out,
               "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               "Sec-WebSocket-Accept: %s\r\n\r\n",
               accept);
}

void upgrade_write_refusal(buf *out, const char *why)
{
    buf_printf(
        out,
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s\n",
        strlen(why) + 1, why);
}

/* Returns the end of the line, which every line of a head has. */
static const char *line_end(const char *line, const char *end)
{
    return memmem(line, (size_t)(end - line), "\r\n", 2);
}

/* Returns whether the line is a field of this name; its value is then without the blanks around it. */
static bool is_field(const char *line, const char *to, const char *name, const char **value, size_t *len)
{
    size_t name_len = strlen(name);
    if ((size_t)(to - line) <= name_len || strncasecmp(line, name, name_len) != 0 || line[name_len] != ':')
        return false;
    const char *from = line + name_len + 1;
    while (from < to && *from == ' ')
        from++;
    while (to > from && to[-1] == ' ')
        to--;
    *value = from;
    *len = (size_t)(to - from);
    return true;
}

/* Finds the value of the first field of this name in a head that ends in an empty line; false: there is none. */
static bool find_field(const char *head, size_t n, const char *name, const char **value, size_t *len)
{
    const char *end = head + n;
    for (const char *line = head, *to; line < end && (to = line_end(line, end)); line = to + 2)
        if (is_field(line, to, name, value, len))
            return true;
    return false;
}

static bool field_is(const char *head, size_t n, const char *name, const char *expected)
{
    const char *value;
    size_t len;
    return find_field(head, n, name, &value, &len) && len == strlen(expected) && strncasecmp(value, expected, len) == 0;
}

static bool starts_with(const char *head, size_t n, const char *line)
{
    return n >= strlen(line) && memcmp(head, line, strlen(line)) == 0;
}

int upgrade_read_request(const char *head, size_t n, char key[UPGRADE_KEY_SIZE], err *e)
{
    if (!starts_with(head, n, "GET " PATH " HTTP/1.1\r\n"))
        return err_set(e, "not a request for " PATH " by HTTP/1.1");
    if (!field_is(head, n, "Upgrade", "websocket") || !field_is(head, n, "Connection", "Upgrade") ||
        !field_is(head, n, "Sec-WebSocket-Version", "13"))
        return err_set(e, "not a WebSocket request of version 13");
    const char *value;
    size_t len;
    if (!find_field(head, n, "Sec-WebSocket-Key", &value, &len) || len != UPGRADE_KEY_SIZE - 1)
        return err_set(e, "a WebSocket request without a key of %d characters", UPGRADE_KEY_SIZE - 1);
    memcpy(key, value, len);
    key[len] = '\0';
    return memchr(key, '\0', len) ? err_set(e, "a WebSocket key with NUL characters") : 0;
}

int upgrade_check_response(const char *head, size_t n, const char *key, err *e)
{
    const char *value, *to = line_end(head, head + n);
    size_t len;
    char expected[UPGRADE_ACCEPT_SIZE];
    accept_of(key, expected);
    if (!starts_with(head, n, "HTTP/1.1 101 "))
        return err_set(e, "it answers \"%.*s\": no scheduler?", to ? (int)(to - head) : 0, head);
    if (!field_is(head, n, "Upgrade", "websocket") || !field_is(head, n, "Connection", "Upgrade"))
        return err_set(e, "its answer does not upgrade to WebSocket");
    if (!find_field(head, n, "Sec-WebSocket-Accept", &value, &len) || len != strlen(expected) ||
        memcmp(value, expected, len) != 0)
        return err_set(e, "its Sec-WebSocket-Accept does not fit our key");
    return 0;
}
