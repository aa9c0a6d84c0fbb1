/* test_prepare.c - from a body to tokens: at once, and on the thread with jobs abandoned or left over; whose chat
 * template writes a conversation, and what it is given */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "frontend/prepare.h"
#include "support/test.h"

#define DEMO TEST_DATA "/../demo/model"

static prepare_tools tools;
static const atomic_int context = 64;
static tokenizer *t;
static catalog *models;
static templates *chat;
static char adapters[64]; /* a directory with one adapter, "own", that has a template */

static void put(const char *name, const char *content)
{
    char *path = xasprintf("%s/own/%s", adapters, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
    free(path);
}

static int open_tools(void **state)
{
    (void)state;
    err e;
    strcpy(adapters, "/tmp/test_prepare_XXXXXX");
    assert_non_null(mkdtemp(adapters));
    char *own = xasprintf("%s/own", adapters);
    assert_int_equal(mkdir(own, 0700), 0);
    free(own);
    put("adapter_config.json", "{}");
    t = tokenizer_load(DEMO, &e);
    models = catalog_new("m", adapters, NULL, 0, &e);
    chat = models ? templates_new(models, DEMO, NULL, &e) : NULL;
    tools = (prepare_tools){.t = t, .chat = chat, .context = &context, .vocab = 1536};
    return !t || !chat;
}

static int close_tools(void **state)
{
    (void)state;
    tokenizer_free(t);
    templates_free(chat);
    catalog_free(models);
    char *command = xasprintf("rm -r %s", adapters);
    int rc = system(command);
    free(command);
    return rc;
}

static prepared *run(bool is_chat, const char *body)
{
    return prepare(&tools, NULL, is_chat ? &shape_chat : &shape_completions, body, strlen(body), NULL);
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
    expect_tokens(false, "{\"model\":\"m\",\"prompt\":[\"\",\"Eva\"]}", 2, 2); /* BOS, and a word */
    expect_tokens(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}]}", 1, 10);
    expect_error(false, "{\"model\":\"m\",\"prompt\":[]}", "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[[5],[1536]]}", "prompt");
    expect_error(false, "{\"model\":\"m\",\"prompt\":[5],\"max_tokens\":99,\"min_tokens\":64}", "min_tokens");
    expect_error(true, "{\"model\":\"m\",\"messages\":[]}", "messages");
    expect_error(false, "{", "-");
}

static bool is_at_once(bool is_chat, const char *body)
{
    prepared *p = prepare_at_once(&tools, NULL, is_chat ? &shape_chat : &shape_completions, body, strlen(body));
    prepared_free(p);
    return p != NULL;
}

/* Who may write an adapter's folder decides how long its template takes: that is nothing for the loop. */
static void test_at_once(void **state)
{
    (void)state;
    const char *question = "{\"model\":\"own\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}]}";
    assert_true(is_at_once(true, question));
    assert_true(is_at_once(true, "{"));
    put("chat_template.jinja", "{{ messages[0].content }}");
    assert_false(is_at_once(true, question));
    assert_true(is_at_once(false, "{\"model\":\"own\",\"prompt\":[5]}"));
    assert_true(is_at_once(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}]}"));
    assert_false(is_at_once(false, "{\"model\":\"m\",\"prompt\":[5],\"guided_regex\":\"a\"}"));
    assert_false(is_at_once(false, "{\"model\":\"m\",\"prompt\":[5],\"g\\u0075ided_regex\":\"a\"}"));
    char *path = xasprintf("%s/own/chat_template.jinja", adapters);
    remove(path);
    free(path);
}

/* What a conversation's tokens say, or the error. */
static void expect_text(const char *body, const char *want)
{
    prepared *p = run(true, body);
    buf text = {0};
    if (p->failed)
        buf_printf(&text, "error: %s", p->error.what.msg);
    else
        tokenizer_decode(t, p->prompt[0].items, p->prompt[0].n, false, &text);
    if (!strstr(text.data, want))
        fail_msg("\"%s\" is not in: %s", want, text.data);
    buf_free(&text);
    prepared_free(p);
}

/* How many special tokens it becomes. */
static void expect_special(bool is_chat, const char *body, int want)
{
    prepared *p = run(is_chat, body);
    int n = 0;
    if (p->failed)
        fail_msg("%s: %s", body, p->error.what.msg);
    for (size_t i = 0; i < p->prompt[0].n; i++)
        n += tokenizer_is_special(t, p->prompt[0].items[i]);
    assert_int_equal(n, want);
    prepared_free(p);
}

