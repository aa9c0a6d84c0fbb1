/* http_parser.c - see http_parser.h; numbers in parentheses are sections of RFC 9112 */
#include "net/http_parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static int bad(http_fault *f, int status, const char *code, const char *why)
{
    *f = (http_fault){.status = status, .code = code, .why = why};
    return -1;
}

static int bad_line(http_fault *f, const char *why)
{
    return bad(f, 400, "bad_request_line", why);
}

static int bad_header(http_fault *f, const char *why)
{
    return bad(f, 400, "bad_header", why);
}

static int bad_framing(http_fault *f, const char *why)
{
    return bad(f, 400, "bad_framing", why);
}

/* Characters, by RFC 9110 and 3986; independent of any locale. */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int hex_of(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_tchar(char c)
{
    return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Returns whether c may stand in a path or query. */
static bool is_target_char(char c)
{
    return is_alnum(c) || (c && strchr("-._~!$&'()*+,;=:@/?%", c));
}

static bool is_control(char c)
{
    return ((unsigned char)c < ' ' && c != '\t') || c == 127;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static size_t token_length(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && is_tchar(s[i]))
        i++;
    return i;
}

/* The head. */

static int too_long(const http_finder *s, http_fault *f)
{
    if (s->line == s->skip)
        return bad(f, 414, "uri_too_long", "the request line is too long");
    return bad(f, 431, "headers_too_large", "the header fields are too large");
}

/* Ends a line. Returns whether it is the head's last. */
static bool end_line(http_finder *s)
{
    bool empty = s->at == s->line + 1;
    s->line = s->at + 1;
    if (!empty)
        return false;
    if (s->at != 1)
        return true;
    s->skip = 2; /* one empty line before a request is ignored (2.2) */
    return false;
}

int http_find_head(http_finder *s, const char *data, size_t n, http_fault *f)
{
    for (; s->at < n; s->at++) {
        char c = data[s->at];
        bool after_cr = s->at > 0 && data[s->at - 1] == '\r';
        if (after_cr != (c == '\n'))
            return bad(f, 400, "bad_line_end", "a line of the head does not end in CR LF");
        if (c != '\r' && c != '\n' && is_control(c))
            return bad_header(f, "there is a control character in the head");
        if (s->at >= HTTP_MAX_HEAD || (s->line == s->skip && s->at > HTTP_MAX_TARGET + 64))
            return too_long(s, f);
        if (c == '\n' && end_line(s)) {
            if (s->at + 1 == s->skip + 2)
                return bad_line(f, "there is no request line");
            return (int)++s->at;
        }
    }
    return 0;
}

/* Cuts a word off the request line, whose words are separated by single blanks. NULL: there is none. */
static char *cut_word(char **line)
{
    char *word = *line, *blank = word ? strchr(word, ' ') : NULL;
    *line = blank ? blank + 1 : NULL;
    if (blank)
        *blank = '\0';
    return word && *word ? word : NULL;
}

static int parse_version(http_head *h, const char *v, http_fault *f)
{
    if (!v || strncmp(v, "HTTP/", 5) != 0 || !is_digit(v[5]) || v[6] != '.' || !is_digit(v[7]) || v[8])
        return bad_line(f, "the request line does not end in an HTTP version");
    if (v[5] != '1')
        return bad(f, 505, "http_version_not_supported", "only HTTP/1.1 and HTTP/1.0 are spoken here");
    h->minor = v[7] == '0' ? 0 : 1;
    return 0;
}

static bool is_target(const char *t)
{
    for (; *t; t++)
        if (!is_target_char(*t) || (*t == '%' && (hex_of(t[1]) < 0 || hex_of(t[2]) < 0)))
            return false;
    return true;
}

/* Returns the path in "http://host/path" (3.2.2), "/" if it is empty; NULL: there is no host. */
static char *path_of_absolute(char *target)
{
    char *host = strchr(target, ':') + 3, *path = host + strcspn(host, "/?");
    if (path == host)
        return NULL;
    if (*path == '/')
        return path;
    path[-1] = '/'; /* overwrites the end of the host, which is not needed */
    return path - 1;
}

static int parse_target(http_head *h, char *t, http_fault *f)
{
    if (!t)
        return bad_line(f, "the request line has no target");
    if (strlen(t) > HTTP_MAX_TARGET)
        return bad(f, 414, "uri_too_long", "what is asked for is too long");
    if (strcmp(h->method, "CONNECT") == 0)
        return bad(f, 501, "method_not_implemented", "this is no proxy");
    bool star = strcmp(t, "*") == 0 && strcmp(h->method, "OPTIONS") == 0;
    bool absolute = strncasecmp(t, "http://", 7) == 0 || strncasecmp(t, "https://", 8) == 0;
    if (absolute)
        t = path_of_absolute(t);
    if (!t || !(star || *t == '/') || !is_target(t))
        return bad_line(f, "what is asked for is no path");
    char *query = strchr(t, '?');
    h->query = query ? query + 1 : "";
    if (query)
        *query = '\0';
    h->path = t;
    return 0;
}

static int parse_request_line(http_head *h, char *line, http_fault *f)
{
    char *method = cut_word(&line), *target = cut_word(&line), *version = line;
    if (!method || token_length(method, strlen(method)) != strlen(method))
        return bad_line(f, "the request line does not begin with a method");
    h->method = method;
    if (parse_version(h, version, f))
        return -1;
    return parse_target(h, target, f);
}

static int parse_field(http_head *h, char *line, http_fault *f)
{
    if (is_blank(*line))
        return bad_header(f, "a header field is folded over two lines");
    size_t n = token_length(line, strlen(line));
    if (n == 0 || line[n] != ':')
        return bad_header(f, "a header field's name is not followed by a colon");
    if (h->n_fields == HTTP_MAX_FIELDS)
        return bad(f, 431, "headers_too_large", "there are too many header fields");
    char *value = line + n + 1, *end = value + strlen(value);
    while (is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    line[n] = *end = '\0';
    h->field[h->n_fields].name = (uint16_t)(line - h->text);
    h->field[h->n_fields++].value = (uint16_t)(value - h->text);
    return 0;
}

/* Returns the line at *at without its CR LF, and moves *at behind it. */
static char *cut_line(char **at)
{
    char *line = *at, *end = strstr(line, "\r\n");
    *end = '\0';
    *at = end + 2;
    return line;
}

/* Counts the fields of a name; *value: the value of the first. */
static int count_fields(const http_head *h, const char *name, const char **value)
{
    int n = 0;
    for (int i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->text + h->field[i].name, name) == 0 && n++ == 0)
            *value = h->text + h->field[i].value;
    return n;
}

/* Checks for host [":" port], where host is a name, an IPv4 address, or an IPv6 address in brackets. */
static bool is_host(const char *s)
{
    size_t n = *s == '[' ? strspn(s, "[0123456789abcdefABCDEF:.") : 0;
    if (n > 0 && s[n++] != ']')
        return false;
    for (; n == 0 && *s && *s != ':'; s++)
        if (!is_target_char(*s) || strchr("/?@", *s))
            return false;
    s += n;
    return !*s || (*s == ':' && strspn(s + 1, "0123456789") == strlen(s + 1));
}

static int check_host(const http_head *h, http_fault *f)
{
    const char *host = NULL;
    int n = count_fields(h, "Host", &host);
    if (n > 1)
        return bad_header(f, "there is more than one Host");
    if (n == 0 && h->minor >= 1)
        return bad_header(f, "there is no Host");
    return !host || is_host(host) ? 0 : bad_header(f, "Host is no host");
}

/* Parses digits only; saturates at UINT64_MAX. */
static int parse_length(const char *s, uint64_t *n, http_fault *f)
{
    *n = 0;
    if (!*s)
        return bad_framing(f, "Content-Length is empty");
    for (; *s; s++) {
        if (!is_digit(*s))
            return bad_framing(f, "Content-Length is no number");
        uint64_t digit = (uint64_t)(*s - '0');
        *n = *n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *n * 10 + digit;
    }
    return 0;
}

/* Finds out how the end of the body is told (6.3). */
static int find_framing(http_head *h, http_fault *f)
{
    const char *length = NULL, *coding = NULL;
    int n_lengths = count_fields(h, "Content-Length", &length),
        n_codings = count_fields(h, "Transfer-Encoding", &coding);
    if (n_lengths && n_codings)
        return bad_framing(f, "there are both Content-Length and Transfer-Encoding");
    if (n_lengths > 1)
        return bad_framing(f, "there is more than one Content-Length");
    if (n_codings && h->minor == 0)
        return bad_framing(f, "HTTP/1.0 has no Transfer-Encoding");
    if (n_codings > 1)
        return bad_framing(f, "there is more than one Transfer-Encoding");
    if (n_codings && strcasecmp(coding, "chunked") != 0)
        return bad(f, 501, "unknown_transfer_encoding", "only chunked is known as Transfer-Encoding");
    h->framing = n_codings ? HTTP_CHUNKED : n_lengths ? HTTP_LENGTH : HTTP_NO_BODY;
    return n_lengths ? parse_length(length, &h->length, f) : 0;
}

/* Returns whether a comma-separated list has the token. */
static bool list_has(const char *list, const char *token)
{
    for (size_t n; *list; list += n) {
        n = strcspn(list, ",");
        const char *from = list, *to = list + n;
        while (from < to && is_blank(*from))
            from++;
        while (to > from && is_blank(to[-1]))
            to--;
        if ((size_t)(to - from) == strlen(token) && strncasecmp(from, token, strlen(token)) == 0)
            return true;
        n += list[n] == ',';
    }
    return false;
}

/* Returns whether any Connection field has the token. */
static bool connection_has(const http_head *h, const char *token)
{
    for (int i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->text + h->field[i].name, "Connection") == 0 && list_has(h->text + h->field[i].value, token))
            return true;
    return false;
}

static int find_wishes(http_head *h, http_fault *f)
{
    const char *expect = NULL;
    h->keep_alive = !connection_has(h, "close") && (h->minor >= 1 || connection_has(h, "keep-alive"));
    if (!count_fields(h, "Expect", &expect) || h->minor == 0)
        return 0;
    if (strcasecmp(expect, "100-continue") != 0)
        return bad(f, 417, "expectation_failed", "nothing but 100-continue can be expected");
    h->expects_continue = h->framing != HTTP_NO_BODY;
    return 0;
}

int http_parse_head(http_head *h, const http_finder *s, const char *data, size_t n, http_fault *f)
{
    *h = (http_head){.text = xstrndup(data + s->skip, n - s->skip)};
    char *at = h->text, *end = at + (n - s->skip) - 2;
    int rc = parse_request_line(h, cut_line(&at), f);
    while (rc == 0 && at < end)
        rc = parse_field(h, cut_line(&at), f);
    if (rc == 0 && (check_host(h, f) || find_framing(h, f) || find_wishes(h, f)))
        rc = -1;
    if (rc)
        http_head_free(h);
    return rc;
}

void http_head_free(http_head *h)
{
    free(h->text);
    *h = (http_head){0};
}

const char *http_field_of(const http_head *h, const char *name)
{
    const char *value = NULL;
    count_fields(h, name, &value);
    return value;
}

int http_decode_path(const char *path, buf *out)
{
    for (; *path; path++) {
        bool coded = *path == '%' && hex_of(path[1]) >= 0 && hex_of(path[2]) >= 0;
        char c = coded ? (char)(hex_of(path[1]) << 4 | hex_of(path[2])) : *path;
        if (!c)
            return -1;
        buf_add_char(out, c);
        path += coded ? 2 : 0;
    }
    return 0;
}

/* The body. */

void http_body_init(http_body *b, const http_head *h)
{
    *b = (http_body){.framing = h->framing, .left = h->length};
}

/* Chunk extensions (7.1.1), which are ignored: *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ). */
static const char *skip_blanks(const char *s)
{
    return s + strspn(s, " \t");
}

static const char *skip_quoted(const char *s)
{
    for (s++; *s && *s != '"'; s++)
        if (*s == '\\' && !*++s)
            return NULL;
    return *s ? s + 1 : NULL;
}

static bool is_extensions(const char *s)
{
    while (*s) {
        s = skip_blanks(s);
        if (*s++ != ';')
            return false;
        s = skip_blanks(s);
        size_t n = token_length(s, strlen(s));
        if (n == 0)
            return false;
        s += n;
        if (*skip_blanks(s) != '=')
            continue;
        s = skip_blanks(skip_blanks(s) + 1);
        n = token_length(s, strlen(s));
        s = *s == '"' ? skip_quoted(s) : n ? s + n : NULL;
        if (!s)
            return false;
    }
    return true;
}

static int parse_chunk_line(http_body *b, http_fault *f)
{
    const char *s = b->line;
    int n = 0;
    b->left = 0;
    for (; hex_of(*s) >= 0; s++, n++)
        b->left = b->left << 4 | (uint64_t)hex_of(*s);
    if (n == 0 || n > 15)
        return bad_framing(f, "a chunk does not begin with its size");
    if (!is_extensions(s))
        return bad_framing(f, "what follows a chunk's size is no extension");
    b->extras += strlen(s);
    b->state = b->left ? CHUNK_DATA : CHUNK_TRAILER;
    return 0;
}

static int check_trailer(http_body *b, http_fault *f)
{
    size_t n = token_length(b->line, b->n_line);
    b->extras += b->n_line;
    return n > 0 && b->line[n] == ':' ? 0 : bad_framing(f, "what follows the last chunk is no header field");
}

/* Adds a character to b->line. 1: the line is complete, without its CR LF; 0: it goes on; -1 with f set. */
static int add_to_line(http_body *b, char c, http_fault *f)
{
    bool after_cr = b->n_line > 0 && b->line[b->n_line - 1] == '\r';
    if (after_cr != (c == '\n') || (c != '\r' && c != '\n' && is_control(c)))
        return bad_framing(f, "a line between chunks does not end in CR LF");
    if (c == '\n') {
        b->line[--b->n_line] = '\0';
        return 1;
    }
    if (b->n_line == sizeof b->line - 1 || b->extras > HTTP_MAX_EXTRAS)
        return bad_framing(f, "there is too much between chunks");
    b->line[b->n_line++] = c;
    return 0;
}

/* Handles a complete line. 1: it ends the body; 0: the body goes on; -1 with f set. */
static int handle_line(http_body *b, http_fault *f)
{
    bool empty = b->n_line == 0;
    int rc = 0;
    if (b->state == CHUNK_LINE)
        rc = parse_chunk_line(b, f);
    else if (b->state == CHUNK_TRAILER)
        rc = empty ? 1 : check_trailer(b, f);
    else if (empty)
        b->state = CHUNK_LINE;
    else
        rc = bad_framing(f, "a chunk is longer than its size");
    b->n_line = 0;
    return rc;
}

/* Reads the lines between the chunks of a body. */
static http_body_step read_lines(http_body *b, const char *data, size_t n, size_t *used, http_fault *f)
{
    while (*used < n && b->state != CHUNK_DATA) {
        int rc = add_to_line(b, data[(*used)++], f);
        if (rc > 0)
            rc = handle_line(b, f);
        else if (rc == 0 && b->state == CHUNK_AFTER && b->line[0] != '\r')
            rc = bad_framing(f, "a chunk is longer than its size");
        if (rc)
            return rc < 0 ? HTTP_BODY_BAD : HTTP_BODY_END;
    }
    return HTTP_BODY_MORE;
}

http_body_step http_body_next(http_body *b, const char *data, size_t n, size_t *used, const char **piece,
                              size_t *n_piece, http_fault *f)
{
    *used = 0;
    if (b->framing == HTTP_NO_BODY || (b->framing == HTTP_LENGTH && b->left == 0))
        return HTTP_BODY_END;
    if (b->framing == HTTP_CHUNKED) {
        http_body_step step = read_lines(b, data, n, used, f);
        if (step != HTTP_BODY_MORE)
            return step;
    }
    if (*used == n)
        return HTTP_BODY_MORE;
    *piece = data + *used;
    *n_piece = n - *used < b->left ? n - *used : (size_t)b->left;
    *used += *n_piece;
    b->left -= *n_piece;
    if (b->left == 0 && b->framing == HTTP_CHUNKED)
        b->state = CHUNK_AFTER;
    return HTTP_BODY_PIECE;
}
