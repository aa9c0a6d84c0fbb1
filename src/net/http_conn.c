/* http_conn.c - see http_conn.h
 *
 *   HEAD ── BODY ── ANSWER ── HEAD ...                  one request after the other
 *     └──────┴────────┴────▶ CLOSING ──▶ gone           sends the last answer, drops further input
 *
 * The socket is registered once, edge-triggered: the event says that something has changed, and bytes are read when the
 * phase wants them. So neither a request nor a token costs a system call other than its own recv() or send(), with TLS
 * or without. A connection is freed from its own event or timer only; a failure elsewhere makes the timer active. */
#include "net/http_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/http_status.h"
#include "net/timer.h"
#include "net/tls.h"

#define MIN_RATE 65536.0 /* bytes a second: the least average rate of a body, once the timeout is over */
#define SENT_BEFORE_ALL_IS_RESERVED (64u << 10) /* bytes of a body */
#define LINGER 5.0                              /* seconds that a client has to read its last answer */
#define PROBE_AFTER 0.5                         /* seconds from a client's half-close until it is probed */
#define MAX_PER_TURN 16                         /* reads and requests until other connections have their turn */

typedef enum { PHASE_HEAD, PHASE_BODY, PHASE_ANSWER, PHASE_CLOSING } http_phase;

struct http_exchange {
    http_head head;
    http_body framing;
    charged_buf body;
    size_t max_body;
    double start;
    void (*gone)(void *ctx, client_loss why);
    void *ctx;
    buf headers; /* of the answer, without those that every answer has */
    bool begun, chunked, complete;
};

struct http_conn {
    http_exchange x; /* first: the present request */
    http_shared *s;  /* borrowed */
    int fd;
    SSL *tls; /* NULL: none */
    bool reserve;
    bool is_waiting;  /* in s->waiting */
    bool readable;    /* there may be bytes to read */
    bool half_closed; /* the client will send no more */
    bool probed;      /* a probe has been sent since it half-closed */
    bool broken;      /* reading or writing failed */
    bool stuck;       /* the client has too much unread, or has read nothing for too long */
    bool stalled;     /* the kernel has not taken all of out */
    bool timed;       /* and the timer is set for that */
    bool in_turn;     /* its own event is being handled */
    bool lingers;     /* our half is closed */
    http_phase phase;
    double since;    /* when this phase began, or the request's first byte came */
    double progress; /* when bytes of out were last sent, or began to wait */
    size_t received; /* bytes of this body so far, chunk framing included */
    buf in;          /* bytes received and not used yet */
    http_finder finder;
    buf out;              /* bytes to send */
    size_t sent, charged; /* bytes of out that are sent; bytes taken from the budget for out */
    struct event *event, *timer;
    char client[64];
    TAILQ_ENTRY(http_conn) entry;
};

static double now_of(const http_conn *c)
{
    return loop_now(&c->s->loop->base);
}

static http_conn *conn_of(const http_exchange *x)
{
    return (http_conn *)x;
}

/* Lists, timers and memory. */

static void enter_list(http_conn *c, bool waiting)
{
    http_conn_list *from = c->is_waiting ? c->s->waiting : c->s->busy, *to = waiting ? c->s->waiting : c->s->busy;
    TAILQ_REMOVE(&from[c->reserve], c, entry);
    TAILQ_INSERT_TAIL(&to[c->reserve], c, entry);
    c->is_waiting = waiting;
}

/* Makes the loop call the connection's timer, where the connection may be freed. */
static void wake(http_conn *c)
{
    event_active(c->timer, EV_TIMEOUT, 0);
}

static void set_timer(http_conn *c, double at)
{
    double in = at - now_of(c);
    timer_set(c->timer, in > 0 ? in : 0);
}

static void charge_output(http_conn *c)
{
    size_t owed = c->out.cap > CHARGED_BUF_FREE ? c->out.cap : 0;
    if (owed > c->charged)
        budget_charge(c->s->options.memory, owed - c->charged);
    else
        budget_give(c->s->options.memory, c->charged - owed);
    c->charged = owed;
}

