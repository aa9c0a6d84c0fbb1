/* test_frontend.c - the HTTP server against a stand-in for the scheduler (stand_in.h), over real sockets */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/test.h"
#include "support/http_client.h"
#include "support/stand_in.h"

static void expect(const char *path, const char *body, int status, const char *text)
{
    buf answer = http_client_ask(path, body);
    if (http_client_status(&answer) != status || !http_client_has(&answer, text))
        fail_msg("%s %s: wanted %d and %s, got %s", path, body, status, text, answer.data);
    buf_free(&answer);
}

static void wait_for(atomic_int *counter, int value)
{
    for (int i = 0; i < 10000 && *counter < value; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(*counter >= value);
}

static long metric(const char *name)
{
    buf page = http_client_get("/metrics"), line = {0};
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
    buf page = http_client_get("/metrics");
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
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"On March 5, Eva\",\"max_tokens\":500}", 200,
           "\"text\":\"On March 5, EvaOn March 5, Eva");
    expect(
        COMPLETIONS,
        "{\"model\":\"parrot\",\"prompt\":\"On March 5, Eva bought\",\"max_tokens\":500,\"stop\":[\"Eva b\", \"zz\"]}",
        200, "\"text\":\"On March 5, \",\"logprobs\":null,\"finish_reason\":\"stop\"");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[\"a\",\"b\"],\"n\":2,\"max_tokens\":2}", 200, "\"index\":3");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[22,23],\"max_tokens\":3}", 200,
           "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"total_tokens\":5,");
    expect(CHAT, "{\"model\":\"parrot\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}],\"max_tokens\":12}", 200,
           "\"role\":\"assistant\"");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,1,23],\"max_tokens\":9}", 200,
           "\"completion_tokens\":2"); /* 1 ends it */
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,1,23],\"max_tokens\":9,\"ignore_eos\":true}", 200,
           "\"completion_tokens\":9");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"Eva\",\"echo\":true,\"max_tokens\":1}", 200,
           "\"text\":\"Eva");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"<|im_start|>Eva\",\"echo\":true,\"max_tokens\":1}", 200,
           "\"text\":\"<|im_start|>Eva");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"echo\":true,\"max_tokens\":2,\"ignore_eos\":true}",
           200, "\"prompt_tokens\":2");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"Eva\",\"max_tokens\":5000}", 200, "\"total_tokens\":1024");
}

