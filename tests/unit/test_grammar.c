/* test_grammar.c - what texts grammars take, construct by construct; what they refuse, by name; masks against trying
 * every token. That texts of schemas are valid is for others to say: tests/e2e/test_grammar.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "grammar/grammar.h"
#include "grammar/guide.h"
#include "grammar/machine.h"
#include "support/test.h"

static grammar *compile(grammar_kind kind, const char *text)
{
    err e;
    grammar *g = grammar_compile(kind, text, strlen(text), NULL, &e);
    if (!g)
        fail_msg("%s: %s", text, e.msg);
    return g;
}

/* 'y': the text may end here; 'p': it is the beginning of one that may; 'n': it is not. */
static char judge(const grammar *g, const char *text)
{
    machine *m = machine_new(g);
    int place = machine_begin(m);
    for (const char *p = text; *p && place != PLACE_NONE; p++)
        place = machine_next(m, place, (uint8_t)*p);
    char result = place == PLACE_NONE ? 'n' : machine_may_end(m, place) ? 'y' : 'p';
    machine_free(m);
    return result;
}

/* texts: each behind its judgement, up to NULL. */
static void expect(grammar_kind kind, const char *source, const char *const *texts)
{
    grammar *g = compile(kind, source);
    for (; *texts; texts++) {
        char got = judge(g, *texts + 1);
        if (got != **texts)
            fail_msg("%s\n  %s: got %c, wanted %c", source, *texts + 1, got, **texts);
    }
    grammar_free(g);
}
#define EXPECT(kind, source, ...) expect(kind, source, (const char *const[]){__VA_ARGS__, NULL})

static void expect_error(grammar_kind kind, const char *source, const char *says)
{
    err e;
    grammar *g = grammar_compile(kind, source, strlen(source), NULL, &e);
    if (g)
        fail_msg("accepted: %s", source);
    if (!strstr(e.msg, says))
        fail_msg("%s\n  says   %s\n  wanted %s", source, e.msg, says);
}

