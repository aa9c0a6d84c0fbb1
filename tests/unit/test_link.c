/* test_link.c - links over real sockets: both ends, or one end and raw bytes, on one event loop */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/link.h"
#include "support/waiting.h"
#include "net/pack.h"
#include "net/tls.h"
#include "support/test.h"

/* One end, and what has happened to it. */
typedef struct {
    net_link *link; /* while up */
    int n_up, n_down, n_messages;
    uint64_t last_id;
    size_t last_tokens;
    bool in_order;
    char why[256], name[64], model[64];
    net_link *free_on_message;
    const char *refusal; /* of everybody who comes up; NULL: none */
} witness;

typedef struct {
    event_loop *loop;
    const char *at;                         /* where one listens */
    link_options near_options, far_options; /* of the listening and the connecting side */
    credentials near_own, far_own;          /* theirs; secrets are not */
    witness near, far;
    link_listener *listener;
    net_link *link;
} pair;

static void on_up(void *ctx, net_link *l, const Hello *h)
{
    witness *w = ctx;
    w->link = l;
    w->n_up++;
    snprintf(w->name, sizeof w->name, "%s", h->name);
    snprintf(w->model, sizeof w->model, "%s", h->model);
    if (w->refusal)
        link_drop(l, w->refusal);
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    witness *w = ctx;
    assert_ptr_equal(l, w->link);
    w->n_messages++;
    if (m->what_case == MESSAGE__WHAT_SUBMIT) {
        w->in_order &= m->submit->id == w->last_id + 1;
        w->last_id = m->submit->id;
        w->last_tokens = m->submit->n_tokens;
        for (size_t i = 0; i < m->submit->n_tokens; i++)
            w->in_order &= m->submit->tokens[i] == i;
    }
    if (w->free_on_message)
        link_free(w->free_on_message);
    w->free_on_message = NULL;
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    witness *w = ctx;
    assert_ptr_equal(l, w->link);
    w->link = NULL;
    w->n_down++;
    snprintf(w->why, sizeof w->why, "%s", why);
}

static link_events events_of(witness *w)
{
    return (link_events){on_up, on_message, on_down, w};
}

static int setup(void **state)
{
    log_set_level(LOG_ERROR);
    pair *p = XNEW(pair);
    p->loop = event_loop_new();
    p->at = "127.0.0.1:0";
    link_options o = link_options_default();
    p->near_options = p->far_options = o;
    p->near_own = p->far_own = (credentials){.secret = {"open sesame"}};
    p->near_options.own = &p->near_own;
    p->far_options.own = &p->far_own;
    p->near_options.role = HELLO__ROLE__SCHEDULER;
    p->near_options.name = "near";
    p->far_options.role = HELLO__ROLE__RUNNER;
    p->far_options.name = "far";
    p->far_options.model = "llama-1";
    p->near.in_order = p->far.in_order = true;
    *state = p;
    return 0;
}

static int setup_inside(void **state)
{
    int status = setup(state);
    ((pair *)*state)->at = LOOP_SELF;
    return status;
}

static int teardown(void **state)
{
    pair *p = *state;
    link_free(p->link);
    link_listener_free(p->listener);
    event_loop_free(p->loop);
    SSL_CTX_free(p->near_own.tls);
    SSL_CTX_free(p->far_own.tls);
    free(p);
    return 0;
}

static void listen_at(pair *p, const char *at)
{
    err e = {0};
    link_events events = events_of(&p->near);
    p->listener = link_listen(&p->loop->base, at, &p->near_options, &events, &e);
    if (!p->listener)
        fail_msg("%s", e.msg);
}

static void connect_to(pair *p, const char *at)
{
    err e = {0};
    link_events events = events_of(&p->far);
    p->link = link_connect(&p->loop->base, at, &p->far_options, &events, &e);
    if (!p->link)
        fail_msg("%s", e.msg);
}

static void bring_up(pair *p)
{
    listen_at(p, p->at);
    connect_to(p, link_listener_address(p->listener));
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
}

static void send_request(net_link *l, uint64_t id, uint32_t n_tokens)
{
    uint32_t *token = XNEW_ARRAY(uint32_t, n_tokens + 1);
    for (uint32_t i = 0; i < n_tokens; i++)
        token[i] = i;
    Request r = REQUEST__INIT;
    r.id = id;
    r.n_tokens = n_tokens;
    r.tokens = token;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_SUBMIT;
    m.submit = &r;
    link_send(l, &m);
    free(token);
}

static void both_sides_learn_who_the_other_is(void **state)
{
    pair *p = *state;
    bring_up(p);
    assert_string_equal(p->near.name, "far");
    assert_string_equal(p->near.model, "llama-1");
    assert_string_equal(p->far.name, "near");
    assert_non_null(strstr(link_peer(p->near.link), "runner far at 127.0.0.1:"));
    assert_non_null(strstr(link_peer(p->far.link), "scheduler near at 127.0.0.1:"));
}

static void messages_come_whole_and_in_order(void **state)
{
    pair *p = *state;
    bring_up(p);
    enum { N = 300 };
    for (uint64_t i = 1; i <= N; i++) {
        uint32_t n_tokens = i % 50 == 0 ? 500000 : (uint32_t)i;
        send_request(p->near.link, i, n_tokens);
        send_request(p->far.link, i, n_tokens);
    }
    UNTIL(p->loop, p->near.last_id == N && p->far.last_id == N);
    assert_true(p->near.in_order && p->far.in_order);
    assert_int_equal(p->near.n_messages, N);
    assert_int_equal(p->near.last_tokens, 500000);
}

