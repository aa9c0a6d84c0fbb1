/* test_frontend.c - the HTTP server against a stand-in for the scheduler, over real sockets
 *
 * Server and stand-in run on one event loop in a thread, the server with three more to write; tests are clients with blocking sockets. The stand-in
 * answers by the adapter's name: "parrot" repeats the prompt's tokens, one or two a message, "flood" does so as fast as it
 * can for ever, "burst" does it in one message that ends it, with logprobs, "mute" says nothing, "full", "late", "large", "failed" and "deadly" end at once for that reason, and
 * "gap" leaves out a token once. Of what happens to "mute" it keeps count. */
#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "frontend/frontend.h"
#include "test.h"

/* Client and server have their sockets in one process here: a number that one has closed is the other's next, and TSan
 * does not see that libevent is done with it by then. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:epoll_ctl\n";
}

static const char *const adapters[] = {"parrot", "flood", "burst", "mute", "full", "late", "large", "failed", "deadly", "gap", "../escape"};

/* A request the stand-in goes on with. */
typedef struct playing {
    uint64_t id;
    uint32_t *token;
    size_t n, n_prompt, max, next;      /* next: index of the next token of output */
    bool flood;
    struct playing *after;
} playing;

static struct {
    struct event_base *loop;
    link_listener *listener;
    net_link *link;
    frontend *f;
    playing *list;
    struct event *turn;
    int quit[2];
    pthread_t thread;
    char dir[64], address[64];
    atomic_int n_submits, n_cancels, n_resubmits, n_again, drop, n_ups, n_played;
    atomic_int gap_done;
} it;

static void send_message(Results *r)
{
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_RESULTS;
    m.results = r;
    link_send(it.link, &m);
}

static void send_results(Tokens *t, End *end)
{
    Results r = RESULTS__INIT;
    r.tokens = &t;
    r.n_tokens = t != NULL;
    r.ends = &end;
    r.n_ends = end != NULL;
    send_message(&r);
}

static void forget(uint64_t id)
{
    for (playing **p = &it.list; *p; p = &(*p)->after)
        if ((*p)->id == id) {
            playing *gone = *p;
            *p = gone->after;
            free(gone->token);
            free(gone);
            return;
        }
}

/* The tokens of a message in the making, and the ends behind them. */
static struct { Tokens *t; End *end; size_t n, cap, n_ends, ends_cap; } step;

static void play(playing *p)
{
    step.t = xgrow(step.t, &step.cap, step.n + 1, sizeof *step.t);
    Tokens *t = &step.t[step.n++];
    tokens__init(t);
    t->id = p->id;
    t->index = (uint32_t)p->next;
    t->tokens = &p->token[p->next % p->n_prompt];
    t->n_tokens = 1;
    p->next++;
    it.n_played++;
    if (p->next < p->max)
        return;
    step.end = xgrow(step.end, &step.ends_cap, step.n_ends + 1, sizeof *step.end);
    End *end = &step.end[step.n_ends++];
    end__init(end);
    end->id = p->id;
    end->why = END_REASON__BY_LENGTH;
}

static void send_step(void)
{
    Results r = RESULTS__INIT;
    r.tokens = XNEW_ARRAY(Tokens *, step.n + 1);
    r.ends = XNEW_ARRAY(End *, step.n_ends + 1);
    while (r.n_tokens < step.n) {
        r.tokens[r.n_tokens] = &step.t[r.n_tokens];
        r.n_tokens++;
    }
    while (r.n_ends < step.n_ends) {
        r.ends[r.n_ends] = &step.end[r.n_ends];
        r.n_ends++;
    }
    if (r.n_tokens)
        send_message(&r);
    while (step.n_ends)
        forget(step.end[--step.n_ends].id);
    step.n = 0;
    free(r.tokens);
    free(r.ends);
}

/* As the scheduler does: one message for all requests. Some have two tokens of each, one behind the other. */
static void on_turn(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
    if (atomic_exchange(&it.drop, 0) && it.link)
        link_drop(it.link, "the test wants it");
    for (int i = 0; i < 200 && it.list && it.link; i++) {
        for (playing *p = it.list; p; p = p->after)
            if ((i < 5 || p->flood) && p->next < p->max)
                play(p);
        if (i != 1)
            send_step();
    }
    send_step();
}

