/* http_client.h - an HTTP client of blocking sockets that says exactly what a test wants said */
#ifndef PUNICA_TESTS_SUPPORT_HTTP_CLIENT_H
#define PUNICA_TESTS_SUPPORT_HTTP_CLIENT_H

#include <stdbool.h>

#include "base/buf.h"

/* Whom to ask from now on: "HOST:PORT" on this host. */
void http_client_set_server(const char *address);

/* A connection; receive_buffer: bytes of the socket's, 0: as usual. */
int http_client_dial(int receive_buffer);

/* Sends bytes as they are, until the server closes. */
void http_client_say(int fd, const char *text, size_t n);

/* Sends a request; headers: further lines, each with its end. */
void http_client_post(int fd, const char *path, const char *body, const char *headers);

/* Reads everything until the server closes, then closes, too. */
void http_client_read_all(int fd, buf *out);

/* The same of many connections at once: none of them is kept waiting. */
void http_client_read_many(const int *fd, buf *out, int n);

/* The answer to a POST, or a GET, on a connection of its own; owned by the caller. */
buf http_client_ask(const char *path, const char *body);
buf http_client_get(const char *path);

/* The status of an answer; -1: it has none. */
int http_client_status(const buf *answer);

/* Whether an answer has this text in it. */
bool http_client_has(const buf *answer, const char *text);

#endif