static void test_stream(void **state)
{
    (void)state;
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3,\"stream\":true}", 200,
           "data: [DONE]");
    buf a = http_client_ask(
        CHAT, "{\"model\":\"parrot\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}],\"max_tokens\":12,"
              "\"stream\":true,\"n\":2,"
              "\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(http_client_status(&a), 200);
    assert_true(http_client_has(&a, "text/event-stream") && http_client_has(&a, "no-cache") &&
                http_client_has(&a, "x-request-id: chatcmpl-") &&
                http_client_has(&a, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_true(http_client_has(&a, "\"index\":1") && http_client_has(&a, "\"completion_tokens\":24") &&
                http_client_has(&a, "\"finish_reason\":\"length\""));
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
    return xasprintf("{\"model\":\"parrot\",\"prompt\":\"On March %d, Eva\",\"max_tokens\":%d,\"stream\":%s%s%s}", i,
                     40 + 7 * i, stream ? "true" : "false",
                     i % 5 == 1 ? ",\"stop\":\"EvaOn March\",\"min_tokens\":30" : "",
                     i % 7 == 2 ? ",\"logprobs\":2" : "");
}

static int send_nth(int i, bool stream)
{
    char *request = nth_request(i, stream);
    int to = http_client_dial(i % 6 == 3 ? 4096 : 0);
    http_client_post(to, COMPLETIONS, request, "Connection: close\r\n");
    free(request);
    return to;
}

/* So many that several threads write: a stream's pieces are the whole answer, though others leave or have two choices.
 */
static void test_many_streams(void **state)
{
    (void)state;
    int fd[3 * MANY], *streamed = fd, *whole = fd + MANY, *pair = fd + 2 * MANY, leaving[MANY];
    buf answer[3 * MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        streamed[i] = send_nth(i, true);
        whole[i] = send_nth(i, false);
        leaving[i] = send_nth(i, true);
        http_client_post(pair[i] = http_client_dial(0), COMPLETIONS,
                         "{\"model\":\"parrot\",\"prompt\":\"x\",\"n\":2,\"stream\":true,\"max_tokens\":50}",
                         "Connection: close\r\n");
    }
    for (int i = 0; i < MANY; i++)
        close(leaving[i]);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* until sockets are full */
    http_client_read_many(fd, answer, 3 * MANY);
    for (int i = 0; i < MANY; i++) {
        const buf *pieces = &answer[i], *all = &answer[MANY + i], *two = &answer[2 * MANY + i];
        buf wanted = text_of(all), got = text_of(pieces);
        assert_int_equal(http_client_status(all), 200);
        assert_true(wanted.len > 40 && http_client_has(pieces, "data: [DONE]"));
        assert_string_equal(got.data, wanted.data);
        assert_true(http_client_has(two, "data: [DONE]") && http_client_has(two, "\"index\":0") &&
                    http_client_has(two, "\"index\":1"));
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
    expect(COMPLETIONS, "{\"model\":\"full\",\"prompt\":\"x\"}", 429, "Retry-After: 4"); /* seconds, rounded up */
    expect(COMPLETIONS, "{\"model\":\"full\",\"prompt\":\"x\",\"stream\":true}", 429, "\"code\":\"queue_full\"");
    expect(COMPLETIONS, "{\"model\":\"late\",\"prompt\":\"x\"}", 503, "\"type\":\"server_error\"");
    expect(COMPLETIONS, "{\"model\":\"large\",\"prompt\":\"x\"}", 400, "it does not fit");
    expect(COMPLETIONS, "{\"model\":\"failed\",\"prompt\":\"x\"}", 500, "generation_failed");
    expect(COMPLETIONS, "{\"model\":\"deadly\",\"prompt\":\"x\"}", 500, "worker");
    expect(COMPLETIONS, "{\"model\":\"nobody\",\"prompt\":\"x\"}", 404, "\"code\":\"model_not_found\"");
    expect(COMPLETIONS, "{\"model\":\"../escape\",\"prompt\":\"x\"}", 404, "model_not_found");
    const char *folder = strrchr(stand_in_adapters_dir(), '/'); /* which is there */
    char *way_out = xasprintf("{\"model\":\"..%s/parrot\",\"prompt\":\"x\"}", folder);
    expect(COMPLETIONS, way_out, 404, "model_not_found");
    free(way_out);
    expect(COMPLETIONS, "{\"model\":\"\",\"prompt\":\"x\"}", 404, "model_not_found");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":\"x\",\"temperature\":-1}", 400, "\"param\":\"temperature\"");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[]}", 400, "the prompt is empty");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":[1536]}", 400, "vocabulary");
    expect(COMPLETIONS, "{\"model\":\"base\",\"prompt\":\"x\",\"max_tokens\":9000,\"min_tokens\":8000}", 400,
           "\"param\":\"min_tokens\"");
    expect(COMPLETIONS, "{", 400, "not valid JSON");
    expect(COMPLETIONS, "", 400, "not valid JSON");
    expect("/v1/nothing", "", 404, "unknown_url");
    expect("/v1/load_lora_adapter", "{}", 404, "without --adapter-updates");
    expect("/v1/models", "", 405, "Allow: GET");
    buf a = http_client_get(COMPLETIONS);
    assert_int_equal(http_client_status(&a), 405);
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
    buf a = http_client_get("/v1/models");
    assert_true(http_client_status(&a) == 200 && http_client_has(&a, "\"id\":\"base\"") &&
                http_client_has(&a, "\"id\":\"parrot\"") && !http_client_has(&a, "escape"));
    buf_free(&a);
    stand_in_add_adapter("brand new");
    a = http_client_get("/v1/models/brand%20new");
    assert_true(http_client_status(&a) == 200 && http_client_has(&a, "\"parent\":\"base\""));
    buf_free(&a);
    a = http_client_get("/v1/models/none");
    assert_int_equal(http_client_status(&a), 404);
    buf_free(&a);
    a = http_client_get("/health");
    assert_int_equal(http_client_status(&a), 200);
    buf_free(&a);
}