/* All tokens at once, each with 20 others that might have been. */
static void burst(const Request *r)
{
    TopLogprob likely = TOP_LOGPROB__INIT, *top[20];
    Logprobs p = LOGPROBS__INIT;
    LogprobList all = LOGPROB_LIST__INIT;
    Tokens t = TOKENS__INIT;
    End end = END__INIT;
    t.id = end.id = r->id;
    t.n_tokens = all.n_tokens = r->max_tokens;
    t.tokens = XNEW_ARRAY(uint32_t, t.n_tokens);
    all.tokens = XNEW_ARRAY(Logprobs *, t.n_tokens);
    p.top = top;
    p.n_top = 20;
    for (size_t i = 0; i < p.n_top; i++)
        top[i] = &likely;
    for (size_t i = 0; i < t.n_tokens; i++) {
        t.tokens[i] = r->tokens[i % r->n_prompt];
        all.tokens[i] = &p;
    }
    t.logprobs.len = logprob_list__get_packed_size(&all);
    t.logprobs.data = xmalloc(t.logprobs.len);
    logprob_list__pack(&all, t.logprobs.data);
    end.why = END_REASON__BY_LENGTH;
    send_results(&t, &end);
    free(t.tokens);
    free(t.logprobs.data);
    free(all.tokens);
}

static void on_submit(const Request *r)
{
    static const char *const ends[] = {[END_REASON__BY_FAILURE] = "failed", [END_REASON__QUEUE_FULL] = "full", [END_REASON__TOO_LATE] = "late",
                                       [END_REASON__TOO_LARGE] = "large", [END_REASON__KILLS_WORKERS] = "deadly"};
    it.n_submits++;
    it.n_resubmits += r->n_tokens > r->n_prompt;
    it.n_again += r->again;
    for (uint32_t why = END_REASON__BY_FAILURE; why <= END_REASON__KILLS_WORKERS; why++)
        if (strcmp(r->adapter, ends[why]) == 0) {
            End end = END__INIT;
            end.id = r->id;
            end.why = why;
            end.message = (char *)(why == END_REASON__TOO_LARGE ? "it does not fit" : "");
            end.retry_after = why == END_REASON__QUEUE_FULL ? 3.5 : 0;
            send_results(NULL, &end);
            return;
        }
    if (strcmp(r->adapter, "burst") == 0)
        burst(r);
    if (strcmp(r->adapter, "burst") == 0 || strcmp(r->adapter, "mute") == 0)
        return;
    playing *p = XNEW(playing);
    *p = (playing){.id = r->id, .n = r->n_tokens, .n_prompt = r->n_prompt, .max = r->max_tokens, .next = r->n_tokens - r->n_prompt,
                   .flood = strcmp(r->adapter, "flood") == 0, .after = it.list};
    p->token = XNEW_ARRAY(uint32_t, p->n);
    memcpy(p->token, r->tokens, p->n * sizeof *p->token);
    if (strcmp(r->adapter, "gap") == 0 && !it.gap_done && p->next == 0) {
        it.gap_done = 1;
        p->next = 1;
    }
    it.list = p;
}

static void on_message(void *ctx, net_link *l, const Message *m)
{
    (void)ctx;
    (void)l;
    if (m->what_case == MESSAGE__WHAT_SUBMIT) {
        on_submit(m->submit);
    } else {
        assert(m->what_case == MESSAGE__WHAT_CANCEL);
        it.n_cancels++;
        forget(m->cancel->id);
    }
}

static void on_up(void *ctx, net_link *l, const Hello *hello)
{
    (void)ctx;
    (void)hello;
    it.link = l;
    it.n_ups++;
}

static void on_down(void *ctx, net_link *l, const char *why)
{
    (void)ctx;
    (void)l;
    (void)why;
    it.link = NULL;
    while (it.list)
        forget(it.list->id);
}

static void on_quit(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
    event_base_loopbreak(it.loop);
}

static void *run_loop(void *ctx)
{
    event_base_dispatch(it.loop);
    return ctx;
}

