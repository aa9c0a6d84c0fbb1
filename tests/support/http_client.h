/* http_client.h - an HTTP client of blocking sockets that sends exactly what a test wants sent */
#ifndef PUNICA_TESTS_SUPPORT_HTTP_CLIENT_H
#define PUNICA_TESTS_SUPPORT_HTTP_CLIENT_H

#include <stdbool.h>

#include "base/buf.h"

/* Sets the server for all that follows: "HOST:PORT" on this host. */
void http_client_set_server(const char *address);

/* Opens a connection, on which a read fails after 20 s. receive_buffer: bytes of the socket's, 0: the default. */
int http_client_dial(int receive_buffer);

/* Sends bytes as they are; stops if the server closes. */
void http_client_say(int fd, const char *text, size_t n);

/* Sends a request; headers: further lines, each with its end. */
void http_client_post(int fd, const char *path, const char *body, const char *headers);

/* Adds to out everything until the server closes, then closes, too. */
void http_client_read_all(int fd, buf *out);

/* The same for n connections at once: none of them is kept waiting. out: [n] */
void http_client_read_many(const int *fd, buf *out, int n);

/* Return the answer to a POST, or a GET, on a connection of its own; the caller owns it. */
buf http_client_ask(const char *path, const char *body);
buf http_client_get(const char *path);

/* Returns the status of an answer; -1: it has none. */
int http_client_status(const buf *answer);

/* Returns whether an answer contains this text. */
bool http_client_has(const buf *answer, const char *text);

#endif
