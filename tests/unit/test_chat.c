/* test_chat.c - conversations are written as Transformers writes them (tests/golden/chat.json), and what cannot be
 * written is refused with a reason */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "test.h"
#include "text/chat.h"

static json_t *goldens(void)
{
    err e;
    json_t *doc = json_read_file(TEST_DATA "/golden/chat.json", 1 << 20, &e);
    if (!doc)
        fail_msg("%s", e.msg);
    return doc;
}

static int read_messages(const json_t *list, chat_message *m)
{
    int n = (int)json_array_size(list);
    for (int i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, (size_t)i), *content = json_object_get(one, "content");
        m[i] = (chat_message){.role = json_string_value(json_object_get(one, "role")), .content = json_string_value(content),
                              .n = json_string_length(content)};
    }
    return n;
}

static void check_case(const json_t *doc, const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name")), *want = json_string_value(json_object_get(c, "text"));
    chat_template *t = chat_template_new(json_string_value(json_object_get(c, "program")),
                                         json_string_value(json_object_get(doc, "bos")), json_string_value(json_object_get(doc, "eos")));
    chat_message m[8];
    int n = read_messages(json_object_get(c, "messages"), m);
    buf out = {0};
    err e;
    buf_add_str(&out, "before");
    int rc = chat_template_write(t, m, n, (time_t)json_integer_value(json_object_get(doc, "now")), &out, &e);
    if (!want) {
        assert_int_equal(rc, -1);
        assert_int_equal(out.len, strlen("before"));
        assert_non_null(strstr(e.msg, "role"));
    } else {
        if (rc)
            fail_msg("%s: %s", name, e.msg);
        assert_string_equal(out.data + strlen("before"), want);
    }
    buf_free(&out);
    chat_template_free(t);
}

static void test_goldens(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    json_t *doc = goldens();
    const json_t *cases = json_object_get(doc, "cases");
    assert_true(json_array_size(cases) >= 40);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(doc, json_array_get(cases, i));
    json_decref(doc);
}

static const chat_message hello = {.role = "user", .content = "hello", .n = 5};

static void expect_refusal(const char *program, const char *why)
{
    chat_template *t = chat_template_new(program, "<s>", "</s>");
    buf out = {0};
    err e;
    assert_null(chat_template_form(t));
    assert_int_equal(chat_template_write(t, &hello, 1, 0, &out, &e), -1);
    assert_non_null(strstr(e.msg, why));
    buf_free(&out);
    chat_template_free(t);
}

static void test_unknown_forms(void **state)
{
    (void)state;
    expect_refusal(NULL, "has no chat template");
    expect_refusal("{% for m in messages %}<|user|>\n{{ m.content }}{% endfor %}", "ChatML, Llama 2, Llama 3");
    expect_refusal("{{ bos_token }}[INST] {{ messages[0].content }} [/INST]", "ChatML, Llama 2, Llama 3");
    expect_refusal("", "ChatML, Llama 2, Llama 3");
    /* nearly ChatML: another end of a role's line (Phi-4), an answer that begins with a thought (QwQ) */
    expect_refusal("{{ '<|im_start|>user<|im_sep|>' + c + '<|im_end|>' }}{{ '<|im_start|>assistant<|im_sep|>' }}", "ChatML, Llama 2");
    expect_refusal("{{ '<|im_start|>' + r + '\\n' + c + '<|im_end|>\\n' }}{{ '<|im_start|>assistant\\n<think>\\n' }}", "ChatML, Llama 2");
}

static void test_llama2_ends_with_the_user(void **state)
{
    (void)state;
    chat_template *t = chat_template_new("[INST] <<SYS>>", "<s>", "</s>");
    const chat_message m[] = {hello, {.role = "assistant", .content = "yes", .n = 3}};
    const chat_message system = {.role = "system", .content = "be", .n = 2};
    buf out = {0};
    err e;
    assert_int_equal(chat_template_write(t, m, 2, 0, &out, &e), -1);
    assert_int_equal(chat_template_write(t, &system, 1, 0, &out, &e), -1);
    assert_int_equal(chat_template_write(t, m, 0, 0, &out, &e), -1);
    assert_int_equal(out.len, 0);
    buf_free(&out);
    chat_template_free(t);
}

/* From a directory: the .jinja file counts; bos_token may be an object; a list of templates has a default. */
static void test_load(void **state)
{
    (void)state;
    err e;
    chat_template *t = chat_template_load(TEST_DATA "/../demo/model", &e);
    assert_non_null(t);
    assert_string_equal(chat_template_form(t), "ChatML");
    buf out = {0};
    assert_int_equal(chat_template_write(t, &hello, 1, 0, &out, &e), 0);
    assert_string_equal(out.data, "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    buf_free(&out);
    chat_template_free(t);
}

static void write_config(const char *dir, const char *text)
{
    char *path = xasprintf("%s/tokenizer_config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
}

static void test_load_config(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_chat_XXXXXX";
    err e;
    assert_non_null(mkdtemp(dir));
    write_config(dir, "{\"bos_token\": {\"content\": \"<B>\"}, \"chat_template\": [{\"name\": \"rag\", \"template\": \"no\"}, "
                      "{\"name\": \"default\", \"template\": \"{{bos_token}}<|start_header_id|><|eot_id|>\"}]}");
    chat_template *t = chat_template_load(dir, &e);
    assert_non_null(t);
    buf out = {0};
    assert_int_equal(chat_template_write(t, &hello, 1, 0, &out, &e), 0);
    assert_string_equal(out.data, "<B><|start_header_id|>user<|end_header_id|>\n\nhello<|eot_id|>"
                                  "<|start_header_id|>assistant<|end_header_id|>\n\n");
    buf_free(&out);
    chat_template_free(t);

    write_config(dir, "{\"chat_template\": ");
    assert_null(chat_template_load(dir, &e));
    assert_non_null(strstr(e.msg, "tokenizer_config.json"));
    char *path = xasprintf("%s/tokenizer_config.json", dir);
    remove(path);
    free(path);
    t = chat_template_load(dir, &e);
    assert_non_null(t);
    assert_null(chat_template_form(t));
    chat_template_free(t);
    remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_unknown_forms),
        cmocka_unit_test(test_llama2_ends_with_the_user),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
