/* test_tools.c - functions that may be called: what requests say of them, schemas of calls, formats by template */
#include <string.h>

#include "frontend/tools.h"
#include "support/test.h"

#define F                                                                                                             \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{" \
    "\"$ref\":\"#/$defs/n\"}},\"$defs\":{\"n\":{\"type\":\"null\"}}}}}"
#define G "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"

static void test_requests(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int choice;
        const char *name;
    } good[] = {{"{}", CHOICE_NONE, NULL},
                {"{\"tools\":[]}", CHOICE_NONE, NULL},
                {"{\"tools\":[" F "," G "]}", CHOICE_AUTO, NULL},
                {"{\"tools\":[" F "],\"tool_choice\":\"none\"}", CHOICE_NONE, NULL},
                {"{\"tools\":[" F "],\"tool_choice\":\"required\"}", CHOICE_REQUIRED, NULL},
                {"{\"tools\":[" F "," G "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
                 CHOICE_NAMED, "g"}};
    static const char *const bad[][2] = {
        {"{\"tools\":{}}", "tools"},
        {"{\"tools\":[{}]}", "tools"},
        {"{\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools"},
        {"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}", "tools"},
        {"{\"tools\":[" F "],\"tool_choice\":\"x\"}", "tool_choice"},
        {"{\"tools\":[" F "],\"tool_choice\":{\"function\":{\"name\":\"h\"}}}", "tool_choice"},
        {"{\"tool_choice\":\"required\"}", "tool_choice"}};
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
    json_t *tools = json_loads("[" F "," G "]", 0, NULL), *any = tools_schema(tools, NULL, true, &e),
           *one = tools_schema(tools, NULL, false, &e);
    json_t *g = tools_schema(tools, "g", false, &e), *f = tools_schema(tools, "f", false, &e);
    assert_true(json_object_get(json_object_get(any, "$defs"), "n") && !json_object_get(any, "maxItems"));
    assert_int_equal(json_integer_value(json_object_get(one, "maxItems")), 1);
    assert_string_equal(json_string_value(json_object_get(g, "type")), "object");
    assert_true(json_object_get(f, "$defs") != NULL);
    json_t *clash = json_loads(
        "[" F ",{\"type\":\"function\",\"function\":{\"name\":\"h\",\"parameters\":{\"$defs\":{\"n\":{}}}}}]", 0, NULL);
    assert_null(tools_schema(clash, NULL, true, &e));
    json_t *all[] = {tools, any, one, g, f, clash};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        json_decref(all[i]);
}

static void test_formats(void **state)
{
    (void)state;
    static const struct {
        const char *program;
        tools_format f;
    } all[] = {{"{{ messages }}", TOOLS_NONE},
               {"{% if tools %}<tool_call>{% endif %}", TOOLS_HERMES},
               {"[TOOL_CALLS]", TOOLS_MISTRAL},
               {"<tool_call><function=f>", TOOLS_NONE},
               {"{\"name\": x, \"parameters\": y}", TOOLS_LLAMA},
               {"[func_name1(params_name1=params_value1)]", TOOLS_PYTHONIC}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        chat_template *c = chat_template_new(all[i].program, "", "");
        assert_int_equal(tools_format_of(c), all[i].f);
        chat_template_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