static void make_adapters(void)
{
    strcpy(it.dir, "/tmp/test_frontend_XXXXXX");
    assert_non_null(mkdtemp(it.dir));
    for (size_t i = 0; i + 1 < sizeof adapters / sizeof adapters[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", it.dir, adapters[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        strcat(path, "/adapter_config.json");
        fclose(fopen(path, "w"));
    }
}

static int start(void **state)
{
    (void)state;
    err e;
    make_adapters();
    log_set_level(LOG_ERROR);
    it.loop = event_base_new();
    link_options link = link_options_default();
    link.secret = "s";
    link.role = HELLO__ROLE__SCHEDULER;
    link.name = "stand-in";
    const link_events events = {.up = on_up, .message = on_message, .down = on_down};
    it.listener = link_listen(it.loop, "127.0.0.1:0", &link, &events, &e);
    assert_non_null(it.listener);
    static const int eos[] = {1};
    frontend_options o = frontend_options_default();
    o.listen = "127.0.0.1:0";
    o.scheduler = link_listener_address(it.listener);
    o.link.secret = "s";
    o.link.model = "demo";
    o.model_dir = TEST_DATA "/../demo/model";
    o.model_name = "base";
    o.adapters_dir = it.dir;
    o.context = 1024;
    o.vocab = 1536;
    o.eos = eos;
    o.n_eos = 1;
    o.max_body = 100000;
    o.client_timeout = 2;
    o.send_buffer = 4096;
    o.threads = 4;
    it.f = frontend_new(it.loop, &o, &e);
    if (!it.f)
        fail_msg("%s", e.msg);
    strcpy(it.address, frontend_address(it.f));
    assert_int_equal(pipe(it.quit), 0);
    event_base_once(it.loop, it.quit[0], EV_READ, on_quit, NULL, NULL);
    it.turn = event_new(it.loop, -1, EV_PERSIST, on_turn, NULL);
    event_add(it.turn, &(struct timeval){.tv_usec = 1000});
    return pthread_create(&it.thread, NULL, run_loop, NULL);
}

static int stop(void **state)
{
    (void)state;
    assert_int_equal(write(it.quit[1], "", 1), 1);
    pthread_join(it.thread, NULL);
    frontend_free(it.f);
    link_listener_free(it.listener);
    while (it.list)
        forget(it.list->id);
    free(step.t);
    free(step.end);
    event_free(it.turn);
    event_base_free(it.loop);
    char *command = xasprintf("rm -r %s", it.dir);
    int rc = system(command);
    free(command);
    close(it.quit[0]);
    close(it.quit[1]);
    return rc;
}

/* A client. */

static int dial(int receive_buffer)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(it.address, ':') + 1))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        text += k;
        n -= (size_t)k;
    }
}

static void post(int fd, const char *path, const char *body, const char *headers)
{
    buf request = {0};
    buf_printf(&request, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n%s", path, headers, strlen(body), body);
    say(fd, request.data, request.len);
    buf_free(&request);
}

/* Everything until the server closes. */
static void read_all(int fd, buf *out)
{
    char piece[4096];
    buf_add(out, "", 0);
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;)
        buf_add(out, piece, (size_t)n);
    close(fd);
}

