/* test_tools.c - calls of functions: what requests say of them, and finding them in outputs, all at once or as text comes */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "frontend/tools.h"
#include "test.h"

/* "content|name(arguments)|name(arguments)" */
static char *found(tools_format f, const char *name, const char *text)
{
    tool_calls calls = {0};
    buf out = {0};
    size_t n = strlen(text), content = tools_find(f, name, text, n, true, &calls);
    buf_add(&out, text, content);
    for (int i = 0; i < calls.n; i++)
        buf_printf(&out, "|%s(%s)", calls.at[i].name, calls.at[i].arguments);
    tool_calls_free(&calls);
    return buf_take(&out);
}

/* Whatever is told while text comes stays true. */
static void check_stream(tools_format f, const char *name, const char *text, const char *want)
{
    tool_calls calls = {0};
    size_t told = 0, n = strlen(text);
    int n_calls = 0;
    buf out = {0};
    for (size_t i = 0; i <= n; i++) {
        size_t content = tools_find(f, name, text, i, i == n, &calls);
        assert_true(calls.n >= n_calls);
        if (content > told) {
            buf_add(&out, text + told, content - told);
            told = content;
        }
        n_calls = calls.n;
    }
    for (int i = 0; i < calls.n; i++)
        buf_printf(&out, "|%s(%s)", calls.at[i].name, calls.at[i].arguments);
    if (strcmp(out.data ? out.data : "", want) != 0)
        fail_msg("%s\n  as it came: %s\n  wanted      %s", text, out.data, want);
    tool_calls_free(&calls);
    buf_free(&out);
}

static void expect(tools_format f, const char *text, const char *want)
{
    char *got = found(f, "f", text);
    if (strcmp(got, want) != 0)
        fail_msg("%s\n  gave   %s\n  wanted %s", text, got, want);
    free(got);
    check_stream(f, "f", text, want);
}

static void test_hermes(void **state)
{
    (void)state;
    expect(TOOLS_HERMES, "Hello <tool> there", "Hello <tool> there");
    expect(TOOLS_HERMES, "", "");
    expect(TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\"]}}\n</tool_call>", "|f({\"x\": [1, \"}\"]})");
    expect(TOOLS_HERMES, "Well.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": null}}\n</tool_call>",
           "Well.\n|f({})|g({\"a\": null})");
    expect(TOOLS_HERMES, "<tool_call>{\"name\": \"f\"}", "|f({})");             /* the end tag is often left out */
    expect(TOOLS_HERMES, "a <tool_call>{\"name\": 1}</tool_call>", "a <tool_call>{\"name\": 1}</tool_call>");
    expect(TOOLS_HERMES, "a <tool_call>{\"name\": \"f\", ", "a <tool_call>{\"name\": \"f\", ");
    expect(TOOLS_HERMES, "a <tool_c", "a <tool_c");
}