/* BOS, two around a message, one before the answer; what the message says is text. A prompt is taken as it is. */
static void test_special_tokens(void **state)
{
    (void)state;
    expect_special(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}]}", 4);
    expect_special(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}]}", 4);
    expect_special(
        true,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_\"},"
        "{\"type\":\"text\",\"text\":\"end|>\"}]}]}",
        4);
    expect_special(true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user<|im_end|>\",\"content\":\"</s>\"}]}", 4);
    expect_text("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a<|im_end|>b\"}]}",
                "user\na<|im_end|>b<|im_end|>\n");
    expect_special(false, "{\"model\":\"m\",\"prompt\":\"<|im_end|>\"}", 2);
}

#define ASK(model) "{\"model\":\"" model "\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"}]}"

/* An adapter's own template counts as long as it is there, and as it is now. */
static void test_adapter_template(void **state)
{
    (void)state;
    expect_text(ASK("own"), "<|im_start|>user\nEva<|im_end|>\n<|im_start|>assistant\n");
    put("chat_template.jinja", "first {{ messages[0].content }}{{ bos_token }}");
    expect_text(ASK("own"), "first Eva<s>");
    expect_text(ASK("m"), "<|im_start|>user\nEva");
    expect_text(ASK("unknown"), "<|im_start|>user\nEva");
    put("chat_template.jinja", "second one {{ messages[0].content }}");
    expect_text(ASK("own"), "second one Eva");
    put("chat_template.jinja", "{{ raise_exception('not with me') }}");
    expect_text(ASK("own"), "error: not with me (raised by the chat template in line 1)");
    put("chat_template.jinja", "x{{ }}");
    expect_text(ASK("own"), "error: the model's chat template (default) cannot be used: line 1: ");
    put("tokenizer_config.json", "{");
    expect_text(ASK("own"), "error: adapter \"own\": ");
    char *path = xasprintf("%s/own/tokenizer_config.json", adapters);
    remove(path);
    free(path);
    path = xasprintf("%s/own/chat_template.jinja", adapters);
    remove(path);
    free(path);
    expect_text(ASK("own"), "<|im_start|>user\nEva");
}

/* Adapters without end: what is kept of them is bounded, and right. */
static void test_many_adapters(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        char *dir = xasprintf("%s/n%d", adapters, i), *link = xasprintf("%s/adapter_config.json", dir);
        char *file = xasprintf("%s/chat_template.jinja", dir),
             *body = xasprintf("{\"model\":\"n%d\",\"messages\":[{\"role\":\"user\"}]}", i);
        char *want = xasprintf("template %d.", i);
        mkdir(dir, 0700);
        fclose(fopen(link, "w"));
        FILE *f = fopen(file, "w");
        fprintf(f, "template %d.", i);
        fclose(f);
        expect_text(body, want);
        if (i % 3 == 0)
            expect_text(body, want);
        free(dir);
        free(link);
        free(file);
        free(body);
        free(want);
    }
    expect_text("{\"model\":\"n7\",\"messages\":[{\"role\":\"user\"}]}", "template 7.");
}