static void test_regex(void **state)
{
    (void)state;
    EXPECT(GRAMMAR_REGEX, "a|bc*", "ya", "yb", "ybccc", "nbca", "nab", "p");
    EXPECT(GRAMMAR_REGEX, "^(ab){2,3}$", "pab", "yabab", "yababab", "nabababa");
    EXPECT(GRAMMAR_REGEX, "(^a|b$)c?", "ya", "yac", "yb", "nbc");
    EXPECT(GRAMMAR_REGEX, "[^\\d\\s]\\w+?\\.[\\-\\]x-z]", "pa_", "pab.", "yab.-", "yab.]", "yab.y", "nab.w", "n1",
           "n ");
    EXPECT(GRAMMAR_REGEX, "ä[é-ü]€?\\u00e9\\u{1F600}", "p\xc3", "p\xc3\xa4\xc3", "p\xc3\xa4\xc3\xad",
           "y\xc3\xa4\xc3\xad\xc3\xa9\xf0\x9f\x98\x80", "n\xc3\xa4\xc3\xbd");
    EXPECT(GRAMMAR_REGEX, "(?:x)(?<name>y)(?P<other>z)", "yxyz");
    EXPECT(GRAMMAR_REGEX, "a{,2}b{2}", "ya{,2}bb");
    EXPECT(GRAMMAR_REGEX, "", "y", "na");
    EXPECT(GRAMMAR_REGEX, "(a*)*b", "pa", "yaab", "yb");
    static const char *const bad[][2] = {{"(a", "not closed"},
                                         {"a)", "not opened"},
                                         {"*", "nothing to repeat"},
                                         {"a{3,2}", "wrong way round"},
                                         {"[z-a]", "wrong way round"},
                                         {"(?=a)", "look-around"},
                                         {"(?<!a)", "look-around"},
                                         {"\\1", "back references"},
                                         {"\\bx", "word borders"},
                                         {"\\pL", "properties"},
                                         {"[a", "ends too early"},
                                         {"a{20000}", "more than 10000"},
                                         {"\\q", "escape"},
                                         {"a++", "possessive"},
                                         {"\xff", "UTF-8"},
                                         {"a^b", "nothing can match"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_error(GRAMMAR_REGEX, bad[i][0], bad[i][1]);
}

static void test_choice(void **state)
{
    (void)state;
    EXPECT(GRAMMAR_CHOICE, "[\"red\", \"reddish\", \"gr\\u00fcn\"]", "yred", "predd", "yreddish", "ygr\xc3\xbcn",
           "ngreen", "nred ");
    expect_error(GRAMMAR_CHOICE, "[]", "1 to 10000");
    expect_error(GRAMMAR_CHOICE, "[1]", "strings");
    expect_error(GRAMMAR_CHOICE, "{", "JSON");
}

static void test_gbnf(void **state)
{
    (void)state;
    EXPECT(GRAMMAR_GBNF, "# sums\nroot ::= term (\"+\" term)* # end\nterm ::= [0-9]+ |\n  \"(\" root \")\"\n", "y1",
           "y(1+22)+3", "p(1", "n)", "p((1)");
    EXPECT(GRAMMAR_GBNF, "root ::= ( \"a\"\n | [^\\x41-\\x5A\"\\n] ){2,} .?", "pa", "yaa", "nAA", "ya\xc3\xa9", "n\"");
    EXPECT(GRAMMAR_GBNF, "root ::= x{2} y{,2} z{1,}\nx ::= \"x\"\ny ::= \"y\"\nz ::= \"\\u00e4\"", "pxx", "yxx\xc3\xa4",
           "yxxyy\xc3\xa4\xc3\xa4", "nxxyyy");
    EXPECT(GRAMMAR_GBNF, "root ::= a b\na ::= \"x\"*\nb ::= a \"y\" | \"z\"?", "y", "yxxx", "yxxy", "yxz", "nxyz");
    EXPECT(GRAMMAR_GBNF, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"-\"", "paaa-", "paaa-bc", "yaaa-bcb",
           "naaa-bcbb"); /* ambiguous */
    static const char *const bad[][2] = {{"root ::= root \"a\" | \"b\"", "root begins with itself"},
                                         {"root ::= x\nx ::= y?  x | \"a\"\ny ::= \"b\"", "x begins with itself"},
                                         {"a ::= \"b\"", "no rule \"root\""},
                                         {"root ::= x", "no rule \"x\""},
                                         {"root = x", "::="},
                                         {"root ::= \"a", "too early"},
                                         {"root ::= (\"a\"", "not closed"},
                                         {"root ::= [b-a]", "wrong way"},
                                         {"root ::= \"a\"\nroot ::= \"b\"", "two rules"},
                                         {"root ::= \"a\" root", "nothing can match"},
                                         {"root ::= \"\\q\"", "escape"},
                                         {"root ::= \"a\"{x}", "number"},
                                         {"root ::= \"a\" )", "end of the rule"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_error(GRAMMAR_GBNF, bad[i][0], bad[i][1]);
}

static void test_json(void **state)
{
    (void)state;
    EXPECT(GRAMMAR_JSON, "", "p", "y{}", "y{ }", "n[]", "n {",
           "p{\"a\":", "y{\"a\": [1, -2.5e+10, \"x\\u00e9\\\"\", {\"b\": null}, true, []]}",
           "y{\n  \"a\": {\n    \"b\": false\n  }\n}", "n{\"a\":01}", "n{\"a\":1,}", "n{\"a\":\"\t\"}", "n{a",
           "p{\"\\ud83d\\ude00", "n{\"\\ud83dx", "n{\"\\ude00", "n{\"a\" :1}", "n{}x", "n{\"a\":+1", "n{\"\xff",
           "n{\"\xc0\x80");
}

static void test_schema_scalars(void **state)
{
    (void)state;
#define SCHEMA(text, ...) EXPECT(GRAMMAR_SCHEMA, text, __VA_ARGS__)
    SCHEMA("{\"type\":\"null\"}", "ynull", "ntrue");
    SCHEMA("{\"type\":[\"boolean\",\"null\"]}", "ynull", "ytrue", "yfalse", "n1");
    SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}", "y-12", "y-9", "y0", "y105", "y99", "n-13", "n106",
           "n-0", "n1.0", "n007", "p-");
    SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}", "y1", "y9", "n0", "n10", "n-1");
    SCHEMA("{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":2.25}", "y-1.5", "y-1", "y0.125", "y2.2",
           "y2.249", "y2.24999", "n-1.51", "y2", "n3", "n2.26");
    SCHEMA("{\"minimum\":5,\"exclusiveMinimum\":true,\"type\":\"integer\"}", "p", "y6", "y10", "y50");
    SCHEMA("{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":10,\"maximum\":30}", "y14", "y21", "y28", "n15", "n7");
    SCHEMA("{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0,\"maximum\":1}", "y0", "y0.25", "y0.5", "y0.75",
           "y1", "n0.3", "p0.2");
    SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "n\"a\"", "y\"ab\"", "y\"\xc3\xa9\\n\\u00e9\"",
           "n\"abcd", "y\"\\ud83d\\ude00x\"");
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[a\\\"\\n]+$\"}", "y\"a\\\"\\n\"", "n\"b", "n\"\n", "n\"\\u0061");
    SCHEMA("{\"type\":\"string\",\"pattern\":\"b\",\"maxLength\":3}", "y\"b\"", "y\"abc\"", "y\"aab\"", "n\"aaa",
           "p\"a");
    SCHEMA("{\"enum\":[1,\"a\\\"b\",null,[1,{\"k\":2}],0.5]}", "y1", "y\"a\\\"b\"", "ynull", "y[1,{\"k\":2}]",
           "y[ 1, { \"k\": 2 } ]", "y0.5", "n2");
    SCHEMA("{\"const\":\"x\",\"type\":\"string\"}", "y\"x\"", "nx");
    SCHEMA("{\"enum\":[1,2,\"a\",null],\"type\":[\"string\",\"integer\"],\"minimum\":2}", "n1", "y2", "y\"a\"",
           "nnull");
    SCHEMA("{\"type\":\"string\",\"format\":\"date\"}", "y\"2024-02-29\"", "n\"2023-02-29", "n\"1900-02-29",
           "y\"2000-02-29\"", "n\"2023-13", "n\"0000-01-01", "y\"1999-12-31\"");
    SCHEMA("{\"type\":\"string\",\"format\":\"date-time\"}", "y\"2024-01-31T23:59:59.5+01:00\"",
           "y\"2024-01-31T00:00:00Z\"", "n\"2024-01-31 ", "n\"2024-01-31T24");
    SCHEMA("{\"type\":\"string\",\"format\":\"uuid\"}", "y\"123e4567-e89b-12d3-a456-426614174000\"", "n\"123e4567e");
    SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\"}", "y\"255.0.10.1\"", "n\"256", "n\"01");
    SCHEMA("{\"type\":\"string\",\"format\":\"ipv6\"}", "y\"::1\"", "y\"2001:db8::8a2e:370:7334\"",
           "y\"1:2:3:4:5:6:7:8\"", "y\"::ffff:1.2.3.4\"", "n\"1::2::", "n\"12345");
    SCHEMA("{\"type\":\"string\",\"format\":\"email\"}", "y\"a.b+c@x-y.org\"", "n\"@", "n\"a@b@", "p\"a@b");
    SCHEMA("{\"type\":\"string\",\"format\":\"uri\"}", "y\"https://example.org:80/a/b?c=d#e\"", "n\"/x");
    SCHEMA("{\"type\":\"string\",\"format\":\"no-such-thing\"}", "y\"anything\"");
}