static void drop_output(http_conn *c)
{
    c->sent = 0;
    c->stalled = c->timed = false;
    if (c->out.cap > CHARGED_BUF_FREE)
        buf_free(&c->out);
    else
        buf_clear(&c->out);
    charge_output(c);
}

static void exchange_deinit(http_exchange *x)
{
    http_head_free(&x->head);
    charged_buf_free(&x->body);
    buf_free(&x->headers);
}

static void free_conn(http_conn *c)
{
    TAILQ_REMOVE(&(c->is_waiting ? c->s->waiting : c->s->busy)[c->reserve], c, entry);
    c->s->n[c->reserve]--;
    c->s->n_leaving -= c->x.complete;
    event_free(c->event);
    event_free(c->timer);
    SSL_free(c->tls);
    close(c->fd);
    exchange_deinit(&c->x);
    drop_output(c);
    buf_free(&c->out);
    buf_free(&c->in);
    free(c);
}

void http_conn_close(http_conn *c)
{
    void (*gone)(void *, client_loss) = c->phase == PHASE_ANSWER && !c->x.complete ? c->x.gone : NULL;
    void *ctx = c->x.ctx;
    client_loss why = c->stuck ? CLIENT_DOES_NOT_READ : CLIENT_LEFT;
    free_conn(c);
    if (gone)
        gone(ctx, why);
}

http_conn *http_conn_after(const http_conn *c)
{
    return TAILQ_NEXT(c, entry);
}

bool http_conn_is_idle(const http_conn *c)
{
    return c->phase == PHASE_HEAD && c->in.len == 0;
}

/* Phases. */

static void enter(http_conn *c, http_phase p)
{
    c->phase = p;
    c->since = now_of(c);
    enter_list(c, p != PHASE_ANSWER);
    if (p == PHASE_ANSWER)
        event_del(c->timer);
    else
        set_timer(c, c->since + (p == PHASE_CLOSING ? LINGER : c->s->options.timeout));
}

/* Gets ready for the next request. */
static void await_head(http_conn *c)
{
    http_exchange *x = &c->x;
    exchange_deinit(x);
    *x = (http_exchange){.body.of = c->s->options.memory};
    c->finder = (http_finder){0};
    c->received = 0;
    enter(c, PHASE_HEAD);
}

/* Closes our half only: a full close with the client's bytes unread would reset the connection, and the client might
 * lose its answer. */
static void linger(http_conn *c)
{
    enter(c, PHASE_CLOSING);
    c->lingers = true;
    if (c->tls && !c->broken)
        SSL_shutdown(c->tls);
    shutdown(c->fd, SHUT_WR);
    buf_free(&c->in);
    if (c->half_closed)
        wake(c);
}

/* Goes on to the next request, or to closing: all of the answer is with the kernel. */
static void finish_answer(http_conn *c)
{
    c->s->n_leaving--;
    c->x.complete = false;
    if (!c->x.head.keep_alive || c->s->stopping) {
        linger(c);
        return;
    }
    await_head(c);
    if (!c->in_turn && (c->in.len || c->readable || c->half_closed))
        event_active(c->event, EV_READ, 0);
}

