/* test_chat.c - conversations are written as Transformers writes them (tests/golden/chat.json), with the program and
 * the tokens that a directory has, and what cannot be written is refused with a reason */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/mem.h"
#include "support/test.h"
#include "text/chat.h"

static json_t *goldens(void)
{
    err e;
    json_t *doc = json_read_file(TEST_DATA "/golden/chat.json", 4 << 20, &e);
    if (!doc)
        fail_msg("%s", e.msg);
    return doc;
}

/* The arguments of a golden case; all other members are variables. more: owned by the caller. */
static chat_input input_of(const json_t *asked, json_t **more)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt",
                                      "continue_final_message"};
    const json_t *continues = json_object_get(asked, "continue_final_message");
    *more = json_copy((json_t *)asked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        json_object_del(*more, own[i]);
    return (chat_input){.messages = json_object_get(asked, "messages"),
                        .tools = json_object_get(asked, "tools"),
                        .documents = json_object_get(asked, "documents"),
                        .more = *more,
                        .add_generation_prompt = json_is_true(json_object_get(asked, "add_generation_prompt")),
                        .continues = json_is_string(continues) ? json_string_value(continues)
                                     : json_is_true(continues) ? "content"
                                                               : NULL};
}

static void check(const json_t *doc, const json_t *named, const json_t *asked, const json_t *want)
{
    const char *name = json_string_value(json_object_get(named, "name"));
    chat_template *t = chat_template_new(json_string_value(json_object_get(named, "program")),
                                         json_string_value(json_object_get(doc, "bos")),
                                         json_string_value(json_object_get(doc, "eos")));
    json_t *more;
    const chat_input in = input_of(asked, &more);
    buf out = {0};
    err e;
    buf_add_str(&out, "before");
    int rc = chat_template_write(t, &in, (time_t)json_integer_value(json_object_get(doc, "now")), &out, NULL, &e);
    if (json_is_null(want)) {
        if (rc == 0)
            fail_msg("%s: must be refused, gave %s", name, out.data);
        assert_int_equal(out.len, strlen("before"));
        assert_true(strlen(e.msg) > 0);
    } else {
        if (rc)
            fail_msg("%s: %s", name, e.msg);
        if (strcmp(out.data + strlen("before"), json_string_value(want)) != 0)
            fail_msg("%s:\n%s\nwanted:\n%s", name, out.data + strlen("before"), json_string_value(want));
    }
    buf_free(&out);
    json_decref(more);
    chat_template_free(t);
}

static void test_forms(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    json_t *doc = goldens();
    const json_t *programs = json_object_get(doc, "programs");
    assert_true(json_array_size(programs) >= 12);
    for (size_t i = 0; i < json_array_size(programs); i++) {
        const json_t *p = json_array_get(programs, i), *cases = json_object_get(p, "cases");
        assert_true(json_array_size(cases) >= 20);
        for (size_t k = 0; k < json_array_size(cases); k++) {
            const json_t *c = json_array_get(cases, k);
            check(doc, p, json_object_get(c, "input"), json_object_get(c, "text"));
        }
    }
    json_decref(doc);
}

static void test_constructs(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    json_t *doc = goldens();
    const json_t *constructs = json_object_get(doc, "constructs");
    assert_true(json_array_size(constructs) >= 150);
    for (size_t i = 0; i < json_array_size(constructs); i++) {
        const json_t *c = json_array_get(constructs, i);
        check(doc, c, json_object_get(doc, "values"), json_object_get(c, "text"));
    }
    json_decref(doc);
}

/* Directories. */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/test_chat_XXXXXX");
    return !mkdtemp(dir);
}

static int remove_dir(void **state)
{
    (void)state;
    char *command = xasprintf("rm -r %s", dir);
    int rc = system(command);
    free(command);
    return rc;
}

static void put(const char *name, const char *content)
{
    char *path = xasprintf("%s/%s", dir, name), *slash = strrchr(path, '/');
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
    free(path);
}