/* One whose last piece is too much is cut off, not left with a stream that lacks its end. */
static void test_slow_reader_at_the_end(void **state)
{
    (void)state;
    long before = metric("punica_clients_cut_off_total");
    buf all = {0};
    int fd = http_client_dial(4096);
    http_client_post(
        fd, CHAT,
        "{\"model\":\"burst\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,\"logprobs\":true,"
        "\"max_tokens\":900}",
        "");
    wait_for_metric("punica_clients_cut_off_total", before + 1);
    http_client_read_all(fd, &all);
    assert_false(http_client_has(&all, "[DONE]"));
    wait_for_metric("punica_live_calls", 0);
    buf_free(&all);
}

/* One that reads slowly, but reads, gets all of its answer: whole or as a stream. */
static void test_steady_reader(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        char *body = xasprintf("{\"model\":\"burst\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":"
                               "true,\"max_tokens\":180,\"stream\":%s}",
                               stream ? "true" : "false");
        buf all = {0};
        int fd = http_client_dial(4096);
        http_client_post(fd, CHAT, body, "Connection: close\r\n");
        char piece[16384];
        for (ssize_t n; (n = recv(fd, piece, sizeof piece, MSG_WAITALL)) > 0;
             nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL))
            buf_add(&all, piece, (size_t)n);
        assert_true(all.len > 10 * sizeof piece); /* longer than client_timeout */
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
        buf two = {0}, all = {0}, alone = http_client_get(paths[i]);
        int fd = http_client_dial(0);
        buf_printf(&two,
                   "HEAD %s HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                   paths[i]);
        http_client_say(fd, two.data, two.len);
        http_client_read_all(fd, &all);
        const char *length = strstr(alone.data, "Content-Length"), *head_end = strstr(all.data, "\r\n\r\n");
        assert_true(length && head_end && http_client_status(&all) == http_client_status(&alone));
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
    int fd = http_client_dial(0);
    http_client_say(fd, "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 34);
    http_client_read_all(fd, &answer);
    assert_int_equal(http_client_status(&answer), 501);
    buf_free(&answer);
}

/* Two requests in one packet, and a third afterwards, on one connection. */
static void test_pipelining(void **state)
{
    (void)state;
    int fd = http_client_dial(0);
    buf two = {0}, all = {0};
    static const char body[] = "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3,\"stream\":true}";
    for (int i = 0; i < 2; i++)
        buf_printf(&two,
                   "POST " COMPLETIONS " HTTP/1.1\r\nHost: x\r\nx-request-id: no-%d\r\nContent-Length: %zu\r\n\r\n%s",
                   i, strlen(body), body);
    http_client_say(fd, two.data, two.len);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    http_client_post(fd, COMPLETIONS, body, "Connection: close\r\nx-request-id: bad id\r\n");
    http_client_read_all(fd, &all);
    assert_true(http_client_has(&all, "x-request-id: no-0") && http_client_has(&all, "x-request-id: no-1") &&
                http_client_has(&all, "x-request-id: cmpl-"));
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
    static const char *const bad[] = {"\r\n\r\n",
                                      "GET\r\n\r\n",
                                      "GET /health\r\n\r\n",
                                      "POST " COMPLETIONS " HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                                      "POST " COMPLETIONS " HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
                                      "GET / HTTP/9.9\r\n\r\n",
                                      "POST " COMPLETIONS " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                                      "GET http://[::1 HTTP/1.1\r\n\r\n",
                                      "GET * HTTP/1.1\r\n\r\n",
                                      "POST " COMPLETIONS
                                      " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                                      "BREW /pot HTTP/1.1\r\n\r\n",
                                      "GET /v1/models/%00%ff%zz HTTP/1.1\r\nConnection: close\r\n\r\n",
                                      "GET /v1/models/%ff%fe HTTP/1.1\r\nConnection: close\r\n\r\n"};
    int half_closed[sizeof bad / sizeof bad[0]];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = http_client_dial(0);
        http_client_say(fd, bad[i], strlen(bad[i]));
        half_closed[i] = fd;
        shutdown(fd, SHUT_WR);
    }
    for (uint64_t seed = 0; seed < 200; seed++) {
        char bytes[512];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)rng_u64(seed, i);
        static const char *const heads[] = {"", "POST " COMPLETIONS " HTTP/1.1\r\n", "GET "};
        int fd = http_client_dial(0);
        http_client_say(fd, heads[seed % 3], strlen(heads[seed % 3]));
        http_client_say(fd, bytes, sizeof bytes);
        close(fd);
    }
    int fd = http_client_dial(0);
    for (int i = 0; i < 2000; i++)
        http_client_say(fd, "x-header: a line that goes on and on and on and on and on and on\r\n", 67);
    close(fd);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        buf answer = {0};
        http_client_read_all(half_closed[i], &answer); /* in the end each is closed */
        buf_free(&answer);
    }
    buf health = http_client_get("/health");
    assert_int_equal(http_client_status(&health), 200);
    buf_free(&health);
}