/* The same of many at once: none of them is kept waiting. */
static void read_many(const int *fd, buf *out, int n)
{
    struct pollfd *p = XNEW_ARRAY(struct pollfd, (size_t)n);
    for (int i = 0; i < n; i++) {
        p[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
        buf_add(&out[i], "", 0);
    }
    for (int left = n; left > 0;) {
        assert_true(poll(p, (nfds_t)n, 20000) > 0);
        for (int i = 0; i < n; i++) {
            char piece[4096];
            ssize_t k = p[i].revents ? recv(fd[i], piece, sizeof piece, MSG_DONTWAIT) : -1;
            if (k > 0)
                buf_add(&out[i], piece, (size_t)k);
            if (k != 0)
                continue;
            close(fd[i]);
            p[i].fd = -1;
            left--;
        }
    }
    free(p);
}

/* The answer to one request on a connection of its own. */
static buf ask(const char *path, const char *body)
{
    buf answer = {0};
    int fd = dial(0);
    post(fd, path, body, "Connection: close\r\n");
    read_all(fd, &answer);
    return answer;
}

static int status_of(const buf *answer)
{
    return answer->len > 12 ? atoi(answer->data + 9) : -1;
}

static bool has(const buf *answer, const char *text)
{
    return strstr(answer->data, text) != NULL;
}

static void expect(const char *path, const char *body, int status, const char *text)
{
    buf answer = ask(path, body);
    if (status_of(&answer) != status || !has(&answer, text))
        fail_msg("%s %s: wanted %d and %s, got %s", path, body, status, text, answer.data);
    buf_free(&answer);
}

static void wait_for(atomic_int *counter, int value)
{
    for (int i = 0; i < 10000 && *counter < value; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(*counter >= value);
}

static buf get(const char *path)
{
    buf answer = {0}, request = {0};
    int fd = dial(0);
    buf_printf(&request, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    say(fd, request.data, request.len);
    buf_free(&request);
    read_all(fd, &answer);
    return answer;
}

static long metric(const char *name)
{
    buf page = get("/metrics"), line = {0};
    buf_printf(&line, "\n%s ", name);
    const char *at = strstr(page.data, line.data);
    assert_non_null(at);
    long value = atol(at + line.len);
    buf_free(&line);
    buf_free(&page);
    return value;
}

/* Calls of completions that ended, whichever way. */
static long n_completions_ended(void)
{
    static const char line[] = "\npunica_http_requests_total{route=\"/v1/completions\"";
    buf page = get("/metrics");
    long n = 0;
    for (const char *at = page.data; (at = strstr(at, line)); at++)
        n += atol(strchr(at, '}') + 1);
    buf_free(&page);
    return n;
}

static void wait_for_metric(const char *name, long value)
{
    for (int i = 0; i < 2000 && metric(name) != value; i++)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    assert_int_equal(metric(name), value);
}

#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"

static void test_whole(void **state)
{
    (void)state;
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"On March 5, Eva\",\"max_tokens\":500}", 200, "\"text\":\"On March 5, EvaOn March 5, Eva");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"On March 5, Eva bought\",\"max_tokens\":500,\"stop\":[\"Eva b\", \"zz\"]}", 200,
           "\"text\":\"On March 5, \",\"logprobs\":null,\"finish_reason\":\"stop\"");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[\"a\",\"b\"],\"n\":2,\"max_tokens\":2}", 200, "\"index\":3");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[22,23],\"max_tokens\":3}", 200, "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"total_tokens\":5}");
    expect(CHAT, "{\"model\":\"parrot\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}],\"max_tokens\":12}", 200, "\"role\":\"assistant\"");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,1,23],\"max_tokens\":9}", 200, "\"completion_tokens\":2");     /* 1 ends it */
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,1,23],\"max_tokens\":9,\"ignore_eos\":true}", 200, "\"completion_tokens\":9");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"Eva\",\"echo\":true,\"max_tokens\":1}", 200, "\"text\":\"Eva");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"<|im_start|>Eva\",\"echo\":true,\"max_tokens\":1}", 200, "\"text\":\"<|im_start|>Eva");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"echo\":true,\"max_tokens\":2,\"ignore_eos\":true}", 200, "\"prompt_tokens\":2");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"Eva\",\"max_tokens\":5000}", 200, "\"total_tokens\":1024");
}