/* Sends without blocking. Returns how much the kernel took. */
static size_t send_now(http_conn *c, const char *bytes, size_t n)
{
    ssize_t k = c->tls ? tls_send(c->tls, bytes, n) : send(c->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        c->broken = true;
    return k > 0 ? (size_t)k : 0;
}

static size_t n_unsent(const http_conn *c)
{
    return c->out.len - c->sent;
}

/* Sends what waits. A complete answer is finished once nothing is left. */
static void flush(http_conn *c)
{
    size_t k = n_unsent(c) ? send_now(c, c->out.data + c->sent, n_unsent(c)) : 0;
    c->sent += k;
    if (k)
        c->progress = now_of(c);
    if (n_unsent(c) == 0) {
        drop_output(c);
        if (c->x.complete)
            finish_answer(c);
    } else if (c->broken) {
        wake(c);
    } else {
        c->stalled = c->timed = true;
        set_timer(c, c->progress + c->s->options.timeout);
    }
}

/* Answers. */

static void add_date(buf *out)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t t = (time_t)clock_wall();
    struct tm utc;
    gmtime_r(&t, &utc);
    buf_printf(out, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[utc.tm_wday], utc.tm_mday, months[utc.tm_mon],
               utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

static void write_head(http_conn *c, int status, const char *type)
{
    const http_head *h = &c->x.head;
    buf_printf(&c->out, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    add_date(&c->out);
    if (type)
        buf_printf(&c->out, "Content-Type: %s\r\n", type);
    if (!h->keep_alive)
        buf_add_str(&c->out, "Connection: close\r\n");
    else if (h->minor == 0)
        buf_add_str(&c->out, "Connection: keep-alive\r\n");
    buf_add(&c->out, c->x.headers.data, c->x.headers.len);
    buf_clear(&c->x.headers);
}

static void complete(http_conn *c)
{
    c->s->n_leaving++;
    c->x.complete = true;
    c->progress = now_of(c);
    charge_output(c);
    flush(c);
}

void http_exchange_add_header(http_exchange *x, const char *name, const char *value)
{
    buf_printf(&x->headers, "%s: %s\r\n", name, value);
}

void http_exchange_send(http_exchange *x, int status, const char *type, const buf *body, bool close)
{
    http_conn *c = conn_of(x);
    x->head.keep_alive = x->head.keep_alive && !close && !c->reserve && !c->s->stopping;
    write_head(c, status, type);
    if (status != 204)
        buf_printf(&c->out, "Content-Length: %zu\r\n", body->len);
    buf_add_str(&c->out, "\r\n");
    if (status != 204 && !(x->head.method && strcmp(x->head.method, "HEAD") == 0))
        buf_add(&c->out, body->data, body->len);
    complete(c);
}

void http_exchange_begin(http_exchange *x, const char *type)
{
    http_conn *c = conn_of(x);
    x->begun = true;
    x->chunked = x->head.minor >= 1;
    x->head.keep_alive = x->head.keep_alive && x->chunked && !c->s->stopping;
    http_exchange_add_header(x, "Cache-Control", "no-cache");
    if (x->chunked)
        http_exchange_add_header(x, "Transfer-Encoding", "chunked");
    write_head(c, 200, type);
    buf_add_str(&c->out, "\r\n"); /* sent with the first bytes of the stream */
    c->progress = now_of(c);
}

static void add_chunk(http_conn *c, const buf *bytes)
{
    if (c->x.chunked) {
        buf_add_number(&c->out, bytes->len, 16);
        buf_add_str(&c->out, "\r\n");
    }
    buf_add(&c->out, bytes->data, bytes->len);
    if (c->x.chunked)
        buf_add_str(&c->out, "\r\n");
}

/* Once something waits, only the loop's thread sends: it knows when the socket is writable. */
void http_exchange_add(http_exchange *x, const buf *bytes)
{
    http_conn *c = conn_of(x);
    if (c->stuck || c->broken || bytes->len == 0)
        return;
    add_chunk(c, bytes);
    if (c->stalled)
        return;
    c->sent = send_now(c, c->out.data, c->out.len);
    c->stalled = n_unsent(c) > 0;
    if (c->stalled)
        return;
    c->sent = 0;
    buf_clear(&c->out);
}

void http_exchange_flush(http_exchange *x)
{
    http_conn *c = conn_of(x);
    if (c->broken)
        wake(c);
    if (c->broken || n_unsent(c) == 0)
        return;
    charge_output(c);
    if (!c->timed)
        c->progress = now_of(c);
    flush(c);
    if (n_unsent(c) <= c->s->options.max_unsent)
        return;
    c->stuck = true;
    wake(c);
}

bool http_exchange_end(http_exchange *x)
{
    http_conn *c = conn_of(x);
    http_exchange_flush(x);
    if (c->stuck) {
        x->gone = NULL; /* our result tells the caller */
        return false;
    }
    if (x->chunked)
        buf_add_str(&c->out, "0\r\n\r\n");
    complete(c);
    return true;
}

const http_head *http_exchange_head(const http_exchange *x)
{
    return &x->head;
}

const char *http_exchange_client(const http_exchange *x)
{
    return conn_of(x)->client;
}

bool http_exchange_is_reserve(const http_exchange *x)
{
    return conn_of(x)->reserve;
}

double http_exchange_start(const http_exchange *x)
{
    return x->start;
}

charged_buf http_exchange_take_body(http_exchange *x)
{
    charged_buf b = x->body;
    x->body = (charged_buf){.of = b.of};
    return b;
}

void http_exchange_charge(http_exchange *x, budget *part)
{
    x->body.of = part;
}

void http_exchange_set_gone(http_exchange *x, void (*gone)(void *ctx, client_loss why), void *ctx)
{
    x->gone = gone;
    x->ctx = ctx;
}

/* Requests. */

static void fail(http_conn *c, const http_fault *f)
{
    c->x.head.keep_alive = false;
    buf_clear(&c->in);
    enter(c, PHASE_ANSWER);
    c->s->events.fault(c->s->events.ctx, &c->x, f);
}

static void fail_with(http_conn *c, int status, const char *code, const char *why)
{
    fail(c, &(http_fault){.status = status, .code = code, .why = why});
}

static void too_large(http_conn *c)
{
    fail_with(c, 413, "body_too_large", "the body is larger than what is taken here");
}

static void no_memory(http_conn *c)
{
    fail_with(c, 503, "out_of_memory", "too many large requests are in hand; try again later");
}

/* Begins to read the body. Sends "100 Continue" to a client that expects it, unless the body is already coming. */
static void begin_body(http_conn *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    c->phase = PHASE_BODY;
    if (!c->x.head.expects_continue || c->in.len > 0)
        return;
    buf_add_str(&c->out, go_on);
    c->progress = now_of(c);
    flush(c);
}

/* Decides, once a head has come, whether its body is wanted. */
static void judge_head(http_conn *c)
{
    http_exchange *x = &c->x;
    http_fault f = {0};
    x->max_body = c->s->events.judge(c->s->events.ctx, x, &f);
    size_t length = x->head.framing == HTTP_LENGTH && x->head.length > CHARGED_BUF_FREE ? (size_t)x->head.length : 0;
    http_body_init(&x->framing, &x->head);
    if (f.status) {
        fail(c, &f);
    } else if (x->head.framing == HTTP_LENGTH && x->head.length > x->max_body) {
        too_large(c);
    } else if (!budget_take(x->body.of, length)) {
        no_memory(c); /* refused now rather than in the middle of the body */
    } else {
        budget_give(x->body.of, length);
        begin_body(c);
    }
}

/* Uses bytes of a head. Returns whether more must come. */
static bool use_head(http_conn *c)
{
    http_fault f;
    if (c->finder.at == 0) {
        c->x.start = c->since = now_of(c);
        enter_list(c, true);
        set_timer(c, c->since + c->s->options.timeout);
    }
    int n = http_find_head(&c->finder, c->in.data, c->in.len, &f);
    if (n == 0)
        return true;
    if (n < 0 || http_parse_head(&c->x.head, &c->finder, c->in.data, (size_t)n, &f)) {
        fail(c, &f);
        return false;
    }
    buf_drop(&c->in, (size_t)n);
    judge_head(c);
    return false;
}

static void begin_answer(http_conn *c)
{
    enter(c, PHASE_ANSWER);
    c->s->events.request(c->s->events.ctx, &c->x);
}

static size_t expected_body(const http_conn *c)
{
    return c->x.head.framing == HTTP_LENGTH ? (size_t)c->x.head.length : c->x.max_body;
}

/* Appends a piece of a body. Reserves memory for the whole body before that if a good part of it has come then: if many
 * bodies took memory piece by piece, all of it might be taken with none of them complete. False: there is none. */
static bool add_piece(http_conn *c, const char *piece, size_t n)
{
    charged_buf *body = &c->x.body;
    bool is_begun = c->x.head.framing == HTTP_LENGTH && body->bytes.len + n > SENT_BEFORE_ALL_IS_RESERVED;
    return (!is_begun || charged_buf_reserve(body, (size_t)c->x.head.length)) &&
           charged_buf_add(body, piece, n, expected_body(c));
}

/* Uses bytes of a body. Returns whether more must come. */
static bool use_body(http_conn *c, const char *data, size_t n, size_t *used)
{
    http_exchange *x = &c->x;
    const char *piece;
    size_t n_piece;
    http_fault f;
    http_body_step step = http_body_next(&x->framing, data, n, used, &piece, &n_piece, &f);
    c->received += *used;
    if (step == HTTP_BODY_END)
        begin_answer(c);
    else if (step == HTTP_BODY_BAD)
        fail(c, &f);
    else if (step == HTTP_BODY_PIECE && n_piece > x->max_body - x->body.bytes.len)
        too_large(c);
    else if (step == HTTP_BODY_PIECE && !add_piece(c, piece, n_piece))
        no_memory(c);
    return step == HTTP_BODY_MORE;
}

/* Uses the bytes in c->in. Returns whether more must come. */
static bool use(http_conn *c)
{
    if (c->phase == PHASE_HEAD)
        return c->in.len == 0 || use_head(c);
    size_t used = 0;
    bool more = use_body(c, c->in.len ? c->in.data : "", c->in.len, &used);
    buf_drop(&c->in, used < c->in.len ? used : c->in.len); /* fail() has cleared it */
    return more;
}

/* Handles the end of a client's input. A request that is incomplete then gets a 400. */
static void on_half_closed(http_conn *c)
{
    c->half_closed = true;
    if (c->phase == PHASE_CLOSING || http_conn_is_idle(c))
        wake(c);
    else
        fail_with(c, 400, "incomplete_request", "the connection was closed before the request was complete");
}

/* Returns how much to read at once. What follows the request waits in memory: so no more than the free allowance. */
static size_t read_size(const http_conn *c)
{
    size_t most = CHARGED_BUF_FREE;
    if (c->phase == PHASE_CLOSING ||
        (c->phase == PHASE_BODY && c->x.head.framing == HTTP_LENGTH && c->x.framing.left > HTTP_SCRATCH))
        most = HTTP_SCRATCH;
    return most;
}

/* Reads once. Returns whether anything came. */
static bool read_some(http_conn *c)
{
    ssize_t n =
        c->tls ? tls_recv(c->tls, c->s->scratch, read_size(c)) : recv(c->fd, c->s->scratch, read_size(c), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        return true;
    c->readable = n > 0;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        c->broken = true;
    if (c->broken)
        wake(c);
    if (n == 0)
        on_half_closed(c);
    if (n > 0 && c->phase != PHASE_CLOSING)
        buf_add(&c->in, c->s->scratch, (size_t)n);
    return n > 0;
}

static bool wants_bytes(const http_conn *c)
{
    return c->phase != PHASE_ANSWER && !c->broken;
}

/* Reads and uses bytes, as far as the phase and fairness allow. */
static void run_turn(http_conn *c)
{
    int left = MAX_PER_TURN;
    c->in_turn = true;
    while (wants_bytes(c) && left > 0) {
        if (c->phase != PHASE_CLOSING && !use(c))
            left--;
        else if (!c->readable || !read_some(c))
            break;
        else
            left--;
    }
    c->in_turn = false;
    if (c->in.len == 0 && c->in.cap > CHARGED_BUF_FREE)
        buf_free(&c->in);
    if (left == 0 && wants_bytes(c))
        event_active(c->event, EV_READ, 0);
}

/* Checks whether a client that waits for its answer has left, or closed its half. */
static void look_at_client(http_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0)
        return;
    if (p.revents & (POLLERR | POLLHUP)) {
        c->broken = true;
        wake(c);
    } else if ((p.revents & POLLRDHUP) && !c->half_closed) {
        c->half_closed = true;
        if (!event_pending(c->timer, EV_TIMEOUT, NULL))
            set_timer(c, now_of(c) + PROBE_AFTER);
    }
}

static void on_event(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    http_conn *c = ctx;
    if ((what & (EV_READ | EV_CLOSED)) ||
        c->tls) /* TLS may need to write in order to read, and to read in order to write */
        c->readable = true;
    if (((what & EV_WRITE) || c->tls) && n_unsent(c) > 0)
        flush(c);
    if (wants_bytes(c))
        run_turn(c);
    if (c->phase == PHASE_ANSWER && (what & (EV_READ | EV_CLOSED)))
        look_at_client(c); /* its request and its end of input may have come together */
}

/* Sends bytes that a live client skips and a dead one answers with a reset. Not needed once a stream has begun: its own
 * bytes do the same. */
static void probe(http_conn *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    c->probed = true;
    if (c->x.head.minor < 1 || c->x.begun || n_unsent(c) > 0)
        return;
    buf_add_str(&c->out, go_on);
    c->progress = now_of(c);
    flush(c);
}

static double deadline_of(const http_conn *c)
{
    double timeout = c->s->options.timeout;
    if (c->phase == PHASE_CLOSING)
        return c->since + LINGER;
    if (n_unsent(c) > 0)
        return c->progress + timeout;
    return c->since + timeout + (c->phase == PHASE_BODY ? (double)c->received / MIN_RATE : 0);
}

/* During an answer the timer serves probes, and clients that do not read. */
static void on_answer_timer(http_conn *c)
{
    if (n_unsent(c) > 0 && now_of(c) >= deadline_of(c)) {
        c->stuck = true;
        http_conn_close(c);
    } else if (n_unsent(c) > 0) {
        set_timer(c, deadline_of(c));
    } else if (c->half_closed && !c->probed) {
        probe(c);
        if (c->broken)
            http_conn_close(c);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    http_conn *c = ctx;
    bool over = c->broken || c->stuck || (c->half_closed && (c->phase == PHASE_CLOSING || http_conn_is_idle(c)));
    if (over)
        http_conn_close(c);
    else if (c->phase == PHASE_ANSWER)
        on_answer_timer(c);
    else if (now_of(c) < deadline_of(c))
        set_timer(c, deadline_of(c));
    else if (c->phase == PHASE_CLOSING || c->in.len + c->received == 0)
        http_conn_close(c);
    else
        fail_with(c, 408, "request_timeout", "the request took too long to come");
}

http_conn *http_conn_new(http_shared *s, int fd, const char *client, bool reserve)
{
    http_conn *c = XNEW(http_conn);
    c->s = s;
    c->fd = fd;
    c->reserve = reserve;
    snprintf(c->client, sizeof c->client, "%s", client);
    if (s->tls) {
        c->tls = SSL_new(s->tls);
        CHECK(c->tls && SSL_set_fd(c->tls, fd) == 1);
        SSL_set_accept_state(c->tls);
    }
    c->event = event_new(s->loop->events, fd, EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, on_event, c);
    c->timer = evtimer_new(s->loop->events, on_timer, c);
    CHECK(c->event && c->timer);
    s->n[reserve]++;
    TAILQ_INSERT_TAIL(&s->busy[reserve], c, entry);
    await_head(c);
    event_add(c->event, NULL);
    return c;
}
