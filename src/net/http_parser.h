/* http_parser.h - parser of HTTP/1.1 and 1.0 requests, strict as RFC 9112
 *
 * Pure functions, no sockets. A proxy in front of us parses the same bytes; if the two parsers disagree on where a
 * request ends, one client's bytes become another's request (request smuggling). So anything the grammar does not allow
 * is refused, also where the RFC would let us guess: a bare LF, a blank before a colon, a folded line, a second
 * Content-Length or Host, a length together with chunks, any transfer coding but chunked, anything behind a chunk's
 * size that is not an extension. */
#ifndef PUNICA_NET_HTTP_PARSER_H
#define PUNICA_NET_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define HTTP_MAX_HEAD (16u << 10) /* bytes */
#define HTTP_MAX_TARGET 8000u     /* bytes of the request target; RFC 9112 recommends at least 8000 for the line */
#define HTTP_MAX_FIELDS 100
#define HTTP_MAX_LINE 512          /* bytes of a chunk's first line, or of a trailer field */
#define HTTP_MAX_EXTRAS (8u << 10) /* bytes of all extensions and trailers of one body */

/* What is wrong with a request. */
typedef struct {
    int status;             /* HTTP status to answer with */
    const char *code, *why; /* static */
} http_fault;

typedef enum { HTTP_NO_BODY, HTTP_LENGTH, HTTP_CHUNKED } http_framing;

/* The head of a request. Strings point into text and are NUL-terminated. */
typedef struct {
    char *text;                        /* owned; NULL: there is none */
    const char *method, *path, *query; /* path: "*" or beginning with /, still encoded; query: "" if none */
    int minor;                         /* 0 for HTTP/1.0; 1 for HTTP/1.1 and higher minor versions */
    struct { uint16_t name, value; } field[HTTP_MAX_FIELDS]; /* offsets in text */
    int n_fields;
    http_framing framing;
    uint64_t length;       /* of a body with HTTP_LENGTH */
    bool keep_alive;       /* the connection may be used again */
    bool expects_continue; /* the client waits to hear that the body is wanted */
} http_head;

/* Offsets of the next byte to scan, of its line, and of the head (2 if an empty line stands before it);
 * zero-initialise. */
typedef struct { size_t at, line, skip; } http_finder;

/* Finds the end of the head that data begins with, scanning only bytes that are new since the last call. Returns the
 * head's length, including one empty line that may stand before it; 0: more must come; -1 with f set. */
int http_find_head(http_finder *s, const char *data, size_t n, http_fault *f);

/* Parses the head of n bytes that http_find_head() found with s. Free h with http_head_free(). -1 with f set; h is then
 * empty. */
int http_parse_head(http_head *h, const http_finder *s, const char *data, size_t n, http_fault *f);
void http_head_free(http_head *h); /* h is zero again */

/* Returns the value of the first field of this name (in any case), without blanks around it; borrowed from h. NULL:
 * there is none. */
const char *http_field_of(const http_head *h, const char *name);

/* Appends the path with %XX decoded. -1: it has a NUL. */
int http_decode_path(const char *path, buf *out);

/* A body, read in pieces. */
typedef enum { HTTP_BODY_MORE, HTTP_BODY_PIECE, HTTP_BODY_END, HTTP_BODY_BAD } http_body_step;

typedef struct {
    http_framing framing;
    uint64_t left; /* bytes of the body, or of this chunk, still to come */
    enum { CHUNK_LINE, CHUNK_DATA, CHUNK_AFTER, CHUNK_TRAILER } state;
    char line[HTTP_MAX_LINE];
    size_t n_line, extras;
} http_body;

void http_body_init(http_body *b, const http_head *h);

/* Parses data; *used: how many of its bytes are consumed. PIECE: the next bytes of the body are the *n_piece at *piece,
 * in data; MORE: all of data is consumed, and more must come; END: the body is complete; BAD: f says why. */
http_body_step http_body_next(http_body *b, const char *data, size_t n, size_t *used, const char **piece,
                              size_t *n_piece, http_fault *f);

#endif