/* Bodies that come in pieces, or wait to be asked for. */
static void test_bodies(void **state)
{
    (void)state;
    static const char chunked[] =
        "POST " COMPLETIONS " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        "17\r\n{\"model\":\"parrot\",\"max_\r\n1d\r\ntokens\":3,\"prompt\":[22,23]}  \r\n0\r\n\r\n";
    buf answer = {0};
    int fd = http_client_dial(0);
    for (size_t i = 0; i < strlen(chunked); i++)
        http_client_say(fd, chunked + i, 1);
    http_client_read_all(fd, &answer);
    if (http_client_status(&answer) != 200)
        fail_msg("%s", answer.data);
    buf_clear(&answer);
    fd = http_client_dial(0);
    char go_on[26] = "";
    http_client_say(fd,
                    "POST " COMPLETIONS
                    " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 33\r\n\r\n",
                    103);
    assert_int_equal(recv(fd, go_on, sizeof go_on - 1, MSG_WAITALL), 25);
    assert_string_equal(go_on, "HTTP/1.1 100 Continue\r\n\r\n");
    http_client_say(fd, "{\"model\":\"base\",\"prompt\":[22,23]}", 33);
    http_client_read_all(fd, &answer);
    assert_int_equal(http_client_status(&answer), 200);
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
    int kept = http_client_dial(0); /* behind a short one, on the same connection */
    http_client_post(kept, COMPLETIONS, request, "");
    http_client_post(kept, COMPLETIONS, body, "Connection: close\r\n");
    http_client_read_all(kept, &two);
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
        int fd = http_client_dial(0);
        http_client_post(fd, COMPLETIONS, body, "");
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
        int before = stand_in_seen.n_submits, cancelled = stand_in_seen.n_cancels;
        int fd = http_client_dial(0);
        http_client_post(fd, COMPLETIONS,
                         stream ? "{\"model\":\"mute\",\"prompt\":\"x\",\"stream\":true}"
                                : "{\"model\":\"mute\",\"prompt\":\"x\",\"n\":3}",
                         "");
        wait_for(&stand_in_seen.n_submits, before + (stream ? 1 : 3));
        close(fd);
        wait_for(&stand_in_seen.n_cancels, cancelled + (stream ? 1 : 3));
    }
    int cancelled = stand_in_seen.n_cancels;
    int fd = http_client_dial(0);
    char piece[100];
    http_client_post(fd, COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":\"x\",\"stream\":true,\"max_tokens\":1000}",
                     "");
    assert_true(recv(fd, piece, sizeof piece, 0) > 0);
    close(fd);
    wait_for(&stand_in_seen.n_cancels, cancelled + 1);
    wait_for_metric("punica_live_calls", 0);
    wait_for_metric("punica_live_requests", 0);
}

/* A stream that waits shows that it lives. */
static void test_keep_alive(void **state)
{
    (void)state;
    int fd = http_client_dial(0), cancelled = stand_in_seen.n_cancels;
    char got[4096];
    size_t n = 0;
    http_client_post(fd, COMPLETIONS, "{\"model\":\"mute\",\"prompt\":\"x\",\"stream\":true}", "");
    while (!memmem(got, n, ": waiting\n\n", 11)) {
        ssize_t more = recv(fd, got + n, sizeof got - n, 0);
        assert_true(more > 0);
        n += (size_t)more;
    }
    assert_memory_equal(got, "HTTP/1.1 200", 12);
    close(fd);
    wait_for(&stand_in_seen.n_cancels, cancelled + 1);
}

