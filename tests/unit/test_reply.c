/* test_reply.c - answers of calls to real clients (http_reply.c), and outputs as lists of items (reply_items.c) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "frontend/http_reply.h"
#include "frontend/reply_items.h"
#include "support/http_client.h"
#include "support/test.h"
#include "support/waiting.h"

enum { MAX_UNSENT = 64 << 10 };

/* A server that keeps the reply of the request that has come, and a client on the same loop. */
typedef struct {
    event_loop *loop;
    http_server *server;
    reply *to; /* NULL: none has come, or it is freed */
    int client;
    buf got; /* by the client */
    bool closed;
    int n_gone;
    client_loss why;
} scene;

static size_t judge(void *ctx, http_exchange *x, http_fault *f)
{
    (void)ctx;
    (void)x;
    (void)f;
    return 1000;
}

static void on_gone(void *ctx, client_loss why)
{
    scene *s = ctx;
    s->n_gone++;
    s->why = why;
    s->to = NULL;
}

static void on_request(void *ctx, http_exchange *x)
{
    scene *s = ctx;
    s->to = http_reply_new(x);
    s->to->gone = on_gone;
    s->to->ctx = s;
}

static void on_fault(void *ctx, http_exchange *x, const http_fault *why)
{
    (void)ctx;
    (void)x;
    fail_msg("status %d", why->status);
}

static void ask(scene *s)
{
    s->client = http_client_dial(8192);
    fcntl(s->client, F_SETFL, O_NONBLOCK);
    http_client_post(s->client, "/", "{}", "");
    UNTIL(s->loop, s->to);
}

static int setup(void **state)
{
    log_set_level(LOG_ERROR);
    err e;
    scene *s = XNEW(scene);
    s->loop = event_loop_new();
    http_options o = {
        .listen = "127.0.0.1:0", .timeout = 30, .max_unsent = MAX_UNSENT, .send_buffer = 4096, .max_connections = 10};
    http_events events = {judge, on_request, on_fault, s};
    s->server = http_server_new(s->loop, &o, &events, &e);
    if (!s->server)
        fail_msg("%s", e.msg);
    http_client_set_server(http_server_address(s->server));
    ask(s);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    http_server_free(s->server);
    event_loop_free(s->loop);
    close(s->client);
    buf_free(&s->got);
    free(s);
    return 0;
}

/* Returns whether the client has this text by now. */
static bool client_has(scene *s, const char *text)
{
    char piece[4096];
    ssize_t n;
    while ((n = recv(s->client, piece, sizeof piece, MSG_DONTWAIT)) > 0)
        buf_add(&s->got, piece, (size_t)n);
    s->closed |= n == 0;
    buf_add(&s->got, "", 0);
    return http_client_has(&s->got, text);
}

static void add_text(scene *s, const char *text)
{
    buf bytes = {0};
    buf_add_str(&bytes, text);
    reply_add(s->to, &bytes);
    buf_free(&bytes);
}

static void a_whole_answer(void **state)
{
    scene *s = *state;
    buf body = {0};
    buf_add_str(&body, "{\"a\": 1}");
    assert_true(strncmp(s->to->client, "127.0.0.1", 9) == 0);
    reply_add_header(s->to, "x-request-id", "r1");
    reply_send(s->to, 429, "application/json", &body, false);
    s->to = NULL;
    UNTIL(s->loop, client_has(s, "{\"a\": 1}"));
    assert_int_equal(http_client_status(&s->got), 429);
    assert_true(client_has(s, "x-request-id: r1\r\n"));
    assert_true(client_has(s, "Content-Type: application/json\r\n"));
    assert_true(client_has(s, "Content-Length: 8\r\n"));
    buf_clear(&s->got);
    http_client_post(s->client, "/", "{}", ""); /* the connection is used again */
    UNTIL(s->loop, s->to);
    reply_send(s->to, 200, "application/json", &body, true);
    UNTIL(s->loop, client_has(s, "{\"a\": 1}") && s->closed); /* and now closed, as was asked for */
    assert_int_equal(s->n_gone, 0);
    buf_free(&body);
}