/* Neither side comes up, and the connecting one keeps trying. */
static void expect_refusal(pair *p)
{
    listen_at(p, p->at);
    connect_to(p, link_listener_address(p->listener));
    PASS(p->loop, 0.5);
    assert_int_equal(p->near.n_up + p->far.n_up, 0);
}

static void a_wrong_secret_is_refused(void **state)
{
    pair *p = *state;
    p->far_own.secret[0] = "open barley";
    expect_refusal(p);
}

static void another_model_is_refused(void **state)
{
    pair *p = *state;
    p->near_options.model = "llama-2";
    expect_refusal(p);
}

static void one_without_a_model_takes_any(void **state)
{
    pair *p = *state;
    p->far_options.model = NULL;
    p->near_options.model = "llama-2";
    bring_up(p);
}

static void unix_sockets_work(void **state)
{
    pair *p = *state;
    char at[64];
    snprintf(at, sizeof at, "unix:/tmp/punica-test-%d", (int)getpid());
    listen_at(p, at);
    assert_string_equal(link_listener_address(p->listener), at);
    connect_to(p, at);
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
    send_request(p->far.link, 1, 1000);
    UNTIL(p->loop, p->near.last_id == 1);
    link_listener_free(p->listener);
    p->listener = NULL;
    assert_int_equal(access(at + 5, F_OK), -1);
}

static void unix_sockets_without_a_file_work(void **state)
{
    pair *p = *state;
    char at[64];
    snprintf(at, sizeof at, "unix:@punica-test-%d", (int)getpid());
    listen_at(p, at);
    assert_string_equal(link_listener_address(p->listener), at);
    connect_to(p, at);
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
    assert_string_equal(link_peer(p->near.link), "runner far at unix:");
}

static void a_stale_socket_file_is_replaced(void **state)
{
    pair *p = *state;
    char at[64];
    snprintf(at, sizeof at, "unix:/tmp/punica-test-%d", (int)getpid());
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, at + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    listen_at(p, at);
    err e;
    link_events events = events_of(&p->near);
    assert_null(link_listen(&p->loop->base, at, &p->near_options, &events, &e)); /* this one is in use */
}

static void roles_of_one_process_know_each_other(void **state)
{
    pair *p = *state;
    bring_up(p);
    assert_string_equal(link_peer(p->near.link), "runner far at self");
    assert_string_equal(link_peer(p->far.link), "scheduler near at self");
}

static void addresses_are_checked(void **state)
{
    pair *p = *state;
    static const char *const bad[] = {"", "host", ":80", "host:", "host:99999", "host:8x", "::1:80", "unix:", "[]:80"};
    link_events events = events_of(&p->far);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err e = {0};
        assert_null(link_connect(&p->loop->base, bad[i], &p->far_options, &events, &e));
        assert_non_null(strstr(e.msg, bad[i]));
    }
    address a;
    err e;
    assert_int_equal(address_parse(&a, "[::1]:80", &e), 0);
    assert_string_equal(a.host, "::1");
}

static void a_dropped_link_tells_both_sides_why_and_comes_back(void **state)
{
    pair *p = *state;
    bring_up(p);
    link_drop(p->near.link, "a better one came");
    assert_int_equal(p->near.n_down, 0);
    UNTIL(p->loop, p->near.n_down == 1 && p->far.n_down == 1);
    assert_string_equal(p->near.why, "a better one came");
    assert_string_equal(p->far.why, "a better one came");
    UNTIL(p->loop, p->near.n_up == 2 && p->far.n_up == 2);
    send_request(p->far.link, 1, 10);
    UNTIL(p->loop, p->near.last_id == 1);
}

static void it_connects_again_when_the_listener_is_back(void **state)
{
    pair *p = *state;
    bring_up(p);
    char at[128];
    snprintf(at, sizeof at, "%s", link_listener_address(p->listener));
    link_listener_free(p->listener);
    p->listener = NULL;
    p->near.link = NULL;
    UNTIL(p->loop, p->far.n_down == 1);
    PASS(p->loop, 0.3); /* some tries in vain */
    listen_at(p, at);
    UNTIL(p->loop, p->near.n_up == 2 && p->far.n_up == 2);
}

static void it_waits_for_a_listener_that_comes_later(void **state)
{
    pair *p = *state;
    listen_at(p, p->at);
    char at[128];
    snprintf(at, sizeof at, "%s", link_listener_address(p->listener));
    link_listener_free(p->listener);
    p->listener = NULL;
    connect_to(p, at);
    PASS(p->loop, 0.2);
    listen_at(p, at);
    UNTIL(p->loop, p->far.n_up == 1);
}

static void a_link_may_be_freed_from_its_own_callback(void **state)
{
    pair *p = *state;
    bring_up(p);
    p->far.free_on_message = p->link;
    for (uint64_t i = 1; i <= 3; i++)
        send_request(p->near.link, i, 10);
    UNTIL(p->loop, p->near.n_down == 1);
    assert_int_equal(p->far.n_messages, 1);
    assert_int_equal(p->far.n_down, 0);
    p->link = NULL;
}