static void test_schema_objects(void **state)
{
    (void)state;
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},\"c\":{"
           "\"const\":1}},\"required\":[\"b\"]}",
           "n{}", "y{\"b\":null}", "y{\"a\": 1, \"b\": null}", "y{\"a\":1,\"b\":null,\"c\":1}", "y{\"b\":null,\"c\":1}",
           "n{\"c", "n{\"a\":1}", "n{\"b\":null,\"a", "n{\"b\":null,\"x", "n{,");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":true},\"additionalProperties\":{\"type\":\"integer\"}}", "y{}",
           "y{\"a\":[]}", "y{\"b\":1}", "y{\"a\":\"x\",\"ab\":1,\"\":2}", "n{\"b\":\"",
           "n{\"b\":1,\"a\":", "n{\"\\u0061");
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":false}", "y{}", "n{\"");
    SCHEMA("{\"type\":\"object\"}", "y{}", "y{\"x\":{\"y\":[]}}");
    SCHEMA("{\"required\":[\"x\"],\"type\":\"object\"}", "n{}", "y{\"x\":1}");
    SCHEMA("{\"patternProperties\":{\"^n\":{\"type\":\"null\"},\"t$\":{\"type\":[\"null\",\"boolean\"]}},"
           "\"additionalProperties\":false}",
           "y{}", "y{\"n\":null}", "y{\"t\":true}", "n{\"nt\":true", "y{\"nt\":null}", "n{\"x\"");
    SCHEMA("{\"propertyNames\":{\"maxLength\":2},\"type\":\"object\"}", "y{\"ab\":1}", "n{\"abc");
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"type\":\"integer\"},\"additionalProperties\":{\"const\":1}}",
           "y{}", "n{\"");
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"allOf\":[{\"$ref\":\"#/$defs/"
           "a\"},{\"maxLength\":2}]},\"$defs\":{\"a\":{\"$ref\":"
           "\"#/$defs/b\"},\"b\":{\"type\":\"string\",\"minLength\":2}}}",
           "y{\"ab\":1}", "n{\"a\"", "n{\"abc");
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"allOf\":[{},{\"type\":[\"null\",\"integer\"]}]},"
           "\"additionalProperties\":true}",
           "y{}", "n{\"");
    SCHEMA("{\"propertyNames\":false}", "y{}", "n{\"");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
           "\"minProperties\":2,\"additionalProperties\":false}",
           "n{}", "n{\"a\":1}", "y{\"a\":1,\"b\":2}", "y{\"b\":2,\"c\":3}", "y{\"a\":1,\"c\":3}",
           "y{\"a\":1,\"b\":2,\"c\":3}", "n{\"c\":3}");
    SCHEMA("{\"type\":\"object\",\"maxProperties\":2,\"additionalProperties\":{\"const\":1}}", "y{}", "y{\"a\":1}",
           "y{\"a\":1,\"b\":1}", "n{\"a\":1,\"b\":1,");
    SCHEMA("{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"type\":"
           "\"integer\",\"maximum\":4},\"b\":{\"const\":0}}}],\"type\":\"object\"}",
           "y{\"a\":3}", "y{\"a\":4,\"b\":0}", "n{\"a\":5", "n{}");
}

static void test_schema_arrays(void **state)
{
    (void)state;
    SCHEMA("{\"type\":\"array\",\"items\":{\"const\":1}}", "y[]", "y[1]", "y[1, 1,1 ]", "n[2", "n[,", "n[1,]");
    SCHEMA("{\"items\":{\"const\":1},\"minItems\":1,\"maxItems\":3}", "n[]", "y[1]", "y[1,1,1]", "n[1,1,1,", "p[");
    SCHEMA("{\"items\":{\"const\":1},\"minItems\":2}", "n[1]", "y[1,1]", "y[1,1,1,1]");
    SCHEMA("{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"type\":\"array\"}", "y[]", "y[1]", "y[1,2]", "n[1,2,",
           "n[2");
    SCHEMA("{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":3},\"minItems\":1}", "n[]", "y[1]", "y[1,3,3]",
           "n[1,1");
    SCHEMA("{\"items\":[{\"const\":1}],\"additionalItems\":false}", "y[]", "y[1]", "n[1,");
    SCHEMA("{\"maxItems\":0,\"type\":\"array\"}", "y[]", "n[1");
    SCHEMA("{\"uniqueItems\":true,\"maxItems\":1,\"items\":{\"const\":1}}", "y[1]");
}