static void test_stream(void **state)
{
    (void)state;
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3,\"stream\":true}", 200, "data: [DONE]");
    buf a = ask(CHAT, "{\"model\":\"parrot\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}],\"max_tokens\":12,\"stream\":true,\"n\":2,"
                      "\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(status_of(&a), 200);
    assert_true(has(&a, "text/event-stream") && has(&a, "no-cache") && has(&a, "x-request-id: chatcmpl-") && has(&a, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_true(has(&a, "\"index\":1") && has(&a, "\"completion_tokens\":24") && has(&a, "\"finish_reason\":\"length\""));
    buf_free(&a);
}

/* The text of all events of a stream, or of one answer, as JSON writes it. */
static buf text_of(const buf *answer)
{
    static const char begin[] = "\"text\":\"";
    buf text = {0};
    buf_add(&text, "", 0);
    for (const char *at = answer->data; (at = strstr(at, begin));) {
        at += strlen(begin);
        buf_add(&text, at, (size_t)(strstr(at, "\",\"logprobs\"") - at));
    }
    return text;
}

enum { MANY = 48 };

static char *nth_request(int i, bool stream)
{
    return xasprintf("{\"model\":\"parrot\",\"prompt\":\"On March %d, Eva\",\"max_tokens\":%d,\"stream\":%s%s%s}", i, 40 + 7 * i,
                     stream ? "true" : "false", i % 5 == 1 ? ",\"stop\":\"EvaOn March\",\"min_tokens\":30" : "", i % 7 == 2 ? ",\"logprobs\":2" : "");
}

static int send_nth(int i, bool stream)
{
    char *request = nth_request(i, stream);
    int to = dial(i % 6 == 3 ? 4096 : 0);
    post(to, COMPLETIONS, request, "Connection: close\r\n");
    free(request);
    return to;
}

/* So many that several threads write: a stream's pieces are the whole answer, though others leave or have two choices. */
static void test_many_streams(void **state)
{
    (void)state;
    int fd[3 * MANY], *streamed = fd, *whole = fd + MANY, *pair = fd + 2 * MANY, leaving[MANY];
    buf answer[3 * MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        streamed[i] = send_nth(i, true);
        whole[i] = send_nth(i, false);
        leaving[i] = send_nth(i, true);
        post(pair[i] = dial(0), COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"x\",\"n\":2,\"stream\":true,\"max_tokens\":50}", "Connection: close\r\n");
    }
    for (int i = 0; i < MANY; i++)
        close(leaving[i]);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);          /* until sockets are full */
    read_many(fd, answer, 3 * MANY);
    for (int i = 0; i < MANY; i++) {
        const buf *pieces = &answer[i], *all = &answer[MANY + i], *two = &answer[2 * MANY + i];
        buf wanted = text_of(all), got = text_of(pieces);
        assert_int_equal(status_of(all), 200);
        assert_true(wanted.len > 40 && has(pieces, "data: [DONE]"));
        assert_string_equal(got.data, wanted.data);
        assert_true(has(two, "data: [DONE]") && has(two, "\"index\":0") && has(two, "\"index\":1"));
        buf_free(&wanted);
        buf_free(&got);
    }
    for (int i = 0; i < 3 * MANY; i++)
        buf_free(&answer[i]);
    wait_for_metric("punica_live_requests", 0);
}

static void test_errors(void **state)
{
    (void)state;
    expect(COMPLETIONS, "{\"model\":\"full\",\"prompt\":\"x\"}", 429, "Retry-After: 3");
    expect(COMPLETIONS, "{\"model\":\"full\",\"prompt\":\"x\",\"stream\":true}", 429, "\"code\":\"queue_full\"");
    expect(COMPLETIONS, "{\"model\":\"late\",\"prompt\":\"x\"}", 503, "\"type\":\"server_error\"");
    expect(COMPLETIONS, "{\"model\":\"large\",\"prompt\":\"x\"}", 400, "it does not fit");
    expect(COMPLETIONS, "{\"model\":\"failed\",\"prompt\":\"x\"}", 500, "generation_failed");
    expect(COMPLETIONS, "{\"model\":\"deadly\",\"prompt\":\"x\"}", 500, "worker");
    expect(COMPLETIONS, "{\"model\":\"nobody\",\"prompt\":\"x\"}", 404, "\"code\":\"model_not_found\"");
    expect(COMPLETIONS, "{\"model\":\"../escape\",\"prompt\":\"x\"}", 404, "model_not_found");
    expect(COMPLETIONS, "{\"model\":\"\",\"prompt\":\"x\"}", 404, "model_not_found");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":\"x\",\"temperature\":-1}", 400, "\"param\":\"temperature\"");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[]}", 400, "the prompt is empty");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[1536]}", 400, "vocabulary");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":\"x\",\"max_tokens\":9000,\"min_tokens\":8000}", 400, "\"param\":\"min_tokens\"");
    expect(COMPLETIONS, "{", 400, "not valid JSON");
    expect(COMPLETIONS, "", 400, "not valid JSON");
    expect("/v1/nothing", "", 404, "unknown_url");
    expect("/v1/models", "", 405, "Allow: GET");
    buf a = get(COMPLETIONS);
    assert_int_equal(status_of(&a), 405);
    buf_free(&a);

    buf long_prompt = {0};
    buf_add_str(&long_prompt, "{\"model\":\"base\",\"prompt\":[1");
    for (int i = 0; i < 1023; i++)
        buf_add_str(&long_prompt, ",1");
    buf_add_str(&long_prompt, "]}");
    expect(COMPLETIONS, long_prompt.data, 400, "\"code\":\"context_length_exceeded\"");
    buf_free(&long_prompt);
}

static void test_large_bodies(void **state)
{
    (void)state;
    for (size_t n = 100001; n < 10000000; n *= 30) {
        char *body = xmalloc(n + 1);
        memset(body, ' ', n);
        body[n] = 0;
        expect(COMPLETIONS, body, 413, "");
        free(body);
    }
}

static void test_models(void **state)
{
    (void)state;
    buf a = get("/v1/models");
    assert_true(status_of(&a) == 200 && has(&a, "\"id\":\"base\"") && has(&a, "\"id\":\"parrot\"") && !has(&a, "escape"));
    buf_free(&a);
    char path[128];
    snprintf(path, sizeof path, "%s/brand new", it.dir);
    mkdir(path, 0700);
    strcat(path, "/adapter_config.json");
    fclose(fopen(path, "w"));
    a = get("/v1/models/brand%20new");
    assert_true(status_of(&a) == 200 && has(&a, "\"parent\":\"base\""));
    buf_free(&a);
    a = get("/v1/models/none");
    assert_int_equal(status_of(&a), 404);
    buf_free(&a);
    a = get("/health");
    assert_int_equal(status_of(&a), 200);
    buf_free(&a);
}