static void sending_on_a_link_that_is_not_up_does_nothing(void **state)
{
    pair *p = *state;
    bring_up(p);
    net_link *l = p->far.link;
    link_drop(l, "test");
    send_request(l, 1, 10);
    UNTIL(p->loop, p->near.n_up == 2);
    assert_int_equal(p->near.n_messages, 0);
}

static void a_message_that_is_too_large_loses_the_link(void **state)
{
    pair *p = *state;
    p->near_options.max_message = 10000;
    bring_up(p);
    send_request(p->far.link, 1, 5000); /* ids of up to two bytes: about 10000 */
    send_request(p->far.link, 2, 50000);
    UNTIL(p->loop, p->near.n_down == 1 && p->far.n_down == 1);
    assert_int_equal(p->near.last_id, 1);
    assert_non_null(strstr(p->near.why, "10000 bytes"));
}

static void what_is_no_message_loses_the_link(void **state)
{
    pair *p = *state;
    bring_up(p);
    link_send_packed(p->far.link, "\xff\xff\xff\xff", 4);
    UNTIL(p->loop, p->near.n_down == 1 && p->far.n_down == 1);
    assert_non_null(strstr(p->far.why, "no message"));
}

/* Many empty parts: 2 bytes each on the wire, a hundred times as many unpacked. */
static void a_message_that_would_take_too_much_memory_loses_the_link(void **state)
{
    pair *p = *state;
    bring_up(p);
    buf body = {0}, message = {0};
    for (int i = 0; i < 100000; i++)
        pack_bytes(&body, 1, "", 0);
    pack_bytes(&message, 4, body.data, body.len);
    link_send_packed(p->far.link, message.data, message.len);
    UNTIL(p->loop, p->near.n_messages == 1); /* this much is fine under the default limit */
    p->near_options.max_message = message.len + 1000;
    link_listener_free(p->listener);
    p->near.link = NULL;
    listen_at(p, p->at);
    link_free(p->link);
    p->far.link = NULL;
    connect_to(p, link_listener_address(p->listener));
    UNTIL(p->loop, p->near.n_up == 2 && p->far.n_up >= 2);
    link_send_packed(p->far.link, message.data, message.len);
    UNTIL(p->loop, p->near.n_down == 1);
    buf_free(&body);
    buf_free(&message);
}

