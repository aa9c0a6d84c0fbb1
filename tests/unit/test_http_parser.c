/* test_http_parser.c - requests strictly as RFC 9112 writes them: every lenient form that lets two readers disagree is
 * refused, whole and byte by byte */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/http_parser.h"
#include "support/test.h"

/* What becomes of bytes that come `step` at a time. */
typedef struct {
    int status;
    const char *code;
    http_head head;
    buf body;
    size_t used;
    bool complete;
} outcome;

static void read_body(outcome *o, const char *bytes, size_t n, size_t step)
{
    http_body b;
    http_fault f;
    size_t have = o->used;
    http_body_init(&b, &o->head);
    for (;;) {
        size_t used, n_piece;
        const char *piece;
        http_body_step s = http_body_next(&b, bytes + o->used, have - o->used, &used, &piece, &n_piece, &f);
        o->used += used;
        if (s == HTTP_BODY_PIECE)
            buf_add(&o->body, piece, n_piece);
        if (s == HTTP_BODY_BAD) {
            o->status = f.status;
            o->code = f.code;
        }
        o->complete = s == HTTP_BODY_END;
        if (s == HTTP_BODY_BAD || s == HTTP_BODY_END || (s == HTTP_BODY_MORE && have == n))
            return;
        if (s == HTTP_BODY_MORE)
            have = have + step < n ? have + step : n;
    }
}

static outcome read_request(const char *bytes, size_t n, size_t step)
{
    outcome o = {.status = 200, .code = ""};
    http_finder s = {0};
    http_fault f;
    int at = 0;
    for (size_t have = step < n ? step : n;; have = have + step < n ? have + step : n) {
        at = http_find_head(&s, bytes, have, &f);
        if (at != 0 || have == n)
            break;
    }
    if (at < 0 || (at > 0 && http_parse_head(&o.head, &s, bytes, (size_t)at, &f))) {
        o.status = f.status;
        o.code = f.code;
        return o;
    }
    o.used = (size_t)at;
    if (at > 0)
        read_body(&o, bytes, n, step);
    return o;
}

static void outcome_free(outcome *o)
{
    http_head_free(&o->head);
    buf_free(&o->body);
}