/* One whose last piece is too much is cut off, not left with a stream that lacks its end. */
static void test_slow_reader_at_the_end(void **state)
{
    (void)state;
    long before = metric("punica_clients_cut_off_total");
    buf all = {0};
    int fd = dial(4096);
    post(fd, CHAT, "{\"model\":\"burst\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,\"logprobs\":true,\"max_tokens\":900}", "");
    wait_for_metric("punica_clients_cut_off_total", before + 1);
    read_all(fd, &all);
    assert_false(has(&all, "[DONE]"));
    wait_for_metric("punica_live_calls", 0);
    buf_free(&all);
}

/* One that reads slowly, but reads, gets all of its answer: whole or as a stream. */
static void test_steady_reader(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        char *body = xasprintf("{\"model\":\"burst\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"max_tokens\":180,\"stream\":%s}",
                               stream ? "true" : "false");
        buf all = {0};
        int fd = dial(4096);
        post(fd, CHAT, body, "Connection: close\r\n");
        char piece[16384];
        for (ssize_t n; (n = recv(fd, piece, sizeof piece, MSG_WAITALL)) > 0; nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL))
            buf_add(&all, piece, (size_t)n);
        assert_true(all.len > 10 * sizeof piece);               /* longer than client_timeout */
        const char *end = stream ? "data: [DONE]\n\n\r\n0\r\n\r\n" : "}";
        assert_string_equal(all.data + all.len - strlen(end), end);
        close(fd);
        free(body);
        buf_free(&all);
    }
}

/* The head alone: whatever follows on the connection is the next answer. */
static void test_head(void **state)
{
    (void)state;
    static const char *const paths[] = {"/health", "/v1/models/parrot", "/v1/models/none", COMPLETIONS, "/nothing"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        buf two = {0}, all = {0}, alone = get(paths[i]);
        int fd = dial(0);
        buf_printf(&two, "HEAD %s HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", paths[i]);
        say(fd, two.data, two.len);
        read_all(fd, &all);
        const char *length = strstr(alone.data, "Content-Length"), *head_end = strstr(all.data, "\r\n\r\n");
        assert_true(length && head_end && status_of(&all) == status_of(&alone));
        char *line = xstrndup(length, strcspn(length, "\r"));
        const char *said = strstr(all.data, line);
        assert_true(said && said < head_end);
        assert_memory_equal(head_end + 4, "HTTP/1.1 200", 12);
        free(line);
        buf_free(&two);
        buf_free(&all);
        buf_free(&alone);
    }
    buf answer = {0};
    int fd = dial(0);
    say(fd, "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 34);
    read_all(fd, &answer);
    assert_int_equal(status_of(&answer), 501);
    buf_free(&answer);
}

/* Two requests in one packet, and a third afterwards, on one connection. */
static void test_pipelining(void **state)
{
    (void)state;
    int fd = dial(0);
    buf two = {0}, all = {0};
    static const char body[] = "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3,\"stream\":true}";
    for (int i = 0; i < 2; i++)
        buf_printf(&two, "POST " COMPLETIONS " HTTP/1.1\r\nHost: x\r\nx-request-id: no-%d\r\nContent-Length: %zu\r\n\r\n%s", i, strlen(body), body);
    say(fd, two.data, two.len);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    post(fd, COMPLETIONS, body, "Connection: close\r\nx-request-id: bad id\r\n");
    read_all(fd, &all);
    assert_true(has(&all, "x-request-id: no-0") && has(&all, "x-request-id: no-1") && has(&all, "x-request-id: cmpl-"));
    int done = 0;
    for (const char *p = all.data; (p = strstr(p, "[DONE]")); p++)
        done++;
    assert_int_equal(done, 3);
    buf_free(&two);
    buf_free(&all);
}

/* Whatever is sent, the server stays up. */
static void test_garbage(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\r\n\r\n", "GET\r\n\r\n", "GET /health\r\n\r\n", "POST " COMPLETIONS " HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST " COMPLETIONS " HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{}", "GET / HTTP/9.9\r\n\r\n",
        "POST " COMPLETIONS " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "GET http://[::1 HTTP/1.1\r\n\r\n", "GET * HTTP/1.1\r\n\r\n",
        "POST " COMPLETIONS " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "BREW /pot HTTP/1.1\r\n\r\n",
        "GET /v1/models/%00%ff%zz HTTP/1.1\r\nConnection: close\r\n\r\n", "GET /v1/models/%ff%fe HTTP/1.1\r\nConnection: close\r\n\r\n"};
    int half_closed[sizeof bad / sizeof bad[0]];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = dial(0);
        say(fd, bad[i], strlen(bad[i]));
        half_closed[i] = fd;
        shutdown(fd, SHUT_WR);
    }
    for (uint64_t seed = 0; seed < 200; seed++) {
        char bytes[512];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)rng_u64(seed, i);
        static const char *const heads[] = {"", "POST " COMPLETIONS " HTTP/1.1\r\n", "GET "};
        int fd = dial(0);
        say(fd, heads[seed % 3], strlen(heads[seed % 3]));
        say(fd, bytes, sizeof bytes);
        close(fd);
    }
    int fd = dial(0);
    for (int i = 0; i < 2000; i++)
        say(fd, "x-header: a line that goes on and on and on and on and on and on\r\n", 67);
    close(fd);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        buf answer = {0};
        read_all(half_closed[i], &answer);      /* in the end each is closed */
        buf_free(&answer);
    }
    buf health = get("/health");
    assert_int_equal(status_of(&health), 200);
    buf_free(&health);
}

