/* fuzz_http.c - what may come over a client's connection
 *
 * The first byte says how the rest comes: in pieces of which size, and how the client ends. The bytes go through a
 * whole connection (http_conn.h), with pipelining, bodies, and answers at once, as streams and later, twice: in one
 * piece and in several. Both times the same requests must be found and every one of them answered once; nothing may be
 * left of the budget or the connection. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "net/http_conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BODY = 64 << 10, MAX_PIECES = 256 };

typedef struct {
    uint64_t print; /* of all requests and faults, in order */
    int n_requests, n_faults, n_answers, n_gone;
    http_exchange *later; /* to be answered later */
} story;

static event_loop *loop;

static void add_print(story *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->print = rng_u64(s->print, (uint8_t)bytes[i]);
    s->print = rng_u64(s->print, 256 + n);
}

static void answer(story *s, http_exchange *x, int how)
{
    buf text = {.data = "hello, world", .len = 12};
    s->n_answers++;
    if (how == 0) {
        http_exchange_send(x, 200, "text/plain", &text, false);
        return;
    }
    http_exchange_begin(x, "text/event-stream");
    for (int i = 0; i < 3; i++) {
        http_exchange_add(x, &text);
        http_exchange_flush(x);
    }
    http_exchange_end(x);
}

static size_t on_head(void *ctx, http_exchange *x, http_fault *f)
{
    (void)ctx;
    (void)x;
    (void)f;
    return MAX_BODY;
}

static void on_gone(void *ctx, client_loss why)
{
    (void)why;
    story *s = ctx;
    s->later = NULL;
    s->n_gone++;
}

static void on_request(void *ctx, http_exchange *x)
{
    story *s = ctx;
    const http_head *h = http_exchange_head(x);
    charged_buf body = http_exchange_take_body(x);
    CHECK(h->method && (h->path[0] == '/' || h->path[0] == '*') && body.bytes.len <= MAX_BODY);
    add_print(s, h->method, strlen(h->method));
    add_print(s, h->path, strlen(h->path));
    add_print(s, body.bytes.data, body.bytes.len);
    s->n_requests++;
    int how = (int)((strlen(h->path) + body.bytes.len) % 3);
    charged_buf_free(&body);
    if (how < 2) {
        answer(s, x, how);
        return;
    }
    CHECK(!s->later);
    s->later = x;
    http_exchange_set_gone(x, on_gone, s);
}

static void on_fault(void *ctx, http_exchange *x, const http_fault *why)
{
    story *s = ctx;
    buf text = {.data = "bad", .len = 3};
    CHECK(why->status >= 400 && why->status < 600 && why->code && why->why);
    add_print(s, why->code, strlen(why->code));
    s->n_faults++;
    http_exchange_send(x, why->status, "text/plain", &text, false);
}

/* Let the connection do what it can; what the client is sent is thrown away. */
static void turn(story *s, int fd, int times)
{
    char bytes[65536];
    for (int i = 0; i < times; i++) {
        event_base_loop(loop->events, EVLOOP_NONBLOCK);
        while (read(fd, bytes, sizeof bytes) == sizeof bytes)
            ;
        if (s->later) {
            http_exchange *x = s->later;
            s->later = NULL;
            http_exchange_set_gone(x, NULL, NULL);
            answer(s, x, (int)(s->print % 2));
        }
    }
}

/* In pieces of step bytes; after so many the rest comes at once, for each piece costs four system calls. */
static void say(story *s, int fd, const uint8_t *data, size_t size, size_t step)
{
    for (size_t done = 0, pieces = 0; done < size; pieces++) {
        size_t n = size - done < step || pieces >= MAX_PIECES ? size - done : step;
        ssize_t k = write(fd, data + done, n);
        done += k > 0 ? (size_t)k : 0;
        if (k < 0 && errno != EAGAIN)
            return; /* it has closed */
        turn(s, fd, 1);
    }
}

static story play(const uint8_t *data, size_t size, size_t step, bool half_close)
{
    story s = {0};
    budget memory = {.limit = 1 << 20};
    char scratch[HTTP_SCRATCH];
    http_shared shared = {.loop = loop,
                          .options = {.timeout = 30, .max_unsent = 1 << 20, .max_connections = 1, .memory = &memory},
                          .events = {.judge = on_head, .request = on_request, .fault = on_fault, .ctx = &s},
                          .scratch = scratch};
    for (int i = 0; i < 2; i++) {
        TAILQ_INIT(&shared.waiting[i]);
        TAILQ_INIT(&shared.busy[i]);
    }
    int fd[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
    http_conn_new(&shared, fd[1], "fuzz", false);
    say(&s, fd[0], data, size, step);
    if (half_close)
        shutdown(fd[0], SHUT_WR);
    for (int i = 0; i < 300 && half_close && shared.n[0]; i++)
        turn(&s, fd[0], 1);
    close(fd[0]);
    for (int i = 0; i < 300 && shared.n[0]; i++)
        event_base_loop(loop->events, EVLOOP_NONBLOCK);
    CHECK(shared.n[0] == 0 && shared.n_leaving == 0 && memory.used == 0 && s.n_faults <= 1);
    CHECK(s.n_answers + s.n_gone == s.n_requests);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (!loop)
        loop = event_loop_new();
    size_t step = 1 + data[0] % 32;
    story whole = play(data + 1, size - 1, 4096, true), pieces = play(data + 1, size - 1, step, true);
    CHECK(whole.print == pieces.print && whole.n_requests == pieces.n_requests && whole.n_faults == pieces.n_faults);
    play(data + 1, size - 1, 4096, false);
    return 0;
}