static void test_schema_combinations(void **state)
{
    (void)state;
    SCHEMA("{\"anyOf\":[{\"type\":\"integer\"},{\"const\":\"x\"}]}", "y12", "y\"x\"", "nnull");
    SCHEMA("{\"oneOf\":[{\"type\":\"integer\",\"maximum\":10},{\"type\":\"number\",\"minimum\":5}]}", "y4", "y11",
           "y5.5", "p7", "p10");
    SCHEMA("{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"const\":1}},\"required\":[\"k\",\"v\"]},{"
           "\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
           "y{\"k\":\"a\",\"v\":1}", "y{\"k\":\"b\"}", "n{\"k\":\"b\",");
    SCHEMA("{\"type\":\"string\",\"oneOf\":[{\"minimum\":5},{\"type\":\"string\",\"maxLength\":3}]}", "n\"\"",
           "n\"abc\"", "y\"abcd\"");
    SCHEMA("{\"enum\":[null,7],\"oneOf\":[{\"minimum\":5},{\"type\":\"null\"},{\"const\":8}]}", "y7", "nnull");
    SCHEMA("{\"oneOf\":[{\"minimum\":5,\"anyOf\":[{\"type\":\"string\",\"maxLength\":9}]},{\"enum\":[\"a\",\"b\"]}]}",
           "n\"a\"", "y\"ab\"");
    SCHEMA("{\"oneOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"type\":\"object\","
           "\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
           "y{\"a\":1}", "y{\"b\":2}", "n{\"a\":1,");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"],\"not\":{\"properties\":"
           "{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}}",
           "y{\"k\":\"a\"}", "n{\"k\":\"b");
    SCHEMA("{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]}}", "p\"a", "n\"a\"", "y\"ab\"", "y\"c\"", "y\"\"");
    SCHEMA("{\"type\":\"integer\",\"not\":{\"allOf\":[{\"minimum\":5}]}}", "y4", "y-7", "n5", "n66");
    SCHEMA("{\"type\":\"integer\",\"not\":{\"minimum\":5,\"allOf\":[{\"maximum\":7}]}}", "y4", "p5", "p7", "y8");
    SCHEMA("{\"type\":\"string\",\"not\":{\"allOf\":[{\"minLength\":3}]}}", "y\"ab\"", "n\"abc");
    SCHEMA(
        "{\"type\":\"string\",\"not\":{\"$ref\":\"#/$defs/a\",\"pattern\":\"^x\"},\"$defs\":{\"a\":{\"minLength\":2}}}",
        "y\"x\"", "n\"xa\"", "y\"ab\"");
    SCHEMA("{\"type\":\"integer\",\"not\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"$ref\":\"#/$defs/"
           "b\",\"multipleOf\":2},\"b\":{\"minimum\":5}}}",
           "y4", "y5", "p6", "y61");
    SCHEMA("{\"type\":[\"integer\",\"string\"],\"not\":{\"$ref\":\"#/$defs/"
           "a\"},\"$defs\":{\"a\":{\"type\":\"integer\",\"minimum\":5}}}",
           "y4", "n5", "y\"5\"");
    SCHEMA("{\"not\":{\"type\":[\"object\",\"array\",\"string\"]}}", "y1", "ytrue", "ynull", "n{", "n\"");
    SCHEMA("{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},\"n\":{\"anyOf\":[{\"$ref\":\"#/"
           "$defs/t\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"n\"]}},\"$ref\":\"#/$defs/t\"}",
           "y{\"v\":1,\"n\":null}", "y{\"v\":1,\"n\":{\"v\":1,\"n\":null}}", "p{\"v\":1,\"n\":{\"v\":1,\"n\":null}",
           "n{\"n\"");
    SCHEMA("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "y[]", "y[[],[[]]]", "n[1");
    SCHEMA("{\"definitions\":{\"a/b\":{\"const\":1},\"c\":{\"$anchor\":\"here\",\"const\":2}},\"anyOf\":[{\"$ref\":\"#/"
           "definitions/a~1b\"},{\"$ref\":\"#here\"}]}",
           "y1", "y2", "n3");
    SCHEMA("{\"$ref\":\"#/$defs/s\",\"maxLength\":1,\"$defs\":{\"s\":{\"type\":\"string\",\"minLength\":1}}}", "y\"a\"",
           "n\"ab", "n\"\"");
    SCHEMA("{\"anyOf\":[{\"$ref\":\"#\"},{\"const\":1}]}", "y1", "n2");
    SCHEMA("true", "y1", "y{}");
    SCHEMA("{\"title\":\"T\",\"x-unknown\":{\"y\":1}}", "y[]");
    static const char *const bad[][2] = {
        {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
        {"{\"type\":\"array\",\"contains\":{}}", "contains"},
        {"{\"if\":{},\"then\":false}", "\"if\""},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", "dependentRequired"},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false}", "unevaluatedProperties"},
        {"{\"$ref\":\"http://x/y\"}", "$ref"},
        {"{\"$ref\":\"#/nope\"}", "$ref"},
        {"{\"type\":\"thing\"}", "type"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "look-around"},
        {"{\"type\":\"string\",\"format\":\"regex\"}", "format"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "nothing can match"},
        {"false", "nothing can match"},
        {"7", "a schema must be"},
        {"{", "JSON"},
        {"{\"type\":\"string\",\"maxLength\":-1}", "maxLength"},
        {"{\"properties\":[]}", "properties"},
        {"{\"anyOf\":[]}", "anyOf"},
        {"{\"anyOf\":{}}", "anyOf"},
        {"{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\",\"minProperties\":1}]}", "oneOf"},
        {"{\"type\":\"object\",\"not\":{\"type\":\"object\",\"required\":[\"a\"]}}", "not"},
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"],\"propertyNames\":{\"maxLength\":3}},{"
         "\"type\":\"object\",\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
         "oneOf"},
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"],\"anyOf\":[{\"additionalProperties\":"
         "true}]},{\"type\":\"object\",\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
         "oneOf"},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\\u0000b\"]},{"
         "\"type\":\"object\",\"properties\":{\"a\":{\"const\":2}},\"required\":[\"a\\u0000b\"]}]}",
         "oneOf"},
        {"{\"type\":\"object\",\"minProperties\":2}", "minProperties"},
        {"{\"type\":\"object\",\"propertyNames\":{\"if\":{\"minLength\":1},\"then\":false}}", "\"if\""},
        {"{\"type\":\"object\",\"propertyNames\":{\"allOf\":[{\"const\":\"a\"}]}}", "propertyNames"},
        {"{\"type\":\"object\",\"propertyNames\":7}", "a schema must be"},
        {"{\"type\":\"integer\",\"multipleOf\":0}", "multipleOf"},
        {"{\"type\":\"number\",\"multipleOf\":0.0000001}", "at most 6 digits behind the point"},
        {"{\"type\":\"number\",\"multipleOf\":50.01}", "up to 5000 without it"},
        {"{\"type\":\"number\",\"multipleOf\":1e300}", "up to 5000 without it"},
        {"{\"type\":\"string\",\"minLength\":1.5}", "whole number"},
        {"{\"type\":\"integer\",\"minimum\":\"a\"}", "minimum"},
        {"{\"required\":[1],\"type\":\"object\"}", "required"},
        {"{\"enum\":1}", "enum"},
        {"{\"allOf\":1}", "allOf"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_error(GRAMMAR_SCHEMA, bad[i][0], bad[i][1]);
}

