/* test_prepare.c - from a body to tokens: at once, and on the thread with jobs abandoned or left over */
#include <event2/event.h>
#include <string.h>

#include "frontend/prepare.h"
#include "test.h"

#define DEMO TEST_DATA "/../demo/model"

static prepare_tools tools;
static tokenizer *t;
static chat_template *chat;

static int open_tools(void **state)
{
    (void)state;
    err e;
    t = tokenizer_load(DEMO, &e);
    chat = chat_template_load(DEMO, &e);
    tools = (prepare_tools){.t = t, .chat = chat, .context = 64, .vocab = 1536};
    return !t || !chat;
}

static int close_tools(void **state)
{
    (void)state;
    tokenizer_free(t);
    chat_template_free(chat);
    return 0;
}

static prepared *run(bool is_chat, const char *body)
{
    return prepare(&tools, is_chat, body, strlen(body));
}

static void expect_tokens(bool is_chat, const char *body, int n_prompts, size_t n_tokens)
{
    prepared *p = run(is_chat, body);
    if (p->failed)
        fail_msg("%s: %s", body, p->error.what.msg);
    assert_int_equal(p->n_prompts, n_prompts);
    assert_int_equal(p->prompt[n_prompts - 1].n, n_tokens);
    assert_null(p->asked.input);
    prepared_free(p);
}

static void expect_error(bool is_chat, const char *body, const char *param)
{
    prepared *p = run(is_chat, body);
    assert_true(p->failed && p->error.status == 400);
    assert_string_equal(p->error.param ? p->error.param : "-", param);
    prepared_free(p);
}

static void test_prepare(void **state)
{
    (void)state;
    expect_tokens(false, "{\"model\":\"m\",\"prompt\":[5,6,7]}", 1, 3);
    expect_tokens(false, "{\"model\":\"m\",\"prompt\":[[5],[6,7]]}", 2, 2);
    expect_tokens(false, "{\"model\":\"m\",\"prompt\":[\"\",\"Eva\"]}", 2, 2);        /* BOS, and a word */
    expect_tokens(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}]}", 1, 10);
    expect_error(false, "{\"model\":\"m\",\"prompt\":[]}", "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[[5],[1536]]}", "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[5],\"max_tokens\":99,\"min_tokens\":64}", "min_tokens");
    expect_error(true, "{\"model\":\"m\",\"messages\":[]}", "messages");
    expect_error(false, "{", "-");
}

static struct { int n_done; struct event_base *loop; } it;

static void on_done(void *ctx, prepared *p)
{
    assert_ptr_equal(ctx, &it);
    assert_true(!p->failed && p->prompt[0].n == 2);
    prepared_free(p);
    if (++it.n_done == 10)
        event_base_loopbreak(it.loop);
}

static void test_thread(void **state)
{
    (void)state;
    static const char body[] = "{\"model\":\"m\",\"prompt\":\"Eva\"}";
    it.loop = event_base_new();
    it.n_done = 0;
    preparer *p = preparer_new(it.loop, &tools);
    for (int i = 0; i < 20; i++) {
        prepare_job *j = preparer_start(p, false, body, strlen(body), on_done, &it);
        if (i % 2)
            prepare_job_abandon(j);
    }
    event_base_dispatch(it.loop);
    assert_int_equal(it.n_done, 10);
    for (int i = 0; i < 100; i++)           /* whatever has become of them */
        preparer_start(p, false, body, strlen(body), on_done, &it);
    preparer_free(p);
    assert_int_equal(it.n_done, 10);
    event_base_free(it.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prepare), cmocka_unit_test(test_thread)};
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