/* What a template writes of one user's message, or why it does not. */
static char *written(const chat_template *c, const json_t *tools)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "hello");
    const chat_input in = {.messages = messages, .tools = tools, .add_generation_prompt = true};
    buf out = {0};
    err e;
    if (chat_template_write(c, &in, 0, &out, NULL, &e))
        buf_printf(&out, "error: %s", e.msg);
    json_decref(messages);
    return buf_take(&out);
}

static void expect(const chat_template *c, const json_t *tools, const char *want)
{
    char *got = written(c, tools);
    if (!strstr(got, want))
        fail_msg("\"%s\" is not in: %s", want, got);
    free(got);
}

static void expect_load(const char *file, const json_t *tools, const char *want)
{
    err e;
    chat_template *c = chat_template_load(dir, file, &e);
    if (!c)
        fail_msg("%s", e.msg);
    expect(c, tools, want);
    chat_template_free(c);
}

static void test_demo(void **state)
{
    (void)state;
    err e;
    chat_template *c = chat_template_load(TEST_DATA "/../demo/model", NULL, &e);
    assert_non_null(c);
    assert_null(chat_template_problem(c));
    assert_false(chat_template_takes_parts(c) || chat_template_wants_parts(c));
    expect(c, NULL, "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    chat_template_free(c);
}

static void test_where_programs_come_from(void **state)
{
    (void)state;
    json_t *tools = json_pack("[{s:s}]", "type", "function"), *none = json_array();
    expect_load(NULL, NULL, "error: this model has no chat template");
    put("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<B>\"}, \"eos_token\": \"<E>\", \"chat_template\": "
                                 "\"one {{ bos_token }}{{ eos_token }}{{ pad_token }}\"}");
    put("special_tokens_map.json", "{\"pad_token\": \"<P>\", \"eos_token\": \"<other>\"}");
    expect_load(NULL, NULL, "one <B><other><P>");
    put("tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<B>\"}, \"eos_token\": \"<E>\", \"added_tokens_decoder\": {}, "
        "\"chat_template\": \"two {{ bos_token }}{{ eos_token }}{{ pad_token }}\"}");
    expect_load(NULL, NULL, "two <B><E>");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"no\"}, {\"name\": \"tool_use\", "
        "\"template\": \"with tools\"}, {\"name\": \"default\", \"template\": \"default {{ bos_token }}\"}]}");
    expect_load(NULL, NULL, "default ");
    expect_load(NULL, tools, "with tools");
    expect_load(NULL, none, "with tools");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"no\"}]}");
    expect_load(NULL, NULL, "error: this model has several chat templates, and none is named \"default\"");
    put("additional_chat_templates/tool_use.jinja", "tools of a file");
    put("additional_chat_templates/notes.txt", "{{");
    expect_load(NULL, tools, "tools of a file");
    expect_load(NULL, NULL, "none is named \"default\"");
    put("chat_template.jinja", "of a file\n");
    expect_load(NULL, NULL, "of a file");
    expect_load(NULL, tools, "tools of a file");
    put("given.jinja", "given {{ pad_token }}");
    char *given = xasprintf("%s/given.jinja", dir);
    expect_load(given, tools, "given <P>");
    free(given);
    json_decref(tools);
    json_decref(none);
}

static void test_bad_files(void **state)
{
    (void)state;
    err e;
    put("chat_template.jinja", "a\n{% if x %}");
    expect_load(NULL, NULL, "error: the model's chat template (default) cannot be used: line 2: ");
    char *bad = xasprintf("%s/chat_template.jinja", dir), *missing = xasprintf("%s/missing.jinja", dir);
    assert_null(chat_template_load(dir, bad, &e));
    assert_non_null(strstr(e.msg, "line 2: "));
    assert_null(chat_template_load(dir, missing, &e));
    assert_non_null(strstr(e.msg, "missing.jinja"));
    put("tokenizer_config.json", "{\"chat_template\": ");
    assert_null(chat_template_load(dir, NULL, &e));
    assert_non_null(strstr(e.msg, "tokenizer_config.json"));
    free(bad);
    free(missing);
}