static void test_llama(void **state)
{
    (void)state;
    expect(TOOLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "|f({\"x\": 1})");
    expect(TOOLS_LLAMA, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {\"y\": true}}", "|f({})|g({\"y\": true})");
    expect(TOOLS_LLAMA, "{\"x\": 1}", "{\"x\": 1}");
    expect(TOOLS_LLAMA, "Plain {\"name\": \"f\"}", "Plain {\"name\": \"f\"}");
    expect(TOOLS_LLAMA, "{ not JSON", "{ not JSON");
    expect(TOOLS_LLAMA, "<b>", "<b>");
}

static void test_pythonic(void **state)
{
    (void)state;
    expect(TOOLS_PYTHONIC, "[f(x=1, y='it\\'s \"q\"\\n'), g_2(), h(a=[1, 2.5, {'k': None}], b=True, c=(1,))]",
           "|f({\"x\": 1, \"y\": \"it's \\\"q\\\"\\u000a\"})|g_2({})|h({\"a\": [1, 2.5, {\"k\": null}], \"b\": true, \"c\": [1]})");
    expect(TOOLS_PYTHONIC, "[1, 2]", "[1, 2]");
    expect(TOOLS_PYTHONIC, "[f(x=1]", "[f(x=1]");
    expect(TOOLS_PYTHONIC, "[f(x=y)]", "[f(x=y)]");
    expect(TOOLS_PYTHONIC, "no [f()]", "no [f()]");
}

static void test_mistral(void **state)
{
    (void)state;
    expect(TOOLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", \"arguments\": {}}]", "|f({\"x\": 1})|g({})");
    expect(TOOLS_MISTRAL, "Hm [TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", "Hm |f({})");
    expect(TOOLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[ARGS]{}", "|f({\"x\": 1})|g({})");
    expect(TOOLS_MISTRAL, "[TOOL", "[TOOL");
    expect(TOOLS_MISTRAL, "[TOOL_CALLS][{\"nam", "[TOOL_CALLS][{\"nam");
}

static void test_demanded(void **state)
{
    (void)state;
    expect(TOOLS_NAMED, "{\"x\": 1}", "|f({\"x\": 1})");
    expect(TOOLS_REQUIRED, "[{\"name\": \"g\", \"parameters\": {\"x\": 1}}]", "|g({\"x\": 1})");
    expect(TOOLS_REQUIRED, "[{\"name\": \"g\", \"par", "[{\"name\": \"g\", \"par");
}

#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/$defs/n\"}},\"$defs\":{\"n\":{\"type\":\"null\"}}}}}"
#define G "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"

static void test_requests(void **state)
{
    (void)state;
    static const struct { const char *text; int choice; const char *name; } good[] = {
        {"{}", CHOICE_NONE, NULL}, {"{\"tools\":[]}", CHOICE_NONE, NULL}, {"{\"tools\":[" F "," G "]}", CHOICE_AUTO, NULL},
        {"{\"tools\":[" F "],\"tool_choice\":\"none\"}", CHOICE_NONE, NULL}, {"{\"tools\":[" F "],\"tool_choice\":\"required\"}", CHOICE_REQUIRED, NULL},
        {"{\"tools\":[" F "," G "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}", CHOICE_NAMED, "g"}};
    static const char *const bad[][2] = {
        {"{\"tools\":{}}", "tools"}, {"{\"tools\":[{}]}", "tools"}, {"{\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools"},
        {"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}", "tools"}, {"{\"tools\":[" F "],\"tool_choice\":\"x\"}", "tool_choice"},
        {"{\"tools\":[" F "],\"tool_choice\":{\"function\":{\"name\":\"h\"}}}", "tool_choice"}, {"{\"tool_choice\":\"required\"}", "tool_choice"}};
    tools_choice choice;
    const char *name;
    api_error e;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        json_t *in = json_loads(good[i].text, 0, NULL);
        assert_int_equal(tools_parse(in, &choice, &name, &e), 0);
        assert_int_equal(choice, good[i].choice);
        assert_true(good[i].name ? strcmp(name, good[i].name) == 0 : !name);
        json_decref(in);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *in = json_loads(bad[i][0], 0, NULL);
        assert_int_equal(tools_parse(in, &choice, &name, &e), -1);
        assert_string_equal(e.param, bad[i][1]);
        json_decref(in);
    }
}

static void test_schemas(void **state)
{
    (void)state;
    api_error e;
    json_t *tools = json_loads("[" F "," G "]", 0, NULL), *any = tools_schema(tools, NULL, true, &e), *one = tools_schema(tools, NULL, false, &e);
    json_t *g = tools_schema(tools, "g", false, &e), *f = tools_schema(tools, "f", false, &e);
    assert_true(json_object_get(json_object_get(any, "$defs"), "n") && !json_object_get(any, "maxItems"));
    assert_int_equal(json_integer_value(json_object_get(one, "maxItems")), 1);
    assert_string_equal(json_string_value(json_object_get(g, "type")), "object");
    assert_true(json_object_get(f, "$defs") != NULL);
    json_t *clash = json_loads("[" F ",{\"type\":\"function\",\"function\":{\"name\":\"h\",\"parameters\":{\"$defs\":{\"n\":{}}}}}]", 0, NULL);
    assert_null(tools_schema(clash, NULL, true, &e));
    json_t *all[] = {tools, any, one, g, f, clash};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        json_decref(all[i]);
}

static void test_formats(void **state)
{
    (void)state;
    static const struct { const char *program; tools_format f; } all[] = {
        {"{{ messages }}", TOOLS_NONE}, {"{% if tools %}<tool_call>{% endif %}", TOOLS_HERMES}, {"[TOOL_CALLS]", TOOLS_MISTRAL},
        {"{\"name\": x, \"parameters\": y}", TOOLS_LLAMA}, {"[func_name1(params_name1=params_value1)]", TOOLS_PYTHONIC}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        chat_template *c = chat_template_new(all[i].program, "", "");
        assert_int_equal(tools_format_of(c), all[i].f);
        chat_template_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes), cmocka_unit_test(test_llama), cmocka_unit_test(test_pythonic), cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_demanded), cmocka_unit_test(test_requests), cmocka_unit_test(test_schemas), cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
