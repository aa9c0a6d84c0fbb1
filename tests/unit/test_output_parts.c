/* test_output_parts.c - reasoning, content and calls of outputs: the same parts however the text is cut into pieces */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "frontend/output_parts.h"
#include "support/test.h"

/* "[reasoning]content|name(arguments)|name(arguments)" */
static char *written(const output_parts *p)
{
    buf out = {0};
    if (p->reasoning.len)
        buf_printf(&out, "[%s]", p->reasoning.data);
    buf_add(&out, p->content.data ? p->content.data : "", p->content.len);
    for (int i = 0; i < p->n_calls; i++)
        buf_printf(&out, "|%s(%s)", p->call[i].name, p->call[i].arguments.data);
    return buf_take(&out);
}

/* What was told must stay: parts only grow. */
static void read_in_pieces(const parts_rules *r, const char *text, uint64_t seed, output_parts *p)
{
    size_t n = strlen(text), content = 0, arguments = 0;
    int calls = 0;
    for (size_t i = 0, step = 0; i < n; step++) {
        i += 1 + (seed ? rng_u64(seed, step) % 9 : 0);
        i = i < n ? i : n;
        char *so_far = strndup(text, i);
        output_parts_read(p, r, so_far, i, false);
        free(so_far);
        assert_true(p->content.len >= content && p->n_calls >= calls);
        assert_true(p->n_calls != calls || calls == 0 || p->call[calls - 1].arguments.len >= arguments);
        content = p->content.len;
        calls = p->n_calls;
        arguments = calls ? p->call[calls - 1].arguments.len : 0;
    }
    output_parts_read(p, r, text, n, true);
}

static void expect_of(const parts_rules *r, const char *text, const char *want)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        output_parts p = {0};
        if (seed == 1)
            output_parts_read(&p, r, text, strlen(text), true);
        else
            read_in_pieces(r, text, seed, &p);
        char *got = written(&p);
        if (strcmp(got, want) != 0)
            fail_msg("%s\n  gave   %s\n  wanted %s\n  cut by seed %d", text, got, want, (int)seed);
        free(got);
        output_parts_free(&p);
    }
}

static void expect(tools_format f, const char *text, const char *want)
{
    expect_of(&(parts_rules){.tools = f, .tool_name = "f"}, text, want);
}

static void test_hermes(void **state)
{
    (void)state;
    expect(TOOLS_HERMES, "Hello <tool> there", "Hello <tool> there");
    expect(TOOLS_HERMES, "", "");
    expect(TOOLS_HERMES, " \n two \n", " \n two \n");
    expect(TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\"]}}\n</tool_call>",
           "|f({\"x\": [1, \"}\"]})");
    expect(TOOLS_HERMES,
           "Well.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", "
           "\"arguments\": {\"a\": null}}\n</tool_call>\n",
           "Well.|f({})|g({\"a\": null})");
    expect(TOOLS_HERMES, "<tool_call>{\"name\": \"f\"}", "|f({})"); /* the end tag is often left out */
    expect(TOOLS_HERMES, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>", "|f({\"x\": 1})");
    expect(TOOLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
           "|f({\"x\": 1})");
    expect(TOOLS_HERMES,
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call><tool_call>\\\"}\"}}</tool_call> Done.",
           "Done.|f({\"s\": \"</tool_call><tool_call>\\\"}\"})");
    expect(TOOLS_HERMES, "One <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> two", "One two|f({})");
    expect(TOOLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1.0e2}}}</tool_call>",
           "}</tool_call>|f({\"x\": 1.0e2})");
}

static void test_no_hermes(void **state)
{
    (void)state;
    expect(TOOLS_HERMES, "a <tool_call>{\"name\": 1}</tool_call>", "a <tool_call>{\"name\": 1}</tool_call>");
    expect(TOOLS_HERMES, "<tool_call>nothing\n</tool_call>\n", "<tool_call>nothing\n</tool_call>\n");
    expect(TOOLS_HERMES, "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>|f({})");
    expect(TOOLS_HERMES, "<tool_call>{\"x\": 1}", "<tool_call>{\"x\": 1}");
    expect(TOOLS_HERMES, "a <tool_c", "a <tool_c");
}