static void a_stream_leaves_as_it_is_made(void **state)
{
    scene *s = *state;
    reply_add_header(s->to, "x-request-id", "r2");
    reply_begin(s->to, "text/event-stream");
    add_text(s, "data: one\n\n");
    reply_flush(s->to);
    UNTIL(s->loop, client_has(s, "data: one\n\n"));
    assert_int_equal(http_client_status(&s->got), 200);
    assert_true(client_has(s, "text/event-stream"));
    assert_true(client_has(s, "x-request-id: r2"));
    assert_false(client_has(s, "\r\n0\r\n\r\n"));
    add_text(s, "data: two\n\n");
    assert_true(reply_end(s->to));
    s->to = NULL;
    UNTIL(s->loop, client_has(s, "data: two\n\n") && client_has(s, "\r\n0\r\n\r\n"));
    assert_int_equal(s->n_gone, 0);
}

static void a_client_that_leaves_is_noticed(void **state)
{
    scene *s = *state;
    reply_begin(s->to, "text/event-stream");
    add_text(s, "data: one\n\n");
    reply_flush(s->to);
    UNTIL(s->loop, client_has(s, "data: one\n\n"));
    struct linger at_once = {.l_onoff = 1};
    setsockopt(s->client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(s->client);
    s->client = -1;
    UNTIL(s->loop, s->n_gone);
    assert_int_equal(s->n_gone, 1);
    assert_int_equal(s->why, CLIENT_LEFT);
}

/* Much more than sockets and max_unsent hold. */
static char *long_text(void)
{
    size_t n = 8 << 20;
    char *text = xmalloc(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    return text;
}

static void a_client_that_does_not_read_is_cut_off(void **state)
{
    scene *s = *state;
    char *text = long_text();
    reply_begin(s->to, "text/event-stream");
    add_text(s, text);
    assert_int_equal(s->n_gone, 0); /* never from within */
    reply_flush(s->to);
    assert_int_equal(s->n_gone, 0);
    UNTIL(s->loop, s->n_gone);
    assert_int_equal(s->why, CLIENT_DOES_NOT_READ);
    assert_int_equal(s->n_gone, 1);
    free(text);
}

static void the_end_of_a_stream_that_is_not_read_is_no_end(void **state)
{
    scene *s = *state;
    char *text = long_text();
    reply_begin(s->to, "text/event-stream");
    add_text(s, text);
    assert_false(reply_end(s->to));
    s->to = NULL;
    PASS(s->loop, 0.2);
    assert_int_equal(s->n_gone, 0); /* its owner knows */
    free(text);
}

static void the_server_ends_before_the_answer(void **state)
{
    scene *s = *state;
    http_server_free(s->server);
    s->server = NULL;
    assert_int_equal(s->n_gone, 1);
    assert_int_equal(s->why, CLIENT_LEFT);
}

/* reply_items: what has happened, as "[0 text" for a beginning, "+0 more" and "]0" for an end. */

typedef struct {
    reply_items r;
    buf log;
} item_log;

static void item_begins(void *ctx, int i)
{
    static const char *const kinds[] = {[ITEM_REASONING] = "reasoning", [ITEM_TEXT] = "text", [ITEM_CALL] = "call"};
    item_log *l = ctx;
    const reply_item *x = &l->r.at[i];
    assert_int_equal(i, l->r.n - 1);
    buf_printf(&l->log, "[%d %s%s%s ", i, kinds[x->kind], x->name ? " " : "", x->name ? x->name : "");
}

static void item_goes_on(void *ctx, int i, const char *text, size_t n)
{
    buf_printf(&((item_log *)ctx)->log, "+%d %.*s ", i, (int)n, text);
}

static void item_ends(void *ctx, int i)
{
    buf_printf(&((item_log *)ctx)->log, "]%d ", i);
}

static const item_events item_log_events = {item_begins, item_goes_on, item_ends};

static void add_news(item_log *l, const api_choice *news)
{
    reply_items_add(&l->r, news, &item_log_events, l);
}

static void end_items(item_log *l, const char *wanted)
{
    reply_items_close(&l->r, &item_log_events, l);
    reply_items_close(&l->r, &item_log_events, l); /* once is enough */
    assert_string_equal(l->log.data, wanted);
    buf_free(&l->log);
    reply_items_free(&l->r);
}

static void what_belongs_together_is_one_item(void **state)
{
    (void)state;
    item_log l = {0};
    add_news(&l, &(api_choice){.reasoning = "hm", .n_reasoning = 2, .text = ""});
    add_news(&l, &(api_choice){.reasoning = "so", .n_reasoning = 2, .text = "It", .n = 2});
    add_news(&l, &(api_choice){.text = " is", .n = 3});
    add_news(&l, &(api_choice){.text = "", .reasoning = ""});
    assert_int_equal(l.r.n, 2);
    assert_string_equal(l.r.at[0].text.data, "hmso");
    assert_string_equal(l.r.at[1].text.data, "It is");
    end_items(&l, "[0 reasoning +0 hm +0 so ]0 [1 text +1 It +1  is ]1 ");
}

static void calls_are_items_of_their_own(void **state)
{
    (void)state;
    item_log l = {0};
    api_call two[] = {{.number = 0, .id = "a", .name = "f", .arguments = "{}", .n = 2},
                      {.number = 1, .id = "b", .name = "g", .arguments = "{\"x\"", .n = 4}};
    api_call rest = {.number = 1, .goes_on = true, .arguments = ": 1}", .n = 4};
    add_news(&l, &(api_choice){.text = "I call", .n = 6, .call = two, .n_calls = 2});
    add_news(&l, &(api_choice){.text = "", .call = &rest, .n_calls = 1});
    add_news(&l, &(api_choice){.text = "done", .n = 4});
    assert_string_equal(l.r.at[2].text.data, "{\"x\": 1}");
    assert_string_equal(l.r.at[2].id, "b");
    end_items(&l, "[0 text +0 I call ]0 [1 call f +1 {} ]1 [2 call g +2 {\"x\" +2 : 1} ]2 [3 text +3 done ]3 ");
}

/* In one piece of news the rest of a call comes before the text behind it, and further calls come after that. */
static void a_call_that_goes_on_comes_first(void **state)
{
    (void)state;
    item_log l = {0};
    api_call first = {.id = "a", .name = "f", .arguments = "{", .n = 1};
    api_call more[] = {{.goes_on = true, .arguments = "}", .n = 1}, {.id = "b", .name = "g", .arguments = "", .n = 0}};
    add_news(&l, &(api_choice){.text = "", .call = &first, .n_calls = 1});
    add_news(&l, &(api_choice){.text = "and", .n = 3, .call = more, .n_calls = 2});
    end_items(&l, "[0 call f +0 { +0 } ]0 [1 text +1 and ]1 [2 call g ]2 ");
}

static void nobody_has_to_look(void **state)
{
    (void)state;
    reply_items r = {0};
    reply_items_add(&r, &(api_choice){.text = "x", .n = 1}, NULL, NULL);
    reply_items_close(&r, NULL, NULL);
    reply_items_add(&r, &(api_choice){.text = "y", .n = 1}, NULL, NULL);
    assert_int_equal(r.n, 2); /* what was closed is not gone on with */
    reply_items_free(&r);
    assert_int_equal(r.n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_whole_answer),
        TEST(a_stream_leaves_as_it_is_made),
        TEST(a_client_that_leaves_is_noticed),
        TEST(a_client_that_does_not_read_is_cut_off),
        TEST(the_end_of_a_stream_that_is_not_read_is_no_end),
        TEST(the_server_ends_before_the_answer),
        cmocka_unit_test(what_belongs_together_is_one_item),
        cmocka_unit_test(calls_are_items_of_their_own),
        cmocka_unit_test(a_call_that_goes_on_comes_first),
        cmocka_unit_test(nobody_has_to_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