/* A row's bytes may contain NUL: n is their number. */
#define BYTES(text) text, sizeof text - 1
#define GET "GET / HTTP/1.1\r\nHost: x\r\n"
#define POST "POST / HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct {
    const char *bytes;
    size_t n;
    int status;
    const char *code;
} refused[] = {
    /* lengths */
    {BYTES(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length : 5\r\n\r\nhello"), 400, "bad_header"},
    {BYTES(POST "Content-Length\t: 5\r\n\r\nhello"), 400, "bad_header"},
    {BYTES(POST "Content-Length: +5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: -5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 5, 5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 0x5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 5 5\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 5a\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: 5.0\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length:\r\n\r\nhello"), 400, "bad_framing"},
    {BYTES(POST "Content-Length: \"5\"\r\n\r\nhello"), 400, "bad_framing"},
    /* both, and transfer codings */
    {BYTES(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES(POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES(POST "Transfer-Encoding: identity\r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES(POST "Transfer-Encoding:\vchunked\r\n\r\n0\r\n\r\n"), 400, "bad_header"},
    {BYTES(POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES(POST "Transfer-Encoding: \r\n\r\n"), 501, "unknown_transfer_encoding"},
    {BYTES("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, "bad_framing"},
    /* chunks */
    {BYTES(CHUNKED "0x26\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "26 junk\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5 \r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED " 5\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "+5\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "-5\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\rhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5;x\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5;\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5;x=\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5;x=\"y\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5;x y\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "ffffffffffffffff\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "10000000000000005\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhello0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhello\n0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhelloXX0\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhello\r\n0\r\n\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhello\r\n0\r\nno colon\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhello\r\n0\r\nX : y\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\r\nhello\r\n0\r\n folded\r\n\r\n"), 400, "bad_framing"},
    {BYTES(CHUNKED "5\0\r\nhello\r\n0\r\n\r\n"), 400, "bad_framing"},
    /* lines */
    {BYTES("GET / HTTP/1.1\nHost: x\n\n"), 400, "bad_line_end"},
    {BYTES("GET / HTTP/1.1\r\nHost: x\n\r\n"), 400, "bad_line_end"},
    {BYTES("GET / HTTP/1.1\r\nHost: x\r\n\n"), 400, "bad_line_end"},
    {BYTES("GET / HTTP/1.1\rHost: x\r\n\r\n"), 400, "bad_line_end"},
    {BYTES("GET / HTTP/1.1\r\r\nHost: x\r\n\r\n"), 400, "bad_line_end"},
    {BYTES(GET "X: a\rb\r\n\r\n"), 400, "bad_line_end"},
    {BYTES(GET "X: a\0b\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "X\0Y: a\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "X: a\x01\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "X: a\x7f\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "X: a\r\n folded\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "X: a\r\n\tfolded\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\n Host: x\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "no colon\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET ": no name\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "a b: c\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "a(b: c\r\n\r\n"), 400, "bad_header"},
    {BYTES(GET "\xc3\xa9: c\r\n\r\n"), 400, "bad_header"},
    {BYTES("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_line_end"},
    {BYTES("\x16\x03\x01\x02\x00"), 400, "bad_header"},
    /* hosts */
    {BYTES("GET / HTTP/1.1\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: x y\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: x:80a\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: x/y\r\n\r\n"), 400, "bad_header"},
    {BYTES("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"), 400, "bad_header"},
    /* request lines */
    {BYTES("GET  / HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /  HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET / HTTP/1.1 \r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES(" GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET\t/\tHTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET / http/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET / HTTP/1.1x\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET / HTTP/11\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), 505, "http_version_not_supported"},
    {BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, "http_version_not_supported"},
    {BYTES("G(T / HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /a\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /a\"b HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET /a%4 HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET a HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET * HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET http:// HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("GET ftp://x/a HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request_line"},
    {BYTES("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"), 501, "method_not_implemented"},
    {BYTES(POST "Expect: miracles\r\nContent-Length: 5\r\n\r\nhello"), 417, "expectation_failed"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        for (size_t step = 1; step < 100; step += 32) {
            outcome o = read_request(refused[i].bytes, refused[i].n, step);
            if (o.status != refused[i].status || strcmp(o.code, refused[i].code) != 0)
                fail_msg("%s: %d %s, not %d %s", refused[i].bytes, o.status, o.code, refused[i].status,
                         refused[i].code);
            outcome_free(&o);
        }
}

/* What is behind a request is the next one's: NEXT must be left. */
#define NEXT "GET"

static const struct {
    const char *bytes;
    size_t n;
    const char *path, *query, *body;
    bool keep_alive, expects;
} taken[] = {
    {BYTES(GET "\r\n" NEXT), "/", "", "", true, false},
    {BYTES("\r\n" GET "\r\n" NEXT), "/", "", "", true, false},
    {BYTES("GET /a/b%20c?d=e?f HTTP/1.1\r\nhOST:\t x:80 \t\r\n\r\n" NEXT), "/a/b%20c", "d=e?f", "", true, false},
    {BYTES("GET /? HTTP/1.1\r\nHost:\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES("GET http://x/a?b HTTP/1.1\r\nHost: x\r\n\r\n" NEXT), "/a", "b", "", true, false},
    {BYTES("GET HTTP://x HTTP/1.1\r\nHost: x\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES("GET https://x?q HTTP/1.1\r\nHost: x\r\n\r\n" NEXT), "/", "q", "", true, false},
    {BYTES("OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n" NEXT), "*", "", "", true, false},
    {BYTES("GET / HTTP/1.0\r\n\r\n" NEXT), "/", "", "", false, false},
    {BYTES("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES("GET / HTTP/1.7\r\nHost: x\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES(GET "Connection: upgrade , CLOSE\r\n\r\n" NEXT), "/", "", "", false, false},
    {BYTES(GET "Connection: x\r\nConnection: close\r\n\r\n" NEXT), "/", "", "", false, false},
    {BYTES(GET "Connection: closer\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES(GET "X: \xc3\xa9 \t y\r\nEmpty:\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES(POST "Content-Length: 5\r\n\r\nhello" NEXT), "/", "", "hello", true, false},
    {BYTES(POST "Content-Length: 0\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES(POST "Content-Length: 000005 \r\n\r\nhello" NEXT), "/", "", "hello", true, false},
    {BYTES(POST "Content-Length: 5\r\nExpect: 100-Continue\r\n\r\nhello" NEXT), "/", "", "hello", true, true},
    {BYTES("POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello" NEXT), "/", "", "hello", false,
     false},
    {BYTES(GET "Expect: 100-continue\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES(CHUNKED "0\r\n\r\n" NEXT), "/", "", "", true, false},
    {BYTES(POST "transfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n000\r\n\r\n" NEXT), "/", "", "hello", true, false},
    {BYTES(CHUNKED "1\r\nh\r\n00004\r\nello\r\n0\r\nX: y\r\nZ:\r\n\r\n" NEXT), "/", "", "hello", true, false},
    {BYTES(CHUNKED "5;a;b=c ; d = \"e;\\\"\" ;f\r\nhello\r\n0;x\r\n\r\n" NEXT), "/", "", "hello", true, false},
    {BYTES(CHUNKED "A\r\n0\r\n\r\nhello\r\n0\r\n\r\n" NEXT), "/", "", "0\r\n\r\nhello", true, false},
};

static void test_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        for (size_t step = 1; step < 200; step += 3) {
            outcome o = read_request(taken[i].bytes, taken[i].n, step);
            if (o.status != 200 || !o.complete || taken[i].n - o.used != strlen(NEXT))
                fail_msg("%s: %d %s, %zu bytes left", taken[i].bytes, o.status, o.code, taken[i].n - o.used);
            assert_string_equal(o.head.path, taken[i].path);
            assert_string_equal(o.head.query, taken[i].query);
            assert_string_equal(o.body.data ? o.body.data : "", taken[i].body);
            assert_int_equal(o.head.keep_alive, taken[i].keep_alive);
            assert_int_equal(o.head.expects_continue, taken[i].expects);
            outcome_free(&o);
        }
}

/* So many bytes of a field, or of a path, or so many fields. */
static outcome read_long(size_t n_path, size_t n_value, int n_fields)
{
    buf b = {0};
    buf_add_str(&b, "GET /");
    for (size_t i = 1; i < n_path; i++)
        buf_add_char(&b, 'a');
    buf_add_str(&b, " HTTP/1.1\r\nHost: x\r\nX: ");
    for (size_t i = 0; i < n_value; i++)
        buf_add_char(&b, 'b');
    for (int i = 2; i < n_fields; i++)
        buf_add_str(&b, "\r\nY: z");
    buf_add_str(&b, "\r\n\r\n");
    outcome o = read_request(b.data, b.len, b.len);
    buf_free(&b);
    return o;
}

static void expect_long(size_t n_path, size_t n_value, int n_fields, int status)
{
    outcome o = read_long(n_path, n_value, n_fields);
    assert_int_equal(o.status, status);
    outcome_free(&o);
}

static void test_long(void **state)
{
    (void)state;
    expect_long(8000, 1, 2, 200);
    expect_long(8001, 1, 2, 414);
    expect_long(100000, 1, 2, 414);
    expect_long(1, 16000, 2, 200);
    expect_long(1, 17000, 2, 431);
    expect_long(1, 1, 100, 200);
    expect_long(1, 1, 101, 431);
    outcome huge = read_request(BYTES(POST "Content-Length: 99999999999999999999999\r\n\r\n"), 10);
    assert_true(huge.status == 200 && huge.head.length == UINT64_MAX);
    outcome_free(&huge);
    buf endless = {0}; /* more between chunks than there is in them */
    buf_add_str(&endless, CHUNKED);
    for (int i = 0; i < 100; i++)
        buf_printf(&endless, "1;x=%0200d\r\nx\r\n", 0);
    outcome o = read_request(endless.data, endless.len, 1000);
    assert_int_equal(o.status, 400);
    outcome_free(&o);
    buf_free(&endless);
}

static void test_fields(void **state)
{
    (void)state;
    outcome o = read_request(BYTES(GET "A: 1\r\nb:  two words \r\nA: 3\r\n\r\n"), 100);
    assert_string_equal(http_field_of(&o.head, "a"), "1");
    assert_string_equal(http_field_of(&o.head, "B"), "two words");
    assert_null(http_field_of(&o.head, "c"));
    outcome_free(&o);
    buf text = {0};
    assert_int_equal(http_decode_path("/a%20b%C3%A9%zz%4", &text), 0);
    assert_string_equal(text.data, "/a b\xc3\xa9%zz%4");
    assert_int_equal(http_decode_path("a%00b", &text), -1);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_taken),
                                       cmocka_unit_test(test_long), cmocka_unit_test(test_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