/* The output ends in the middle, by its length. */
static void test_cut_off(void **state)
{
    (void)state;
    expect(TOOLS_HERMES, "a <tool_call>{\"name\": \"f\", ", "a <tool_call>{\"name\": \"f\", ");
    expect(TOOLS_HERMES, "a <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"lon", "a|f({\"x\": \"lon)");
    expect(TOOLS_HERMES, "<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"na", "|f({})");
    expect(TOOLS_REQUIRED, "[{\"name\": \"g\", \"par", "[{\"name\": \"g\", \"par");
    expect(TOOLS_REQUIRED, "[{\"name\": \"g\", \"parameters\": {\"x\"", "|g({\"x\")");
    expect(TOOLS_REQUIRED, "[{\"name\": \"g\", \"parameters\": {}}, {\"nam", "|g({})");
    expect(TOOLS_NAMED, "{\"x\": ", "|f({\"x\": )");
    expect(TOOLS_MISTRAL, "[TOOL_CALLS][{\"nam", "[TOOL_CALLS][{\"nam");
    expect(TOOLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"x\": [1,", "|f({\"x\": [1,)");
    expect(TOOLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"x\": 1", "|f({\"x\": 1)");
    expect(TOOLS_PYTHONIC, "[f(x=1), g(y=", "|f({\"x\": 1})");
    expect(TOOLS_PYTHONIC, "[f(x=Tru", "[f(x=Tru");
}

static void test_llama(void **state)
{
    (void)state;
    expect(TOOLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "|f({\"x\": 1})");
    expect(TOOLS_LLAMA, "\n {\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": 1}}\n", "|f({\"x\": 1})");
    expect(TOOLS_LLAMA,
           "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {\"y\": true}}",
           "|f({})|g({\"y\": true})");
    expect(TOOLS_LLAMA, "I see. <|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "I see.|f({})");
    expect(TOOLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"s\": \"; {<|python_tag|>\"}}",
           "|f({\"s\": \"; {<|python_tag|>\"})");
    expect(TOOLS_LLAMA, "{\"x\": 1}", "{\"x\": 1}");
    expect(TOOLS_LLAMA, "{\"name\": \"Ann\", \"age\": 3}\n", "{\"name\": \"Ann\", \"age\": 3}\n");
    expect(TOOLS_LLAMA, "Plain {\"name\": \"f\"}", "Plain {\"name\": \"f\"}");
    expect(TOOLS_LLAMA, "{ not JSON", "{ not JSON");
    expect(TOOLS_LLAMA, "<b>", "<b>");
}

static void test_pythonic(void **state)
{
    (void)state;
    expect(TOOLS_PYTHONIC, "[f(x=1, y='it\\'s \"q\"\\n'), g_2(), h(a=[1, 2.5, {'k': None}], b=True, c=(1,))]",
           "|f({\"x\": 1, \"y\": \"it's \\\"q\\\"\\u000a\"})|g_2({})|h({\"a\": [1, 2.5, {\"k\": null}], \"b\": true, "
           "\"c\": [1]})");
    expect(TOOLS_PYTHONIC, "[f(x='\\u00e9\\x41 )]', y='a\\d')]",
           "|f({\"x\": \"\xc3\xa9"
           "A )]\", \"y\": \"a\\\\d\"})");
    expect(TOOLS_PYTHONIC, "[1, 2]", "[1, 2]");
    expect(TOOLS_PYTHONIC, "[f(x=1]", "[f(x=1]");
    expect(TOOLS_PYTHONIC, "[f(x=y)]", "[f(x=y)]");
    expect(TOOLS_PYTHONIC, "no [f()]", "no [f()]");
}

static void test_mistral(void **state)
{
    (void)state;
    expect(TOOLS_MISTRAL,
           "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
           "|f({\"x\": 1})|g({})");
    expect(TOOLS_MISTRAL, "Hm [TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"s\": \"]\"}}]", "Hm|f({\"s\": \"]\"})");
    expect(TOOLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[CALL_ID]a1[ARGS]{}", "|f({\"x\": 1})|g({})");
    expect(TOOLS_MISTRAL, "[TOOL", "[TOOL");
    expect(TOOLS_MISTRAL, "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing");
}

static void test_demanded(void **state)
{
    (void)state;
    expect(TOOLS_NAMED, "{\"x\": 1}", "|f({\"x\": 1})");
    expect(TOOLS_NAMED, " {\"x\": [{}]} ", "|f({\"x\": [{}]})");
    expect(TOOLS_REQUIRED, "[{\"name\": \"g\", \"parameters\": {\"x\": 1}}]", "|g({\"x\": 1})");
    expect(TOOLS_REQUIRED, "[ {\"name\": \"g\", \"parameters\": {}} , {\"name\":\"h\",\"parameters\":{\"a\":[1]}} ]",
           "|g({})|h({\"a\":[1]})");
}

static void test_one_call(void **state)
{
    (void)state;
    const parts_rules r = {.tools = TOOLS_HERMES, .one_call = true};
    expect_of(&r,
              "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": "
              "{\"x\": 1}}</tool_call>",
              "|f({})");
}

static void test_reasoning(void **state)
{
    (void)state;
    const parts_rules thinks = {.thinks = THINKS}, already = {.thinks = THINKS_ALREADY};
    expect_of(&thinks, "<think>\nIt is 4.\n</think>\n\nFour. ", "[It is 4.]Four. ");
    expect_of(&thinks, "\n<think>a</b></think>Four <think>x</think>", "[a</b>]Four <think>x</think>");
    expect_of(&thinks, "Four.", "Four.");
    expect_of(&thinks, "<thin", "<thin");
    expect_of(&thinks, " <b> ", " <b> ");
    expect_of(&thinks, "<think>\n\n</think>\n\nFour", "Four");
    expect_of(&thinks, "<think>cut of", "[cut of]");
    expect_of(&already, "It is 4.\n</think>\nFour.", "[It is 4.]Four.");
    expect_of(&already, "<think>\nIt is 4.</think>Four.", "[It is 4.]Four.");
    expect_of(&already, "It is </thin", "[It is </thin]");
    expect_of(&already, "", "");
}

static void test_reasoning_and_calls(void **state)
{
    (void)state;
    const parts_rules hermes = {.thinks = THINKS, .tools = TOOLS_HERMES},
                      llama = {.thinks = THINKS_ALREADY, .tools = TOOLS_LLAMA};
    expect_of(&hermes,
              "<think>Say <tool_call>{\"name\": \"no\"}</tool_call>?</think>\n\nLet me.\n<tool_call>\n{\"name\": "
              "\"f\", \"arguments\": {\"t\": \"</think>\"}}\n</tool_call>",
              "[Say <tool_call>{\"name\": \"no\"}</tool_call>?]Let me.|f({\"t\": \"</think>\"})");
    expect_of(&llama, "hm</think>{\"name\": \"f\", \"parameters\": {}}", "[hm]|f({})");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),    cmocka_unit_test(test_no_hermes),
        cmocka_unit_test(test_cut_off),   cmocka_unit_test(test_llama),
        cmocka_unit_test(test_pythonic),  cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_demanded),  cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_reasoning), cmocka_unit_test(test_reasoning_and_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