/* Bodies that come in pieces, or wait to be asked for. */
static void test_bodies(void **state)
{
    (void)state;
    static const char chunked[] = "POST " COMPLETIONS " HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "17\r\n{\"model\":\"parrot\",\"max_\r\n1d\r\ntokens\":3,\"prompt\":[22,23]}  \r\n0\r\n\r\n";
    buf answer = {0};
    int fd = dial(0);
    for (size_t i = 0; i < strlen(chunked); i++)
        say(fd, chunked + i, 1);
    read_all(fd, &answer);
    if (status_of(&answer) != 200)
        fail_msg("%s", answer.data);
    buf_clear(&answer);
    fd = dial(0);
    char go_on[26] = "";
    say(fd, "POST " COMPLETIONS " HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 33\r\n\r\n", 94);
    assert_int_equal(recv(fd, go_on, sizeof go_on - 1, MSG_WAITALL), 25);
    assert_string_equal(go_on, "HTTP/1.1 100 Continue\r\n\r\n");
    say(fd, "{\"model\":\"base\",\"prompt\":[22,23]}", 33);
    read_all(fd, &answer);
    assert_int_equal(status_of(&answer), 200);
    buf_free(&answer);
}

/* Bodies that are prepared on the thread: served like others, and nothing is left of one whose client has gone. */
static void test_long_bodies(void **state)
{
    (void)state;
    char *body = xmalloc(90001);
    memset(body, ' ', 90000);
    body[90000] = 0;
    static const char request[] = "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3}";
    memcpy(body + 45000, request, strlen(request));
    expect(COMPLETIONS, body, 200, "\"completion_tokens\":3");
    buf two = {0};
    int kept = dial(0);                         /* behind a short one, on the same connection */
    post(kept, COMPLETIONS, request, "");
    post(kept, COMPLETIONS, body, "Connection: close\r\n");
    read_all(kept, &two);
    const char *second = strstr(two.data + 1, "HTTP/1.1 ");
    assert_true(second && strncmp(second, "HTTP/1.1 200", 12) == 0);
    buf_free(&two);
    static const char begin[] = "{\"model\":\"parrot\",\"prompt\":\"";
    memcpy(body, begin, strlen(begin));
    memset(body + strlen(begin), 'x', 90000 - strlen(begin));
    expect(COMPLETIONS, body, 400, "not valid JSON");
    memcpy(body + 89998, "\"}", 2);
    expect(COMPLETIONS, body, 400, "context_length_exceeded");
    long ended = n_completions_ended();
    for (int i = 0; i < 20; i++) {
        int fd = dial(0);
        post(fd, COMPLETIONS, body, "");
        close(fd);
    }
    for (int i = 0; i < 2000 && n_completions_ended() < ended + 20; i++)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    assert_int_equal(n_completions_ended(), ended + 20);
    assert_int_equal(metric("punica_live_calls"), 0);
    free(body);
}

/* A client that leaves, before or after the first token: its request is cancelled at once. */
static void test_disconnect(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        int before = it.n_submits, cancelled = it.n_cancels;
        int fd = dial(0);
        post(fd, COMPLETIONS, stream ? "{\"model\":\"mute\",\"prompt\":\"x\",\"stream\":true}" : "{\"model\":\"mute\",\"prompt\":\"x\",\"n\":3}", "");
        wait_for(&it.n_submits, before + (stream ? 1 : 3));
        close(fd);
        wait_for(&it.n_cancels, cancelled + (stream ? 1 : 3));
    }
    int cancelled = it.n_cancels;
    int fd = dial(0);
    char piece[100];
    post(fd, COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"x\",\"stream\":true,\"max_tokens\":1000}", "");
    assert_true(recv(fd, piece, sizeof piece, 0) > 0);
    close(fd);
    wait_for(&it.n_cancels, cancelled + 1);
    wait_for_metric("punica_live_calls", 0);
    wait_for_metric("punica_live_requests", 0);
}