/* One that asks for a flood and does not read is cut off; another, meanwhile, is served. */
static void test_slow_reader(void **state)
{
    (void)state;
    long before = metric("punica_clients_cut_off_total");
    int fd = http_client_dial(4096);
    http_client_post(fd, COMPLETIONS,
                     "{\"model\":\"flood\",\"prompt\":\"x\",\"stream\":true,\"max_tokens\":1000,\"n\":20}", "");
    expect(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3,\"stream\":true}", 200,
           "data: [DONE]");
    wait_for_metric("punica_clients_cut_off_total", before + 1);
    wait_for_metric("punica_live_requests", 0);
    close(fd);
}

/* One that stops in the middle of its request, or says nothing after its answer, is closed after a while. */
static void test_idle(void **state)
{
    (void)state;
    buf all = {0};
    int half = http_client_dial(0), idle = http_client_dial(0);
    http_client_say(half, "POST /v1/compl", 14);
    http_client_post(idle, COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23],\"max_tokens\":3}", "");
    http_client_read_all(half, &all);
    buf_clear(&all);
    http_client_read_all(idle, &all);
    assert_int_equal(http_client_status(&all), 200);
    buf_free(&all);
}

/* A stream goes on over lost links and missing tokens as if nothing had happened. */
static void test_lost_link(void **state)
{
    (void)state;
    static const char body[] = "{\"model\":\"parrot\",\"prompt\":[22,23,24,25,26,27,28],\"max_tokens\":400}";
    buf whole = http_client_ask(COMPLETIONS, body), again = {0};
    int played = stand_in_seen.n_played, ups = stand_in_seen.n_ups;
    int fd = http_client_dial(0);
    http_client_post(fd, COMPLETIONS, body, "Connection: close\r\n");
    wait_for(&stand_in_seen.n_played, played + 50);
    stand_in_seen.drop = 1;
    wait_for(&stand_in_seen.n_ups, ups + 1);
    http_client_read_all(fd, &again);
    assert_int_equal(http_client_status(&again), 200);
    assert_string_equal(strstr(again.data, "\"choices\""), strstr(whole.data, "\"choices\""));
    assert_true(stand_in_seen.n_resubmits > 0);
    buf_free(&again);

    buf gap = http_client_ask(COMPLETIONS, "{\"model\":\"gap\",\"prompt\":[22,23,24,25,26,27,28],\"max_tokens\":400}");
    assert_string_equal(strstr(gap.data, "\"choices\""), strstr(whole.data, "\"choices\""));
    assert_true(stand_in_seen.gap_done);
    buf_free(&gap);
    buf_free(&whole);

    whole = http_client_ask(COMPLETIONS, "{\"model\":\"parrot\",\"prompt\":[22,23,24],\"max_tokens\":2}");
    stand_in_seen.gap_done = 0; /* the end comes with the token after the gap */
    gap = http_client_ask(COMPLETIONS, "{\"model\":\"gap\",\"prompt\":[22,23,24],\"max_tokens\":2}");
    assert_string_equal(strstr(gap.data, "\"choices\""), strstr(whole.data, "\"choices\""));
    buf_free(&gap);
    buf_free(&whole);
    assert_true(metric("punica_scheduler_reconnections_total") >= 2);
}

/* What was submitted before says so, with and without output; what is new does not. */
static void test_submitted_again(void **state)
{
    (void)state;
    int submits = stand_in_seen.n_submits, again = stand_in_seen.n_again, cancels = stand_in_seen.n_cancels;
    int fd = http_client_dial(0);
    http_client_post(fd, COMPLETIONS, "{\"model\":\"mute\",\"prompt\":\"x\",\"n\":2}", "");
    wait_for(&stand_in_seen.n_submits, submits + 2);
    assert_int_equal(stand_in_seen.n_again, again);
    stand_in_seen.drop = 1;
    wait_for(&stand_in_seen.n_submits, submits + 4);
    assert_int_equal(stand_in_seen.n_again, again + 2);
    close(fd);
    wait_for(&stand_in_seen.n_cancels, cancels + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_long_bodies),
        cmocka_unit_test(test_disconnect),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_slow_reader_at_the_end),
        cmocka_unit_test(test_steady_reader),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_lost_link),
        cmocka_unit_test(test_submitted_again),
    };
    return cmocka_run_group_tests(tests, stand_in_start, stand_in_stop);
}
