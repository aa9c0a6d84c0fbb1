/* http_parser.h - requests of HTTP/1.1 and 1.0 from bytes, strictly as RFC 9112 writes them
 *
 * Pure functions, no sockets. Whoever stands in front of us reads the same bytes; where two readers can disagree on
 * where a request ends, one client's bytes become another's request. So whatever the grammar does not allow is refused,
 * also where the RFC would let us guess: a bare LF, a blank before a colon, a folded line, a second Content-Length or
 * Host, lengths together with chunks, any transfer coding but chunked, anything behind a chunk's size that is no
 * extension. */
#ifndef PUNICA_NET_HTTP_PARSER_H
#define PUNICA_NET_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define HTTP_MAX_HEAD (16u << 10) /* bytes */
#define HTTP_MAX_TARGET 8000u     /* bytes of what is asked for, at least so many says RFC 9112 */
#define HTTP_MAX_FIELDS 100
#define HTTP_MAX_LINE 512          /* bytes of a chunk's first line, or of a field behind the last */
#define HTTP_MAX_EXTRAS (8u << 10) /* bytes of all extensions and trailers of one body */

/* What is wrong with a request. */
typedef struct {
    int status;             /* of HTTP */
    const char *code, *why; /* static */
} http_fault;

typedef enum { HTTP_NO_BODY, HTTP_LENGTH, HTTP_CHUNKED } http_framing;

/* The head of a request. Strings lie in text and are NUL-terminated; fields are places in it. */
typedef struct {
    char *text;                        /* owned; NULL: there is none */
    const char *method, *path, *query; /* path: "*" or beginning with /, still encoded; query: "" if none */
    int minor;                         /* of the version, 1.minor; larger ones are 1 */
    struct { uint16_t name, value; } field[HTTP_MAX_FIELDS];
    int n_fields;
    http_framing framing;
    uint64_t length;       /* of a body with HTTP_LENGTH */
    bool keep_alive;       /* the connection may be used again */
    bool expects_continue; /* the client waits to hear that the body is wanted */
} http_head;

/* How far the bytes of a head have been looked at; zero-initialise. */
typedef struct { size_t at, line, skip; } http_finder;

/* Where the head that data begins with ends, looking only at bytes that were not there last time: its length, with one
 * empty line that may stand before it; 0: more must come; -1 with f set. */
int http_find_head(http_finder *s, const char *data, size_t n, http_fault *f);

/* The head of n bytes that http_find_head() found; s: what it left. -1 with f set; h is then empty. */
int http_parse_head(http_head *h, const http_finder *s, const char *data, size_t n, http_fault *f);
void http_head_free(http_head *h); /* back to zero */

/* The value of the first field of this name, without blanks around it; NULL: there is none. Names have no case. */
const char *http_field_of(const http_head *h, const char *name);

/* Whether a list such as Connection's has the token. */
bool http_list_has(const char *list, const char *token);

/* Append the path with %XX decoded. -1: there is a NUL in it. */
int http_decode_path(const char *path, buf *out);

/* A body in pieces. */
typedef enum { HTTP_BODY_MORE, HTTP_BODY_PIECE, HTTP_BODY_END, HTTP_BODY_BAD } http_body_step;

typedef struct {
    http_framing framing;
    uint64_t left; /* bytes of the body, or of this chunk */
    enum { CHUNK_LINE, CHUNK_DATA, CHUNK_AFTER, CHUNK_TRAILER } state;
    char line[HTTP_MAX_LINE];
    size_t n_line, extras;
} http_body;

void http_body_init(http_body *b, const http_head *h);

/* Look at data: PIECE: the next bytes of the body are the *n_piece at *piece, in data; MORE: all of data is used, and
 * more must come; END: the body is complete. *used: how many bytes of data are done with. BAD: f says why. */
http_body_step http_body_next(http_body *b, const char *data, size_t n, size_t *used, const char **piece,
                              size_t *n_piece, http_fault *f);

#endif