/* A plain socket to the listener, with bytes written to it. */
static int raw_socket(pair *p, const void *bytes, size_t n)
{
    struct sockaddr_storage a;
    int len = sizeof a;
    assert_int_equal(evutil_parse_sockaddr_port(link_listener_address(p->listener), (struct sockaddr *)&a, &len), 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, (socklen_t)len), 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Everything the other side sends until it closes. */
static buf read_to_end(pair *p, int fd)
{
    buf all = {0};
    double give_up = clock_now() + 10;
    for (;;) {
        char part[4096];
        ssize_t n = read(fd, part, sizeof part);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        if (n > 0)
            buf_add(&all, part, (size_t)n);
        waiting_turn(p->loop);
        if (clock_now() > give_up)
            fail_msg("the listener did not hang up");
    }
    close(fd);
    buf_add(&all, "", 0);
    return all;
}

#define REQUEST "GET /punica/link HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

static void what_is_no_upgrade_is_answered_with_400(void **state)
{
    pair *p = *state;
    listen_at(p, "127.0.0.1:0");
    static const char *const bad[] = {"GET / HTTP/1.1\r\n\r\n",
                                      "hello\r\n\r\n",
                                      "\r\n\r\n",
                                      REQUEST "\r\n",
                                      REQUEST "Sec-WebSocket-Version: 13\r\n\r\n",
                                      REQUEST "Sec-WebSocket-Key: short\r\nSec-WebSocket-Version: 13\r\n\r\n",
                                      "POST /punica/link HTTP/1.1\r\n" KEY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf answer = read_to_end(p, raw_socket(p, bad[i], strlen(bad[i])));
        assert_memory_equal(answer.data, "HTTP/1.1 400 ", 13);
        buf_free(&answer);
    }
    char *endless = xmalloc(100000);
    memset(endless, 'x', 100000);
    buf answer = read_to_end(p, raw_socket(p, endless, 100000));
    assert_memory_equal(answer.data, "HTTP/1.1 400 ", 13);
    buf_free(&answer);
    free(endless);
}

static void the_accept_header_is_that_of_the_rfc(void **state)
{
    pair *p = *state;
    p->near_options.silence = 0.2;
    listen_at(p, "127.0.0.1:0");
    buf answer = read_to_end(p, raw_socket(p, REQUEST KEY, strlen(REQUEST KEY)));
    assert_non_null(strstr(answer.data, "\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    buf_free(&answer);
}

/* A masked frame with a mask of zeros. */
static void add_frame(buf *out, uint8_t first, const void *payload, size_t n)
{
    buf_add_char(out, (char)first);
    buf_add_char(out, (char)(0x80 | (n < 126 ? n : 126)));
    if (n >= 126) {
        buf_add_char(out, (char)(n >> 8));
        buf_add_char(out, (char)n);
    }
    buf_add(out, "\0\0\0\0", 4);
    buf_add(out, payload, n);
}

static void strangers_that_break_the_rules_are_hung_up_on(void **state)
{
    pair *p = *state;
    listen_at(p, "127.0.0.1:0");
    char big[5000] = {0};
    const char no_nonce[] = {0x0a, 2, 8, WIRE_VERSION};
    const struct {
        const char *what;
        uint8_t first;
        const void *payload;
        size_t n;
        const char *answer;
    } bad[] = {{"text", 0x81, "hi", 2, "text"},
               {"no message", 0x82, "\xff\xff", 2, "Hello"},
               {"an empty message", 0x82, "", 0, "Hello"},
               {"too large", 0x82, big, sizeof big, "\x88\x02\x03\xf1"},
               {"reserved bits", 0xf2, "", 0, "\x88\x02\x03\xea"},
               {"a message that is no Hello", 0x82, "\x1a\x00", 2, "Hello"},
               {"a Hello of another version", 0x82, "\x0a\x02\x08\x07", 4, "version 7"},
               {"a Hello without a nonce", 0x82, no_nonce, sizeof no_nonce, "Hello"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf bytes = {0};
        buf_add_str(&bytes, REQUEST KEY);
        add_frame(&bytes, bad[i].first, bad[i].payload, bad[i].n);
        buf answer = read_to_end(p, raw_socket(p, bytes.data, bytes.len));
        if (!memmem(answer.data, answer.len, bad[i].answer, strlen(bad[i].answer)))
            fail_msg("%s: the answer does not say %s", bad[i].what, bad[i].answer);
        buf_free(&answer);
        buf_free(&bytes);
    }
    assert_int_equal(p->near.n_up, 0);
}

static void a_stranger_that_says_nothing_is_hung_up_on(void **state)
{
    pair *p = *state;
    p->near_options.silence = 0.2;
    listen_at(p, "127.0.0.1:0");
    buf answer = read_to_end(p, raw_socket(p, "GET ", 4));
    assert_int_equal(answer.len, 0);
    buf_free(&answer);
}

static void a_proof_from_another_connection_is_of_no_use(void **state)
{
    pair *p = *state;
    listen_at(p, "127.0.0.1:0");
    Hello h = HELLO__INIT;
    h.version = WIRE_VERSION;
    uint8_t nonce[32] = {1}, mac[32] = {2};
    h.nonce = (ProtobufCBinaryData){32, nonce};
    h.name = "mallory";
    Proof proof = PROOF__INIT;
    proof.mac = (ProtobufCBinaryData){32, mac};
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_HELLO;
    m.hello = &h;
    buf bytes = {0}, packed = {0};
    buf_add_str(&bytes, REQUEST KEY);
    pack_message(&packed, &m);
    add_frame(&bytes, 0x82, packed.data, packed.len);
    m.what_case = MESSAGE__WHAT_PROOF;
    m.proof = &proof;
    buf_clear(&packed);
    pack_message(&packed, &m);
    add_frame(&bytes, 0x82, packed.data, packed.len);
    buf answer = read_to_end(p, raw_socket(p, bytes.data, bytes.len));
    assert_non_null(memmem(answer.data, answer.len, "wrong secret", 12));
    assert_int_equal(p->near.n_up, 0);
    buf_free(&answer);
    buf_free(&bytes);
    buf_free(&packed);
}

/* A listener that accepts and then says something that is not ours. */
static void a_listener_that_is_none_of_ours_is_left(void **state)
{
    pair *p = *state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 5), 0);
    getsockname(fd, (struct sockaddr *)&a, &len);
    char at[64];
    snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(a.sin_port));
    connect_to(p, at);
    static const char *const answers[] = {"HTTP/1.1 200 OK\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n",
                                          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                                          "Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        int peer = -1;
        UNTIL(p->loop, (peer = accept(fd, NULL, NULL)) >= 0);
        assert_int_equal(write(peer, answers[i], strlen(answers[i])), (ssize_t)strlen(answers[i]));
        fcntl(peer, F_SETFL, O_NONBLOCK);
        char part[4096];
        ssize_t n = -1;
        UNTIL(p->loop, (n = read(peer, part, sizeof part)) == 0 || (n < 0 && errno != EAGAIN));
        close(peer);
    }
    assert_int_equal(p->far.n_up, 0);
    close(fd);
}

/* The connecting side in a loop of its own that is not turned: a process that is stopped. */
static event_loop *connect_stopped(pair *p)
{
    event_loop *other = event_loop_new();
    err e;
    link_events events = events_of(&p->far);
    p->link = link_connect(&other->base, link_listener_address(p->listener), &p->far_options, &events, &e);
    assert_non_null(p->link);
    double give_up = clock_now() + 10;
    while ((p->near.n_up == 0 || p->far.n_up == 0) && clock_now() < give_up) {
        event_base_loop(other->events, EVLOOP_NONBLOCK);
        event_base_loop(p->loop->events, EVLOOP_NONBLOCK);
    }
    assert_int_equal(p->far.n_up, 1);
    return other;
}

static void a_silent_peer_is_lost(void **state)
{
    pair *p = *state;
    p->near_options.ping_every = 0.05;
    p->near_options.silence = 0.3;
    listen_at(p, "127.0.0.1:0");
    event_loop *other = connect_stopped(p);
    double start = clock_now();
    UNTIL(p->loop, p->near.n_down == 1);
    assert_true(clock_now() - start >= 0.25);
    assert_non_null(strstr(p->near.why, "silent"));
    link_free(p->link);
    p->link = NULL;
    event_loop_free(other);
}

static void pings_keep_an_idle_link_up(void **state)
{
    pair *p = *state;
    p->near_options.ping_every = p->far_options.ping_every = 0.05;
    p->near_options.silence = p->far_options.silence = 1;
    bring_up(p);
    PASS(p->loop, 2.5);
    assert_int_equal(p->near.n_down + p->far.n_down, 0);
}

/* A socket of ours that is connected to the listener. */
static int socket_to_listener(const pair *p)
{
    for (int fd = 3; fd < 100; fd++) {
        struct sockaddr_storage a;
        socklen_t len = sizeof a;
        char text[128] = "";
        if (getpeername(fd, (struct sockaddr *)&a, &len) == 0)
            address_print((struct sockaddr *)&a, len, text, sizeof text);
        if (strcmp(text, link_listener_address(p->listener)) == 0)
            return fd;
    }
    fail_msg("there is none");
    return -1;
}

/* It pings, so that it is not silent, and that is all it does. */
static void a_peer_that_does_not_read_is_lost(void **state)
{
    pair *p = *state;
    p->near_options.max_unsent = 1 << 20;
    p->near_options.ping_every = 0.05;
    p->near_options.silence = 1;
    listen_at(p, "127.0.0.1:0");
    event_loop *other = connect_stopped(p);
    int fd = socket_to_listener(p);
    double start = clock_now();
    for (uint64_t i = 1; i <= 60; i++)
        send_request(p->near.link, i, 100000);
    UNTIL(p->loop, p->near.n_down == 1 || write(fd, "\x89\x80\0\0\0\0", 6) != 6);
    assert_int_equal(p->near.n_down, 1);
    assert_true(clock_now() - start >= 1);
    assert_non_null(strstr(p->near.why, "does not read"));
    link_free(p->link);
    p->link = NULL;
    event_loop_free(other);
}

/* As when a frontend submits all its requests again. */
static void a_burst_of_any_size_goes_through(void **state)
{
    pair *p = *state;
    p->near_options.max_unsent = 1 << 20;
    bring_up(p);
    enum { N = 100 };
    for (uint64_t i = 1; i <= N; i++)
        send_request(p->near.link, i, 100000);
    UNTIL(p->loop, p->far.last_id == N);
    assert_true(p->far.in_order);
    assert_int_equal(p->near.n_down + p->far.n_down, 0);
}

static void a_stranger_that_pings_and_does_not_read_is_hung_up_on(void **state)
{
    pair *p = *state;
    p->near_options.silence = 60;
    listen_at(p, "127.0.0.1:0");
    int fd = raw_socket(p, REQUEST KEY, strlen(REQUEST KEY));
    buf pings = {0};
    for (int i = 0; i < 1000; i++)
        add_frame(&pings, 0x89, (char[120]){0}, 120);
    UNTIL(p->loop, write(fd, pings.data, pings.len) < 0 && errno != EAGAIN);
    close(fd);
    buf_free(&pings);
}

/* One that goes on talking, so that its connection is never idle. */
static void a_refused_stranger_cannot_stay(void **state)
{
    pair *p = *state;
    listen_at(p, "127.0.0.1:0");
    int fd = raw_socket(p, "hello\r\n\r\n", 9);
    double start = clock_now();
    UNTIL(p->loop, write(fd, "x", 1) < 0);
    assert_true(clock_now() - start < 3);
    close(fd);
}

static void strangers_do_not_keep_a_member_out(void **state)
{
    pair *p = *state;
    enum { N = 300 };
    int fd[N];
    p->near_options.silence = 60;
    listen_at(p, "127.0.0.1:0");
    for (int i = 0; i < N; i++) {
        fd[i] = raw_socket(p, "GET ", 4);
        waiting_turn(p->loop);
    }
    connect_to(p, link_listener_address(p->listener));
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
    char c;
    assert_int_equal(read(fd[0], &c, 1), 0); /* the oldest has gone */
    assert_int_equal(read(fd[N - 1], &c, 1), -1);
    for (int i = 0; i < N; i++)
        close(fd[i]);
}

/* Like raw_socket(), from an address of loopback that ends with this number. */
static int raw_socket_of(pair *p, int number, const char *bytes)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)number)};
    struct sockaddr_storage a;
    int len = sizeof a, fd = socket(AF_INET, SOCK_STREAM, 0);
    evutil_parse_sockaddr_port(link_listener_address(p->listener), (struct sockaddr *)&a, &len);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, (socklen_t)len), 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static bool is_closed(int fd)
{
    char c;
    ssize_t n = read(fd, &c, 1);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* One that is slow to prove itself, and after it a flood of another address. */
static void a_flood_of_one_address_is_that_addresss_own(void **state)
{
    pair *p = *state;
    enum { N = 700 };
    int flood[N];
    p->near_options.silence = 60;
    listen_at(p, "127.0.0.1:0");
    int slow = raw_socket_of(p, 9, "GET ");
    for (int i = 0; i < N; i++) {
        flood[i] = raw_socket_of(p, 2, "GET ");
        waiting_turn(p->loop);
    }
    UNTIL(p->loop, is_closed(flood[N - 300]));
    assert_false(is_closed(slow));
    assert_false(is_closed(flood[N - 1]));
    for (int i = 0; i < N; i++)
        close(flood[i]);
    close(slow);
}

static void count_turn(void *ctx)
{
    struct {
        loop_timer *t;
        int n;
    } *turns = ctx;
    turns->n++;
    loop_timer_set(turns->t, 0);
}

static void many_that_come_at_once_come_in_by_turns(void **state)
{
    pair *p = *state;
    enum { N = 600 };
    int fd[N];
    struct {
        loop_timer *t;
        int n;
    } turns = {0};
    listen_at(p, "127.0.0.1:0");
    for (int i = 0; i < N; i++)
        fd[i] = raw_socket(p, "hello\r\n\r\n", 9);
    turns.t = loop_timer_new(&p->loop->base, count_turn, &turns);
    loop_timer_set(turns.t, 0);
    char c;
    UNTIL(p->loop, read(fd[N - 1], &c, 1) == 1);
    assert_true(turns.n >= N / 40);
    loop_timer_free(turns.t);
    for (int i = 0; i < N; i++)
        close(fd[i]);
}

/* With few descriptors, all of them strangers': a member comes in at once, at their expense. */
static void a_member_comes_in_when_strangers_have_all_descriptors(void **state)
{
    pair *p = *state;
    enum { N = 60, MORE = 20 };
    int fd[N];
    p->near_options.silence = 60;
    listen_at(p, "127.0.0.1:0");
    for (int i = 0; i < N; i++)
        fd[i] = raw_socket(p, "GET ", 4);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int next = dup(0);
    close(next);
    low = (struct rlimit){(rlim_t)next + MORE, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    PASS(p->loop, 0.1);
    double start = clock_now();
    connect_to(p, link_listener_address(p->listener));
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_true(clock_now() - start < 0.9); /* not after a rest */
    for (int i = 0; i < N; i++)
        close(fd[i]);
}

static void a_listener_without_file_descriptors_rests(void **state)
{
    pair *p = *state;
    listen_at(p, "127.0.0.1:0");
    connect_to(p, link_listener_address(p->listener));
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int next = dup(0);
    close(next);
    low = (struct rlimit){(rlim_t)next + 1, old.rlim_max}; /* enough for one end */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int turns = 0;
    for (double until = clock_now() + 0.5; clock_now() < until; turns++)
        waiting_turn(p->loop);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_true(turns < 200);
    assert_int_equal(p->near.n_up, 0);
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
}

/* Everything written to standard error while the links are turned for a while. */
static buf log_of(pair *p, double seconds)
{
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    dup2(ends[1], STDERR_FILENO);
    log_set_level(LOG_INFO);
    PASS(p->loop, seconds);
    log_set_level(LOG_ERROR);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    buf text = {0};
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
        buf_add(&text, part, (size_t)n);
    close(ends[0]);
    buf_add(&text, "", 0);
    return text;
}

static int count(const buf *text, const char *what)
{
    int n = 0;
    for (const char *at = text->data; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void one_that_is_refused_never_was_up(void **state)
{
    pair *p = *state;
    p->near.refusal = "not today";
    listen_at(p, "127.0.0.1:0");
    connect_to(p, link_listener_address(p->listener));
    buf text = log_of(p, 1);
    assert_true(p->near.n_up > 1); /* it was asked again */
    assert_int_equal(p->near.n_down + p->far.n_up + p->far.n_down, 0);
    assert_int_equal(count(&text, "refused runner far at 127.0.0.1:"), 1);
    assert_int_equal(count(&text, "refused by scheduler near at 127.0.0.1:"), 1);
    assert_int_equal(count(&text, "not today"), 2);
    assert_int_equal(count(&text, "is up") + count(&text, "lost"), 0);
    buf_free(&text);
}

static void every_refused_peer_is_named(void **state)
{
    pair *p = *state;
    listen_at(p, "127.0.0.1:0");
    p->far_own.secret[0] = "open barley";
    connect_to(p, link_listener_address(p->listener));
    witness third = {0};
    link_events events = events_of(&third);
    p->far_options.name = "third";
    err e;
    net_link *l = link_connect(&p->loop->base, link_listener_address(p->listener), &p->far_options, &events, &e);
    assert_non_null(l);
    buf bytes = {0};
    buf_add_str(&bytes, REQUEST KEY);
    add_frame(&bytes, 0x82, "\x0a\x06\x08\x07\x1a\x02me", 8); /* a Hello of version 7, name "me" */
    int fd = raw_socket(p, bytes.data, bytes.len);
    buf text = log_of(p, 0.7);
    assert_int_equal(count(&text, "refused runner far at "), 1);
    assert_int_equal(count(&text, "refused runner third at "), 1);
    assert_int_equal(count(&text, "refused frontend me at "), 1);
    close(fd);
    link_free(l);
    buf_free(&text);
    buf_free(&bytes);
}

/* Certificates for 127.0.0.1, each signed by itself, in files of this process. roles: subject alternative names, "" or
 * e.g.
 * ",URI:punica:runner". */
typedef struct { char cert[64], key[64]; } identity_files;

static identity_files make_certificate(const char *name, const char *roles)
{
    identity_files f;
    snprintf(f.cert, sizeof f.cert, "/tmp/punica-test-%d-%s.crt", (int)getpid(), name);
    snprintf(f.key, sizeof f.key, "/tmp/punica-test-%d-%s.key", (int)getpid(), name);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME *subject = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, subject);
    char *names = xasprintf("IP:127.0.0.1%s", roles);
    X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    X509_add_ext(x, san, -1);
    X509_EXTENSION_free(san);
    free(names);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *out = fopen(f.cert, "w");
    assert_int_equal(PEM_write_X509(out, x), 1);
    fclose(out);
    out = fopen(f.key, "w");
    assert_int_equal(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(out);
    X509_free(x);
    EVP_PKEY_free(key);
    return f;
}

static void remove_certificate(const identity_files *f)
{
    remove(f->cert);
    remove(f->key);
}

static void tls_links_carry_messages_and_distrust_others(void **state)
{
    pair *p = *state;
    err e;
    identity_files own = make_certificate("own", ""), other = make_certificate("other", "");
    assert_non_null(p->near_own.tls = tls_listening(own.cert, own.key, NULL, &e));
    assert_non_null(p->far_own.tls = tls_connecting(own.cert, NULL, NULL, &e));
    bring_up(p);
    for (uint64_t i = 1; i <= 20; i++)
        send_request(p->far.link, i, (uint32_t)i * 10000);
    UNTIL(p->loop, p->near.last_id == 20);
    assert_true(p->near.in_order);
    link_drop(p->near.link, "enough");
    UNTIL(p->loop, p->far.n_down == 1);
    assert_string_equal(p->far.why, "enough");

    link_free(p->link);
    SSL_CTX_free(p->far_own.tls);
    assert_non_null(p->far_own.tls = tls_connecting(other.cert, NULL, NULL, &e));
    p->near.n_up = p->far.n_up = 0;
    connect_to(p, link_listener_address(p->listener));
    PASS(p->loop, 0.3);
    assert_int_equal(p->near.n_up + p->far.n_up, 0);

    link_free(p->link); /* and one without TLS gets nowhere */
    SSL_CTX_free(p->far_own.tls);
    p->far_own.tls = NULL;
    connect_to(p, link_listener_address(p->listener));
    PASS(p->loop, 0.3);
    assert_int_equal(p->near.n_up + p->far.n_up, 0);
    remove_certificate(&own);
    remove_certificate(&other);
}

/* Both sides with certificates, for these roles, that trust each other; and no secret. */
static void use_certificates(pair *p, const char *near_roles, const char *far_roles)
{
    err e;
    identity_files near = make_certificate("near", near_roles), far = make_certificate("far", far_roles);
    p->near_own = (credentials){.tls = tls_listening(near.cert, near.key, far.cert, &e), .mutual = true};
    p->far_own = (credentials){.tls = tls_connecting(near.cert, far.cert, far.key, &e), .mutual = true};
    assert_true(p->near_own.tls && p->far_own.tls);
    remove_certificate(&near);
    remove_certificate(&far);
}

static void certificates_stand_for_a_secret(void **state)
{
    pair *p = *state;
    use_certificates(p, ",URI:punica:scheduler", ",URI:punica:frontend,URI:punica:runner");
    p->near_options.ping_every = p->far_options.ping_every = 0.05;
    bring_up(p);
    send_request(p->far.link, 1, 10000);
    UNTIL(p->loop, p->near.last_id == 1);
    PASS(p->loop, 0.3);
    assert_int_equal(p->near.n_down + p->far.n_down, 0);
}

static void a_certificate_is_good_for_its_role_only(void **state)
{
    pair *p = *state;
    use_certificates(p, ",URI:punica:scheduler", ",URI:punica:runner,URI:punica:frontends,DNS:frontend");
    p->far_options.role = HELLO__ROLE__FRONTEND;
    expect_refusal(p);
    link_free(p->link); /* as what it is it comes in */
    p->far_options.role = HELLO__ROLE__RUNNER;
    connect_to(p, link_listener_address(p->listener));
    UNTIL(p->loop, p->near.n_up == 1 && p->far.n_up == 1);
}

static void a_runner_cannot_pass_for_the_scheduler(void **state)
{
    pair *p = *state;
    use_certificates(p, ",URI:punica:runner", ",URI:punica:runner");
    expect_refusal(p);
}

static void one_without_a_certificate_is_refused(void **state)
{
    pair *p = *state;
    err e;
    use_certificates(p, ",URI:punica:scheduler", ",URI:punica:runner");
    identity_files near = make_certificate("near", ",URI:punica:scheduler");
    SSL_CTX_free(p->near_own.tls);
    p->near_own.tls = tls_listening(near.cert, near.key, near.cert, &e);
    SSL_CTX_free(p->far_own.tls);
    p->far_own = (credentials){.secret = {"any secret"}, .tls = tls_connecting(near.cert, NULL, NULL, &e)};
    expect_refusal(p);
    remove_certificate(&near);
}

/* As while a secret is changed: each side has the old and the new one, in its own order. */
static void two_secrets_are_accepted_and_the_first_is_shown(void **state)
{
    pair *p = *state;
    p->near_own = (credentials){.secret = {"open sesame", "open barley"}};
    p->far_own = (credentials){.secret = {"open barley"}};
    bring_up(p);
    link_free(p->link);
    UNTIL(p->loop, p->near.n_down == 1);
    p->far_own = (credentials){.secret = {"open wheat", "open barley"}};
    connect_to(p, link_listener_address(p->listener));
    PASS(p->loop, 0.3);
    assert_int_equal(p->near.n_up, 1);
}

static void a_link_ends_with_the_secret_it_was_made_by(void **state)
{
    pair *p = *state;
    p->near_options.ping_every = p->far_options.ping_every = 0.05;
    bring_up(p);
    p->near_own = (credentials){.secret = {"open barley", "open sesame"}};
    PASS(p->loop, 0.3);
    assert_int_equal(p->near.n_down + p->far.n_down, 0);
    p->near_own.secret[1] = NULL;
    UNTIL(p->loop, p->near.n_down == 1 && p->far.n_down == 1);
    assert_non_null(strstr(p->far.why, "no longer accepted"));
    PASS(p->loop, 0.3);
    assert_int_equal(p->near.n_up, 1);
    p->far_own.secret[0] = "open barley";
    UNTIL(p->loop, p->near.n_up == 2);
}

static void tls_files_are_checked(void **state)
{
    (void)state;
    credentials c = {0};
    err e;
    setenv("PUNICA_SECRET", "0123456789abcdeffedcba98765432100", 1);
    secret_hide_environment();
    assert_null(getenv("PUNICA_SECRET"));
    assert_int_equal(
        credentials_load(
            &c, &(credential_files){.tls_cert = "/nowhere.crt", .tls_key = "/nowhere.key", .listens = true}, &e),
        -1);
    assert_non_null(strstr(e.msg, "/nowhere.crt"));
    assert_int_equal(credentials_load(&c, &(credential_files){.tls_ca = "/nowhere.ca"}, &e), -1);
    assert_non_null(strstr(e.msg, "/nowhere.ca"));
    assert_int_equal(credentials_load(&c, &(credential_files){.tls_cert = "x", .listens = true}, &e), -1);
    assert_non_null(strstr(e.msg, "--tls-key"));
    assert_int_equal(credentials_load(&c, &(credential_files){.tls_cert = "x", .tls_key = "y"}, &e), -1);
    assert_non_null(strstr(e.msg, "--tls-ca"));
    assert_int_equal(credentials_load(&c, &(credential_files){0}, &e), 0);
    assert_non_null(c.secret[0]);
    assert_int_equal(credentials_load(&c, &(credential_files){.secret_file = "/nowhere"}, &e), -1);
    assert_non_null(c.secret[0]); /* as it was */
    credentials_deinit(&c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define INSIDE(f) {"inside: " #f, f, setup_inside, teardown, NULL}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(both_sides_learn_who_the_other_is),
        TEST(messages_come_whole_and_in_order),
        TEST(a_wrong_secret_is_refused),
        TEST(another_model_is_refused),
        TEST(one_without_a_model_takes_any),
        TEST(unix_sockets_work),
        TEST(unix_sockets_without_a_file_work),
        TEST(a_stale_socket_file_is_replaced),
        TEST(addresses_are_checked),
        TEST(a_dropped_link_tells_both_sides_why_and_comes_back),
        TEST(it_connects_again_when_the_listener_is_back),
        TEST(it_waits_for_a_listener_that_comes_later),
        TEST(a_link_may_be_freed_from_its_own_callback),
        TEST(sending_on_a_link_that_is_not_up_does_nothing),
        TEST(a_message_that_is_too_large_loses_the_link),
        TEST(what_is_no_message_loses_the_link),
        TEST(a_message_that_would_take_too_much_memory_loses_the_link),
        TEST(what_is_no_upgrade_is_answered_with_400),
        TEST(the_accept_header_is_that_of_the_rfc),
        TEST(strangers_that_break_the_rules_are_hung_up_on),
        TEST(a_stranger_that_says_nothing_is_hung_up_on),
        TEST(a_proof_from_another_connection_is_of_no_use),
        TEST(a_listener_that_is_none_of_ours_is_left),
        TEST(a_silent_peer_is_lost),
        TEST(pings_keep_an_idle_link_up),
        TEST(a_peer_that_does_not_read_is_lost),
        TEST(a_burst_of_any_size_goes_through),
        TEST(a_stranger_that_pings_and_does_not_read_is_hung_up_on),
        TEST(a_refused_stranger_cannot_stay),
        TEST(strangers_do_not_keep_a_member_out),
        TEST(a_flood_of_one_address_is_that_addresss_own),
        TEST(many_that_come_at_once_come_in_by_turns),
        TEST(a_member_comes_in_when_strangers_have_all_descriptors),
        TEST(a_listener_without_file_descriptors_rests),
        TEST(one_that_is_refused_never_was_up),
        TEST(every_refused_peer_is_named),
        TEST(tls_links_carry_messages_and_distrust_others),
        TEST(certificates_stand_for_a_secret),
        TEST(a_certificate_is_good_for_its_role_only),
        TEST(a_runner_cannot_pass_for_the_scheduler),
        TEST(one_without_a_certificate_is_refused),
        TEST(two_secrets_are_accepted_and_the_first_is_shown),
        TEST(a_link_ends_with_the_secret_it_was_made_by),
        TEST(tls_files_are_checked),
        INSIDE(roles_of_one_process_know_each_other),
        INSIDE(messages_come_whole_and_in_order),
        INSIDE(a_wrong_secret_is_refused),
        INSIDE(another_model_is_refused),
        INSIDE(one_without_a_model_takes_any),
        INSIDE(a_dropped_link_tells_both_sides_why_and_comes_back),
        INSIDE(it_connects_again_when_the_listener_is_back),
        INSIDE(it_waits_for_a_listener_that_comes_later),
        INSIDE(a_link_may_be_freed_from_its_own_callback),
        INSIDE(sending_on_a_link_that_is_not_up_does_nothing),
        INSIDE(a_message_that_is_too_large_loses_the_link),
        INSIDE(what_is_no_message_loses_the_link),
        INSIDE(a_message_that_would_take_too_much_memory_loses_the_link),
        INSIDE(pings_keep_an_idle_link_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