/* One that asks for a flood and does not read is cut off; another, meanwhile, is served. */
static void test_slow_reader(void **state)
{
    (void)state;
    long before = metric("punica_clients_cut_off_total");
    int fd = dial(4096);
    post(fd, COMPLETIONS, "{\"model\":\"flood\",\"prompt\":\"x\",\"stream\":true,\"max_tokens\":1000,\"n\":20}", "");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3,\"stream\":true}", 200, "data: [DONE]");
    wait_for_metric("punica_clients_cut_off_total", before + 1);
    wait_for_metric("punica_live_requests", 0);
    close(fd);
}

/* One that stops in the middle of its request, or says nothing after its answer, is closed after a while. */
static void test_idle(void **state)
{
    (void)state;
    buf all = {0};
    int half = dial(0), idle = dial(0);
    say(half, "POST /v1/compl", 14);
    post(idle, COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3}", "");
    read_all(half, &all);
    buf_clear(&all);
    read_all(idle, &all);
    assert_int_equal(status_of(&all), 200);
    buf_free(&all);
}

/* A stream goes on over lost links and missing tokens as if nothing had happened. */
static void test_lost_link(void **state)
{
    (void)state;
    static const char body[] = "{\"model\":\"parrot\",\"prompt\":[22,23,24,25,26,27,28],\"max_tokens\":400}";
    buf whole = ask(COMPLETIONS, body), again = {0};
    int played = it.n_played, ups = it.n_ups;
    int fd = dial(0);
    post(fd, COMPLETIONS, body, "Connection: close\r\n");
    wait_for(&it.n_played, played + 50);
    it.drop = 1;
    wait_for(&it.n_ups, ups + 1);
    read_all(fd, &again);
    assert_int_equal(status_of(&again), 200);
    assert_string_equal(strstr(again.data, "\"choices\""), strstr(whole.data, "\"choices\""));
    assert_true(it.n_resubmits > 0);
    buf_free(&again);

    buf gap = ask(COMPLETIONS, "{\"model\":\"gap\",\"prompt\":[22,23,24,25,26,27,28],\"max_tokens\":400}");
    assert_string_equal(strstr(gap.data, "\"choices\""), strstr(whole.data, "\"choices\""));
    assert_true(it.gap_done);
    buf_free(&gap);
    buf_free(&whole);

    whole = ask(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23,24],\"max_tokens\":2}");
    it.gap_done = 0;                            /* the end comes with the token after the gap */
    gap = ask(COMPLETIONS, "{\"model\":\"gap\",\"prompt\":[22,23,24],\"max_tokens\":2}");
    assert_string_equal(strstr(gap.data, "\"choices\""), strstr(whole.data, "\"choices\""));
    buf_free(&gap);
    buf_free(&whole);
    assert_true(metric("punica_scheduler_reconnections_total") >= 2);
}

/* What was submitted before says so, with and without output; what is new does not. */
static void test_submitted_again(void **state)
{
    (void)state;
    int submits = it.n_submits, again = it.n_again, cancels = it.n_cancels;
    int fd = dial(0);
    post(fd, COMPLETIONS, "{\"model\":\"mute\",\"prompt\":\"x\",\"n\":2}", "");
    wait_for(&it.n_submits, submits + 2);
    assert_int_equal(it.n_again, again);
    it.drop = 1;
    wait_for(&it.n_submits, submits + 4);
    assert_int_equal(it.n_again, again + 2);
    close(fd);
    wait_for(&it.n_cancels, cancels + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),      cmocka_unit_test(test_stream),     cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_large_bodies), cmocka_unit_test(test_models),   cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_garbage),    cmocka_unit_test(test_bodies),     cmocka_unit_test(test_long_bodies),
        cmocka_unit_test(test_disconnect),
        cmocka_unit_test(test_slow_reader), cmocka_unit_test(test_slow_reader_at_the_end), cmocka_unit_test(test_steady_reader),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_lost_link),
        cmocka_unit_test(test_submitted_again),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