static void test_adapter_over_base(void **state)
{
    (void)state;
    err e;
    chat_template *base = chat_template_new("base", "<B>", "<E>");
    put("adapter_config.json", "{}");
    assert_null(chat_template_load_over(dir, base, &e));
    assert_string_equal(e.msg, "");
    put("chat_template.jinja", "own {{ bos_token }}{{ eos_token }}");
    put("tokenizer_config.json", "{\"eos_token\": \"<own>\"}");
    chat_template *own = chat_template_load_over(dir, base, &e);
    assert_non_null(own);
    expect(own, NULL, "own <B><own>");
    chat_template_free(own);
    put("tokenizer_config.json", "{");
    assert_null(chat_template_load_over(dir, base, &e));
    assert_non_null(strstr(e.msg, "tokenizer_config.json"));
    chat_template_free(base);
}

/* What is asked. */

static void expect_refusal(const chat_input *in, const char *why)
{
    chat_template *c = chat_template_new("{{ messages[0].content }}", "", "");
    buf out = {0};
    err e;
    assert_int_equal(chat_template_write(c, in, 0, &out, NULL, &e), -1);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\" is not in: %s", why, e.msg);
    assert_int_equal(out.len, 0);
    buf_free(&out);
    chat_template_free(c);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    json_t *no_list = json_object(), *empty = json_array(), *strings = json_pack("[s]", "a");
    json_t *hello = json_pack("[{s:s, s:s}]", "role", "user", "content", "hello"),
           *own = json_pack("{s:[]}", "messages");
    expect_refusal(&(chat_input){0}, "\"messages\" must be a list");
    expect_refusal(&(chat_input){.messages = no_list}, "\"messages\" must be a list");
    expect_refusal(&(chat_input){.messages = empty}, "at least one message");
    expect_refusal(&(chat_input){.messages = strings}, "element 0 of \"messages\" must be an object");
    expect_refusal(&(chat_input){.messages = hello, .tools = strings}, "element 0 of \"tools\"");
    expect_refusal(&(chat_input){.messages = hello, .documents = no_list}, "\"documents\" must be a list");
    expect_refusal(&(chat_input){.messages = hello, .more = own}, "\"messages\" cannot be a variable");
    expect_refusal(&(chat_input){.messages = hello, .continues = "content", .add_generation_prompt = true},
                   "do not go together");
    expect_refusal(&(chat_input){.messages = hello, .continues = "reasoning"}, "has no \"reasoning\"");
    json_decref(no_list);
    json_decref(empty);
    json_decref(strings);
    json_decref(hello);
    json_decref(own);
}

static void expect_parts(const char *program, bool takes, bool wants)
{
    chat_template *c = chat_template_new(program, "", "");
    assert_int_equal(chat_template_takes_parts(c), takes);
    assert_int_equal(chat_template_wants_parts(c), wants);
    chat_template_free(c);
}

static void test_parts(void **state)
{
    (void)state;
    expect_parts("{{ messages[0].content + '' }}", false, false);
    expect_parts("{{ messages[0].content | trim }}", false, false);
    expect_parts("{{ messages[0].content | tojson }}", false, false);
    expect_parts("{% set c = messages[0].content %}{% if c is string %}{{ c }}{% else %}{{ c[0].text }}{% endif %}",
                 true, false);
    expect_parts("{% for p in messages[0].content %}{{ p.text }}{% endfor %}", true, true);
    expect_parts("{{ raise_exception('no') }}", false, false);
    expect_parts("{{", false, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_constructs),
        cmocka_unit_test(test_demo),
        cmocka_unit_test_setup_teardown(test_where_programs_come_from, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_bad_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_adapter_over_base, make_dir, remove_dir),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