/* Our languages are subsets of the formats, and validators need not check formats: a text outside may be valid. */
static void test_what_is_outside_a_format_may_be_of_it(void **state)
{
    (void)state;
    SCHEMA("{\"enum\":[\"2020-01-01\",\"x\",1],\"format\":\"date\"}", "y\"2020-01-01\"", "n\"x", "y1");
    SCHEMA("{\"enum\":[\"x\",1],\"not\":{\"not\":{\"anyOf\":[{\"format\":\"date\"},{\"const\":\"x\"}]}}}", "y\"x\"",
           "y1");
    SCHEMA("{\"enum\":[\"2020-01-01\",1],\"not\":{\"format\":\"date\",\"type\":\"string\"}}", "n\"2020-01-01\"", "y1");
    static const char *const bad[][2] = {
        {"{\"enum\":[\"23:59:60Z\",\"a\"],\"not\":{\"format\":\"time\"}}", "(\"not\")"},
        {"{\"enum\":[[\"23:59:60Z\"]],\"not\":{\"items\":{\"format\":\"time\"}}}", "(\"not\")"},
        {"{\"enum\":[{\"a\":\"23:59:60Z\"}],\"not\":{\"properties\":{\"a\":{\"format\":\"time\"}}}}", "(\"not\")"},
        {"{\"oneOf\":[{\"const\":\"23:59:60Z\"},{\"type\":\"string\",\"format\":\"time\",\"maxLength\":9,\"pattern\":"
         "\"^23:59:["
         "56]\"}]}",
         "\"format\" is not served in a schema that must not hold (\"oneOf\")"},
        {"{\"oneOf\":[{\"const\":\"hello\"},{\"enum\":[\"hello\",\"2020-01-01\"],\"not\":{\"format\":\"date\"}}]}",
         "(\"oneOf\")"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_error(GRAMMAR_SCHEMA, bad[i][0], bad[i][1]);
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What is given must be a multiple exactly; numbers may be larger than any integer. */
static void test_given_numbers(void **state)
{
    (void)state;
    expect(GRAMMAR_SCHEMA, "{\"enum\":[1e-10,3],\"multipleOf\":1}", (const char *const[]){"y3", "n1e-10", NULL});
    expect(GRAMMAR_SCHEMA, "{\"enum\":[0.3,0.35],\"multipleOf\":0.1}", (const char *const[]){"y0.3", "n0.35", NULL});
    SCHEMA("{\"enum\":[1000000000000.5,2],\"multipleOf\":1}", "y2", "n1000000000000.5");
    SCHEMA("{\"enum\":[9007199254740993,9007199254740994,0,-4],\"multipleOf\":2}", "n9007199254740993",
           "y9007199254740994", "y0", "y-4");
    SCHEMA("{\"enum\":[2.5e-7,3e-7,1e-8,1,12.5,1e18],\"multipleOf\":2.5e-7}", "y0.00000025", "n0.0000003",
           "n0.00000001", "y1", "y12.5", "y1000000000000000000");
    SCHEMA("{\"enum\":[9007199254740993,2],\"maximum\":9007199254740992}", "y2", "n9007199254740993");
    SCHEMA("{\"enum\":[9007199254740992,9007199254740993],\"exclusiveMinimum\":9007199254740992.0}", "p900719925474099",
           "n9007199254740992", "y9007199254740993");
    SCHEMA("{\"enum\":[9007199254740993,2],\"not\":{\"const\":9007199254740992.0}}", "y2", "y9007199254740993");
    SCHEMA("{\"enum\":[4,5,6],\"minimum\":4,\"exclusiveMinimum\":true,\"maximum\":6,\"exclusiveMaximum\":true}", "n4",
           "y5", "n6");
    SCHEMA("{\"enum\":[[1,1.0],[[1],[1.0]],[{\"a\":1},{\"a\":1.0}],[1,2],[1,true]],\"uniqueItems\":true}", "n[1,1]",
           "n[[1],[1]", "n[{\"a\":1},{\"a\":1}", "y[1,2]", "y[1,true]");
    SCHEMA("{\"enum\":[[1.0],[2.0],{\"a\":[3]},{\"a\":[3],\"b\":1}],\"not\":{\"enum\":[[1],{\"a\":[3.0]}]}}", "n[1",
           "y[2]", "n{\"a\":[3]}", "y{\"a\":[3],\"b\":1}");
    expect_error(GRAMMAR_SCHEMA, "{\"type\":\"integer\",\"minimum\":1234567890123456,\"not\":{\"minimum\":5}}",
                 "nothing can match");
    SCHEMA("{\"type\":\"integer\",\"minimum\":-1234567890123456,\"not\":{\"multipleOf\":2}}", "y-123456789012345",
           "n-123456789012344", "n-1234567890123454", "y7");
    expect_error(GRAMMAR_SCHEMA, "{\"enum\":[1],\"multipleOf\":0}", "must be more than 0");
    expect_error(GRAMMAR_SCHEMA, "{\"enum\":[1],\"multipleOf\":1e18}", "more than 18 digits");
    grammar_free(compile(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":1e300}"));
    grammar_free(compile(GRAMMAR_SCHEMA, "{\"enum\":[1e300,2],\"type\":\"integer\"}"));
    grammar *g = grammar_compile(GRAMMAR_REGEX, "a\0b", 3, NULL, &(err){0});
    assert_non_null(g);
    grammar_free(g);
}

/* Whatever a client sends, compiling ends soon, and in little memory. */
static void test_bounds(void **state)
{
    (void)state;
    static const char *const heavy[] = {
        "(a|b|ab)*{10000}", "((a{100}){100}){100}", "(.*a){40}.{400}", "(x+x+)+y", "(((((a?){50}){50}){50}){50}){50}",
        ".{9999}.{9999}"};
    for (size_t i = 0; i < sizeof heavy / sizeof heavy[0]; i++) {
        err e;
        double start = cpu_now();
        grammar_free(grammar_compile(GRAMMAR_REGEX, heavy[i], strlen(heavy[i]), NULL, &e));
        assert_true(cpu_now() - start < 20); /* under sanitizers; a tenth of it without */
    }
    buf deep = {0};
    buf_add_str(&deep, "((");
    for (int i = 0; i < 4000; i++)
        buf_add_str(&deep, "|(x|)");
    buf_add_str(&deep, ")[ab])*a[ab]{14}");
    atomic_bool stop = true;
    err why;
    assert_null(grammar_compile(GRAMMAR_REGEX, deep.data, deep.len, &stop, &why));
    assert_non_null(strstr(why.msg, "nobody waits"));
    expect_error(GRAMMAR_REGEX, deep.data, "takes too long");
    buf_clear(&deep);
    for (int i = 0; i < 5000; i++)
        buf_add_str(&deep, "(");
    expect_error(GRAMMAR_REGEX, deep.data, "nested");
    buf_clear(&deep);
    buf_add_str(&deep, "root ::= ");
    for (int i = 0; i < 5000; i++)
        buf_add_str(&deep, "(");
    expect_error(GRAMMAR_GBNF, deep.data, "nested");
    buf_clear(&deep);
    for (int i = 0; i < 1500; i++)
        buf_add_str(&deep, "{\"items\":");
    buf_add_str(&deep, "{}");
    for (int i = 0; i < 1500; i++)
        buf_add_str(&deep, "}");
    expect_error(GRAMMAR_SCHEMA, deep.data, "nested");
    buf_free(&deep);
}

static void add_times(buf *to, int n, const char *text)
{
    for (int i = 0; i < n; i++)
        buf_add_str(to, text);
}

/* Compiling ends soon, with and without somebody who waits. */
static void expect_too_long(const char *source)
{
    double start = cpu_now();
    bool is_long;
    err e;
    assert_null(grammar_compile_soon(GRAMMAR_SCHEMA, source, strlen(source), &is_long, &e));
    expect_error(GRAMMAR_SCHEMA, source, "takes too long");
    assert_true(cpu_now() - start < 4); /* under sanitizers; a twentieth of it without */
}

/* A schema of many parts, which members of "oneOf" refer to, each of another t. */
static void expect_members_too_long(const char *head, const char *part, int n_parts, const char *tail, int n_members)
{
    buf text = {0};
    buf_add_str(&text, head);
    add_times(&text, n_parts, part);
    buf_add_str(&text, tail);
    for (int i = 0; i < n_members; i++)
        buf_printf(
            &text,
            "%s{\"$ref\":\"#/$defs/b\",\"allOf\":[{\"properties\":{\"t\":{\"const\":%d}},\"required\":[\"t\"]}]}",
            i ? "," : "", i);
    buf_add_str(&text, "]}");
    expect_too_long(text.data);
    buf_free(&text);
}

/* Members of "oneOf" are compared with each other; everything that is looked at for that counts as work. */
static void test_schema_bounds(void **state)
{
    (void)state;
    expect_members_too_long("{\"$defs\":{\"b\":{\"allOf\":[", "{},", 20000, "{}]}},\"oneOf\":[", 20);
    expect_members_too_long(
        "{\"$defs\":{\"b\":{\"type\":\"object\",\"properties\":{\"v\":{},\"w\":{},\"x\":{},\"y\":{}},\"required\":[",
        "\"zzzzz\",", 10000, "\"a\"]}},\"oneOf\":[", 100);
    buf text = {0};
    buf_add_str(&text, "{\"allOf\":[");
    add_times(&text, 80000, "{},");
    buf_add_str(&text, "{}]}");
    expect_too_long(text.data);
    buf_free(&text);
}

/* Masks. */

enum { VOCAB = 1500 };
static char token_text[VOCAB][12];

static const char *text_of(void *ctx, int id, size_t *n)
{
    (void)ctx;
    *n = strlen(token_text[id]);
    return token_text[id];
}

/* Single bytes, then random strings of what grammars here are made of, some of them twice; a few have no text. */
static token_trie *random_vocabulary(uint64_t seed)
{
    static const char *const parts[] = {"\"",  ",",    ":",    "{",    "}",        "[",        "]",   " ", "\n",   "a",
                                        "b",   "name", "1",    "0",    ".",        "-",        "tru", "e", "null", "\\",
                                        "u00", "n",    "\xc3", "\xa9", "\xf0\x9f", "\x98\x80", "x",   "(", ")",    "+"};
    uint64_t c = 0;
    for (int i = 0; i < VOCAB; i++) {
        token_text[i][0] = 0;
        if (i > 0 && i < 256)
            snprintf(token_text[i], sizeof token_text[i], "%c", i);
        for (int k = (int)(rng_u64(seed, c++) % 5); i >= 256 && k >= 0; k--) {
            const char *part = parts[rng_u64(seed, c++) % (sizeof parts / sizeof *parts)];
            if (strlen(token_text[i]) + strlen(part) < sizeof token_text[i])
                strcat(token_text[i], part);
        }
    }
    return token_trie_new(VOCAB, text_of, NULL);
}

static bool follows(machine *m, const buf *so_far, const char *more)
{
    int place = machine_begin(m);
    for (size_t i = 0; i < so_far->len; i++)
        place = machine_next(m, place, (uint8_t)so_far->data[i]);
    for (; *more; more++)
        place = machine_next(m, place, (uint8_t)*more);
    return place != PLACE_NONE;
}

static void check_masks(grammar_kind kind, const char *source, const token_trie *t, uint64_t seed)
{
    grammar *g = compile(kind, source);
    machine *m = machine_new(g);
    guide *x = guide_new(g, t, NULL);
    guide_state *s = guide_state_new(x);
    buf so_far = {0};
    for (int step = 0; step < 40; step++) {
        uint32_t copy[VOCAB / 32 + 1];
        int allowed[VOCAB], n = 0;
        memcpy(copy, guide_state_mask(s), sizeof(uint32_t) * (size_t)guide_mask_words(VOCAB));
        for (int i = 0; i < VOCAB; i++) {
            bool may = copy[i / 32] >> i % 32 & 1, want = token_text[i][0] && follows(m, &so_far, token_text[i]);
            if (may != want)
                fail_msg("%s\n  behind '%.*s' token '%s': mask says %d", source, (int)so_far.len, so_far.data,
                         token_text[i], may);
            if (may)
                allowed[n++] = i;
        }
        assert_true(n > 0 || guide_state_may_end(s));
        if (n == 0)
            break;
        int token = allowed[rng_u64(seed, (uint64_t)step) % (unsigned)n];
        assert_true(guide_state_add(s, token));
        buf_add_str(&so_far, token_text[token]);
    }
    guide_state_free(s);
    guide_drop(x);
    machine_free(m);
    buf_free(&so_far);
}

static void test_all_memory_of_a_machine_is_counted(void **state)
{
    (void)state;
    grammar *g = compile(GRAMMAR_REGEX, "a");
    machine *m = machine_new(g);
    assert_true(machine_begin(m) >= 0);
    size_t before = machine_bytes(m);
    machine_after(m, CONTEXT_END); /* all that is new is its table of items that were seen */
    assert_true(machine_bytes(m) > before);
    machine_free(m);
    grammar_free(g);
}

static void test_masks(void **state)
{
    (void)state;
    static const struct {
        grammar_kind kind;
        const char *text;
    } grammars[] = {
        {GRAMMAR_JSON, ""},
        {GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":6},\"b\":{"
                         "\"type\":\"number\"},\"a\":{\"items\":{\"type\":\"string\"}}},\"required\":[\"name\"]}"},
        {GRAMMAR_SCHEMA,
         "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\"},{\"$ref\":\"#\"},{\"const\":null}]}}"},
        {GRAMMAR_GBNF, "root ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" root \")\" | \"x\" .*"},
        {GRAMMAR_GBNF, "root ::= \"(\" root \")\" | \"(\" root \"]\" | [ab]+"},
        {GRAMMAR_REGEX, "[a-bx]{0,30}(\xc3\xa9|\xf0\x9f\x98\x80)*"},
    };
    for (uint64_t seed = 1; seed <= 6; seed++) {
        token_trie *t = random_vocabulary(seed);
        for (size_t i = 0; i < sizeof grammars / sizeof grammars[0]; i++)
            check_masks(grammars[i].kind, grammars[i].text, t, seed);
        token_trie_free(t);
    }
}

/* A token that does not fit ends everything; a long output is followed within bounds. */
static void test_states(void **state)
{
    (void)state;
    token_trie *t = random_vocabulary(1);
    guide *x = guide_new(compile(GRAMMAR_REGEX, "(ab)*"), t, NULL);
    guide_state *s = guide_state_new(x), *again = guide_state_new(x);
    guide_drop(x);
    for (int i = 0; i < 20000; i++) {
        assert_true(guide_state_may_end(s));
        assert_true(guide_state_add(s, 'a') && !guide_state_may_end(s) && guide_state_add(s, 'b'));
    }
    assert_false(guide_state_add(s, 'b'));
    assert_false(guide_state_may_end(s));
    for (int i = 0; i < guide_mask_words(VOCAB); i++)
        assert_int_equal(guide_state_mask(s)[i], 0);
    assert_false(guide_state_add(again, 0)); /* a token without text */
    guide_state_free(s);
    guide_state_free(again);
    token_trie_free(t);
}

static const char *word_of(void *ctx, int id, size_t *n)
{
    static char text[16];
    (void)ctx;
    *n = 0;
    for (uint64_t x = id < 27 ? (uint64_t)id : rng_u64(5, (uint64_t)id), k = id < 27 ? 1 : 2 + x % 11; k > 0;
         k--, x /= 27)
        text[(*n)++] = "abcdefghijklmnopqrstuvwxyz "[x % 27];
    return text;
}

/* The most that a mask takes of n, in seconds. *exhausted: they ended before. */
static double slowest_mask(const char *gbnf, const token_trie *t, int n, bool *exhausted)
{
    guide *x = guide_new(compile(GRAMMAR_GBNF, gbnf), t, NULL);
    guide_state *s = guide_state_new(x);
    double most = 0;
    guide_drop(x);
    for (int i = 0; i < n; i++) {
        double start = cpu_now();
        const uint32_t *mask = guide_state_mask(s);
        double took = cpu_now() - start;
        most = took > most ? took : most;
        int token = (int)(rng_u64(9, (uint64_t)i) % 30000);
        for (int k = 0; k < 30000 && !(mask[token / 32] >> token % 32 & 1); k++)
            token = (token + 1) % 30000;
        if (!guide_state_add(s, token))
            break;
    }
    *exhausted = guide_state_is_exhausted(s);
    assert_true(!*exhausted || !guide_state_may_end(s));
    guide_state_free(s);
    return most;
}

/* However ambiguous a grammar is, a mask takes milliseconds, or the output ends. */
static void test_ambiguity(void **state)
{
    (void)state;
    static const struct {
        const char *gbnf;
        bool ends;
    } grammars[] = {
        {"root ::= s\ns ::= [a-z ] s s | \"\"", true},
        {"root ::= s\ns ::= [a-z ] | [a-z ] s s [a-z ] | [a-z ] s s s", true},
        {"root ::= s \"!\"\ns ::= \"a\" s s \".\"? | \"b\" s s | [b-z ] s s \".\"? | [a-m ] s s s | [ n-z] s s s | "
         "[a-z ]",
         true},
        {"root ::= w (\" \" w)*\nw ::= [a-z]+ | [a-z]+ \" \" [a-z]+ | [a-z ]* \"s\" ", false},
        {"root ::= l*\nl ::= w | w \" \" | \"(\" l* \")\"\nw ::= [a-z]+", false},
    };
    token_trie *t = token_trie_new(30000, word_of, NULL);
    for (size_t i = 0; i < sizeof grammars / sizeof grammars[0]; i++) {
        bool exhausted;
        double most = slowest_mask(grammars[i].gbnf, t, 300, &exhausted);
        assert_int_equal(exhausted, grammars[i].ends);
        assert_true(most < 0.3); /* under sanitizers; a twentieth of it without */
    }
    token_trie_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_schema_scalars),
        cmocka_unit_test(test_schema_objects),
        cmocka_unit_test(test_schema_arrays),
        cmocka_unit_test(test_schema_combinations),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_schema_bounds),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_given_numbers),
        cmocka_unit_test(test_all_memory_of_a_machine_is_counted),
        cmocka_unit_test(test_what_is_outside_a_format_may_be_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