/* What OpenAI's clients send and templates expect differs. */
static void test_conversation(void **state)
{
    (void)state;
    put("chat_template.jinja", "{% for m in messages %}{{ m.content }}|{% for c in m.tool_calls %}{{ "
                               "c.function.arguments | tojson }}{% endfor %}{% endfor %}");
    expect_text("{\"model\":\"own\",\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":["
                "{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\": 1, \\\"a\\\": "
                "[2]}\"}},{\"function\":{\"arguments\":\"no JSON\"}},"
                "{\"function\":{\"arguments\":\"7\"}},{\"function\":{\"arguments\":{\"x\":1}}}]}]}",
                "|{\"b\": 1, \"a\": [2]}\"no JSON\"\"7\"{\"x\": 1}");
    expect_text("{\"model\":\"own\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a "
                "\"},{\"type\":\"text\",\"text\":\"b\"}]},"
                "{\"role\":\"user\",\"content\":[]}]}",
                "a b||");
    put("chat_template.jinja",
        "parts: {% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}");
    expect_text(ASK("own"), "parts: [Eva]");
    put("chat_template.jinja", "{{ enable_thinking }} {{ add_generation_prompt }} {{ documents[0].a }} {{ tools }}");
    expect_text(
        "{\"model\":\"own\",\"messages\":[{\"role\":\"critic\"}],\"chat_template_kwargs\":{\"enable_thinking\":false},"
        "\"add_generation_prompt\":false,\"documents\":[{\"a\":5}]}",
        "False False 5 None");
    expect_text("{\"model\":\"own\",\"messages\":[{\"role\":\"critic\"}],\"chat_template_kwargs\":{\"messages\":[]}}",
                "error: \"messages\" cannot be");
    expect_text("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Eva\"},{\"role\":\"assistant\","
                "\"content\":\"bought\"}],"
                "\"continue_final_message\":true}",
                "<|im_start|>assistant\nbought");
}

/* A grammar that takes a while to compile; n: tells it from others. */
#define ASK_SLOW(n) "{\"model\":\"m\",\"prompt\":[5],\"guided_regex\":\"(a|b)*a(a|b){12}c{" n "}\""

static bool is_soon(const model_view *who, const char *body)
{
    prepared *p = prepare_soon(&tools, who, &shape_completions, body, strlen(body), NULL);
    assert_true(!p || !p->failed);
    prepared_free(p);
    return p != NULL;
}

static void compile_for(const model_view *who, const char *body)
{
    prepared *p = prepare(&tools, who, &shape_completions, body, strlen(body), NULL);
    assert_false(p->failed);
    prepared_free(p);
}

/* What one tenant's requests have compiled is compiled anew for another's, and for another salt. */
static void test_grammars_are_kept_apart(void **state)
{
    (void)state;
    model_view *ann = model_view_new("ann", "m", true, NULL, 0), *bob = model_view_new("bob", "m", true, NULL, 0);
    const char *body = ASK_SLOW("1") "}", *salted = ASK_SLOW("1") ",\"cache_salt\":\"ann\"}";
    tools.grammars = grammar_checks_new();
    assert_false(is_soon(ann, body));
    compile_for(ann, body);
    assert_true(is_soon(ann, body));
    assert_false(is_soon(bob, body));
    assert_false(is_soon(NULL, body));
    assert_false(is_soon(ann, salted));
    compile_for(ann, salted);
    assert_true(is_soon(ann, salted));
    for (int i = 0; i < 1000; i++) {
        char *other = xasprintf("{\"model\":\"m\",\"prompt\":[5],\"guided_regex\":\"a{%d}\"}", i + 1);
        compile_for(bob, other);
        free(other);
    }
    assert_true(is_soon(ann, body));
    grammar_checks_free(tools.grammars);
    tools.grammars = NULL;
    model_view_release(ann);
    model_view_release(bob);
}

static struct {
    int n_done;
    struct event_base *loop;
} it;

static void on_done(void *ctx, prepared *p)
{
    assert_ptr_equal(ctx, &it);
    assert_true(!p->failed && p->prompt[0].n == 2);
    prepared_free(p);
    if (++it.n_done == 10)
        event_base_loopbreak(it.loop);
}

static prepare_job *start_job(preparer *p)
{
    charged_buf body = {0};
    buf_add_str(&body.bytes, "{\"model\":\"m\",\"prompt\":\"Eva\"}");
    return preparer_start(p, NULL, &shape_completions, &body, on_done, &it);
}

static void test_thread(void **state)
{
    (void)state;
    it.loop = event_base_new();
    it.n_done = 0;
    background *threads = background_new(it.loop, 2);
    preparer *p = preparer_new(threads, &tools);
    for (int i = 0; i < 20; i++) {
        prepare_job *j = start_job(p);
        if (i % 2)
            prepare_job_abandon(j);
    }
    event_base_dispatch(it.loop);
    assert_int_equal(it.n_done, 10);
    for (int i = 0; i < 100; i++) /* whatever has become of them */
        start_job(p);
    background_free(threads);
    preparer_free(p);
    assert_int_equal(it.n_done, 10);
    event_base_free(it.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prepare),
                                       cmocka_unit_test(test_at_once),
                                       cmocka_unit_test(test_adapter_template),
                                       cmocka_unit_test(test_special_tokens),
                                       cmocka_unit_test(test_many_adapters),
                                       cmocka_unit_test(test_conversation),
                                       cmocka_unit_test(test_grammars_are_kept_apart),
                                       cmocka_unit_test(test_thread)};
    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
