/* test_jinja.c - the interpreter's own promises: errors that name line and construct, bounds that hold, programs that
 * several threads run at once. That it computes what Jinja computes is for test_chat.c, with goldens. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/test.h"
#include "text/jinja.h"

static const char variables[] =
    "{\"n\": 7, \"s\": \"text\", \"l\": [3, 1, 2], \"d\": {\"a\": 1}, \"nul\": \"a\\u0000b\", \"messages\": []}";

/* What the template writes, or "compile: ..." or "render: ..." with why not. Owned by the caller. */
static char *result(const char *source, size_t n, const jinja_limits *limits)
{
    err e;
    buf out = {0};
    buf_add(&out, "", 0);
    jinja *p = jinja_compile(source, n, &e);
    if (!p) {
        buf_printf(&out, "compile: %s", e.msg);
        return buf_take(&out);
    }
    json_t *v = json_loads(variables, JSON_ALLOW_NUL, NULL);
    buf_add_str(&out, "kept ");
    size_t before = out.len;
    if (jinja_render(p, &(jinja_input){.variables = v}, limits, &out, NULL, &e)) {
        assert_int_equal(out.len, before);
        buf_clear(&out);
        buf_printf(&out, "render: %s", e.msg);
    } else {
        buf_drop(&out, before);
    }
    json_decref(v);
    jinja_free(p);
    return buf_take(&out);
}

static void expect_within(const char *source, const jinja_limits *limits, const char *want)
{
    char *got = result(source, strlen(source), limits);
    if (strcmp(got, want) != 0)
        fail_msg("%s\n  gave   %s\n  wanted %s", source, got, want);
    free(got);
}

static void expect(const char *source, const char *want)
{
    expect_within(source, &jinja_default_limits, want);
}

static void expect_says(const char *program, const char *says)
{
    char *got = result(program, strlen(program), &jinja_default_limits);
    if (!strstr(got, says))
        fail_msg("%s\n  gave   %s", program, got);
    free(got);
}

static void expect_failure(const char *expression, const char *says)
{
    char *program = xasprintf("{{ %s }}", expression);
    expect_says(program, says);
    free(program);
}

static void test_compile_errors(void **state)
{
    (void)state;
    expect("a\n\n{% foo %}", "compile: line 3: there is no tag 'foo'");
    expect("{% if n %}\n\n", "compile: line 1: the template ends inside of a block; looking for: elif else endif");
    expect("x\n{{ a b }}", "compile: line 2: expected '}}', got 'b'");
    expect("{{ a.b(1 }}", "compile: line 1: a bracket is closed that was not opened");
    expect("{{ (\n'\n", "compile: line 2: a string does not end");
    expect("\n{{ 'a' | nope }}", "compile: line 2: there is no filter 'nope'");
    expect("\n{{ 'a' is nope }}", "compile: line 2: there is no test 'nope'");
    expect("{% include 'x' %}", "compile: line 1: {% include %} is not served here: a chat template is one file");
    expect("{% extends 'x' %}", "compile: line 1: {% extends %} is not served here: a chat template is one file");
    expect("{% import 'x' as y %}", "compile: line 1: {% import %} is not served here: a chat template is one file");
    expect("{% from 'x' import y %}", "compile: line 1: {% from %} is not served here: a chat template is one file");
    expect("{% block x %}{% endblock %}",
           "compile: line 1: {% block %} is not served here: a chat template is one file");
    expect("{% autoescape true %}{% endautoescape %}",
           "compile: line 1: autoescape other than false is not served here");
    expect("{{ 99999999999999999999 }}", "compile: line 1: an integer of more than 64 bits");
    expect("{{ '\\ud800' }}", "compile: line 1: a string has an escape for what is no character");
    expect("{{ '\\N{BULLET}' }}", "compile: line 1: a string has \\N, which is not served here");
    expect("{{ \x01 }}", "compile: line 1: a character that means nothing here");
    expect("{% for x in l %}{% for y in l recursive %}{% else %}{% break %}{% endfor %}{% endfor %}",
           "compile: line 1: 'break' outside of a loop");
    expect("\xff", "compile: it is not UTF-8");
}

static void test_render_errors(void **state)
{
    (void)state;
    expect("a\n{{ x.y }}", "render: line 2: attribute 'y': 'x' is undefined");
    expect("{{ d.q.r }}", "render: line 1: attribute 'r': 'dict' has no attribute 'q'");
    expect("{% if n %}\n{{ 's' +\n 1 }}{% endif %}", "render: line 2: operator +: 'int' cannot be added to 'str'");
    expect("{{ l | sort | first | upper | int('q') | tojson | nothing if false else l.append(1) }}",
           "render: line 1: call of 'append': 'append' would change 'list', and a template may not");
    expect("{{ s | replace('a') }}", "render: line 1: filter 'replace': replace needs 2 arguments");
    expect("{{ s | tojson(ident=2) }}", "render: line 1: filter 'tojson': tojson has no argument 'ident'");
    expect("{% for a, b in l %}{% endfor %}", "render: line 1: a tuple: 'int' cannot be taken apart into names");
    expect("{% for x in n %}{% endfor %}", "render: line 1: {% for %}: 'int' cannot be iterated over");
    expect("{{ s is divisibleby 2 }}", "render: line 1: test 'divisibleby': the format leaves arguments over");
    expect("{% set d.a = 1 %}", "render: line 1: {% set %}: only a namespace's attributes can be set");
    expect("{{ 9223372036854775807 + 1 }}",
           "render: line 1: operator +: the result is an integer of more than 64 bits");
    expect("{{ [1] | random }}", "render: line 1: filter 'random': this filter is not served here");
    expect("\n\n{{ raise_exception('no ' ~ n) }}", "render: no 7 (raised by the chat template in line 3)");
}

#define TEN_KEYS "'a': 0, 'b': 1, 'c': 2, 'd': 3, 'e': 4, 'f': 5, 'g': 6, 'h': 7, 'i': 8, 'j': 9"

/* What may be a key does not depend on how many there are, and equal keys are one. */
static void test_keys(void **state)
{
    (void)state;
    expect("{{ {range(3): 'x'}[range(3)] }}", "x");
    expect("{% set q = {" TEN_KEYS
           ", range(3): 'x', range(2, 2): 'y', range(7, 9, 5): 'z', -9223372036854775807 - 1: 'm'} %}"
           "{{ q[range(0, 3, 1)] }}{{ q[range(0)] }}{{ q[range(7, 8)] }}{{ range(4) in q }}{{ "
           "q[-9223372036854775808.0] }}",
           "xyzFalsem");
    expect("{% set ns = namespace() %}{{ {ns: 'x'}[ns] }}{{ {" TEN_KEYS ", ns: 'x'}[ns] }}", "xx");
    static const char *const unhashable[] = {"[1]", "{}", "d.keys()", "d.items()", "(1, [2])", "(1, (2, {}))"};
    static const char *const types[] = {"list", "dict", "dict_keys", "dict_items", "list", "dict"};
    static const char *const programs[] = {"{{ %s in {1: 2} }}",
                                           "{{ %s in {" TEN_KEYS "} }}",
                                           "{{ {}.get(%s) }}",
                                           "{{ {" TEN_KEYS "}.get(%s) }}",
                                           "{{ {%s: 1} }}",
                                           "{{ %s in d.keys() }}",
                                           "{{ (%s, 1) in d.items() }}",
                                           "{{ %s is filter }}"};
    for (size_t i = 0; i < sizeof unhashable / sizeof *unhashable; i++)
        for (size_t k = 0; k < sizeof programs / sizeof *programs; k++) {
            char *want = xasprintf("unhashable type: '%s'", types[i]), *program = xasprintf(programs[k], unhashable[i]);
            expect_says(program, want);
            free(program);
            free(want);
        }
    expect("{{ {1: 2}[[1]] }}{{ {1: 2}[(1, [2])] }}{{ {" TEN_KEYS "}[(1, [2])] }}", ""); /* Jinja: undefined */
    expect("{{ {'a': 1, 'b': 2}.keys() == {'b': 3, 'a': 4}.keys() }}{{ d.items() == {'a': 2}.items() }}", "TrueFalse");
}

/* At the ends of 64 bits, and where doubles no longer hold every integer. */
static void test_big_integers(void **state)
{
    (void)state;
    expect("{% set low = -9223372036854775807 - 1 %}{% set q = range(low, 9223372036854775807, 4611686018427387904) %}"
           "{{ q | list }}{{ q[2] }}{{ q[:2] }}{{ 0 in q }}{{ 1 in q }}",
           "[-9223372036854775808, -4611686018427387904, 0, 4611686018427387904]0"
           "range(-9223372036854775808, 0, 4611686018427387904)TrueFalse");
    expect("{{ range(9223372036854775806, 9223372036854775807, 5)[:] }}",
           "render: line 1: [...]: the result is an integer of more than 64 bits");
    expect("{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)[::-1] | list }}",
           "render: line 1: [...]: the result is an integer of more than 64 bits");
    expect(
        "{% set q = range(9007199254740993, 9007199254740995) %}{{ 9007199254740992 in q }}{{ 9007199254740993 in q }}"
        "{{ 9007199254740994.0 in q }}{{ 1e300 in q }}",
        "FalseTrueTrueFalse");
    expect("{{ (-9223372036854775807 - 1) % 3 }} {{ -9223372036854775807 % 9223372036854775807 }}", "1 0");
    expect("{{ 9007199254740993 / 3 }} {{ -9223372036854775807 / 1000 }} {{ 1 / 3 }}",
           "3002399751580331.0 -9223372036854776.0 0.3333333333333333");
    expect("{{ 1e300 // 7 }} {{ -1.0 // 1e300 }} {{ -0.0 // 5 }}", "1.4285714285714286e+299 -1.0 -0.0");
    expect("{{ '-9223372036854775808' | int }}{{ -9223372036854775808.0 | int }}",
           "-9223372036854775808-9223372036854775808");
    expect("{{ '-9223372036854775809' | int }}", "render: line 1: filter 'int': an integer of more than 64 bits");
    expect("{{ '12' | int(7, 4294967306) }}", "12");
    expect("{{ 'x' | int(7, 4294967306) }}", "7");
}

#define LOW "(-9223372036854775807 - 1)"
#define HIGH "9223372036854775807"

/* Whatever integer of 64 bits a filter, a method or a format is given, nothing overflows. */
static void test_extreme_arguments(void **state)
{
    (void)state;
    expect("{{ 'abc' | truncate(" HIGH ") }}{{ 'abc' | truncate(3, leeway=" HIGH ") }}", "abcabc");
    expect("{{ 'abc' | center(" LOW ") }}{{ 'abc'.center(" LOW ") }}{{ 'abc'.ljust(" LOW ") }}{{ 'abc'.rjust(" LOW
           ") }}{{ 'abc'.zfill(" LOW ") }}",
           "abcabcabcabcabc");
    expect("{{ 'abc' | center(" HIGH ") }}", "render: line 1: filter 'center': a string of 4611686018427387902 times 1 "
                                             "bytes is too long");
    expect("{{ 'abc'.zfill(" HIGH ") }}",
           "render: line 1: call of 'zfill': a string of 9223372036854775804 times 1 bytes is too long");
    expect("{{ '%*d' % (" LOW ", 3) }}",
           "render: line 1: operator %: a format's width and precision are at most 100000");
    expect("{{ '%*d' % (" HIGH ", 3) }}",
           "render: line 1: operator %: a format's width and precision are at most 100000");
    expect("{{ '%.*f|%*d|' % (-2, 3.0, -4, 3) }}", "3|3   |");
    expect("{{ '%.*f' % (" LOW ", 3.0) }}",
           "render: line 1: operator %: a format's width and precision are at most 100000");
    expect("{{ l | batch(" HIGH ") | list }}{{ l[" LOW ":" HIGH "] }}{{ l[" HIGH ":" LOW ":" LOW "] }}{{ s[::" LOW
           "] }}{{ l[::" HIGH "] }}",
           "[[3, 1, 2]][3, 1, 2][2]t[3]");
    expect("{{ 'a\nb' | indent(" LOW ") }}{{ 'a' * " LOW " }}{{ [1] * " LOW " }}{{ l[" LOW "] }}{{ s[" LOW "] }}",
           "a\nb[]");
    expect("{{ s.find('t', " LOW ", " HIGH ") }}{{ s.rfind('t', " LOW ") }}{{ s.count('t', " HIGH ") }}"
           "{{ s.replace('t', 'T', " LOW ") }}{{ s.split('e', " LOW ") }}{{ l.index(2, " LOW ", " HIGH ") }}",
           "030TexT['t', 'xt']2");
    expect("{{ 7 | round(" HIGH ") }}{{ 7 | round(" LOW ") }}{{ 7.0 | round(" LOW ") }}{{ 7.5 | round(" HIGH
           ") }}{{ " LOW " is divisibleby(-1) }}{{ " LOW " % -1 }}",
           "700.07.5True0");
    static const char *const too_large[] = {"-" LOW,    LOW " | abs", LOW " // -1",         LOW " * -1",
                                            LOW " - 1", HIGH " + 1",  "[" HIGH ", 1] | sum"};
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++)
        expect_failure(too_large[i], "an integer of more than 64 bits");
}

/* NaN is neither less nor greater than anything, nor equal to it. */
static void test_nan(void **state)
{
    (void)state;
    expect(
        "{% set x = 'nan' | float %}{{ [x < 1, x <= 1, x > 1, x >= 1, 1 < x, 1 <= x, 1 > x, 1 >= x, x <= x, x != 1] }}",
        "[False, False, False, False, False, False, False, False, False, True]");
    expect("{% set x = 'nan' | float %}{{ [[x] < [1], [x] <= [1], [x] > [1], [1, x] >= [1, 2], (1, x) <= (2, x)] }}",
           "[False, False, False, False, True]");
    expect("{% set x = 'nan' | float %}{{ [x, 1] | max }} {{ [1, x] | max }} {{ [x, 1] | min }} {{ [1, x, 2] | max }} "
           "{{ 1 is le(x) }}",
           "nan 1 nan 2 False");
}

static void test_rounding(void **state)
{
    (void)state;
    expect("{{ 1.234e-200 | round(250) }} {{ 1.2345e-200 | round(202) }} {{ 5e-324 | round(323) }} {{ 5e-324 | "
           "round(324) }}",
           "1.234e-200 1.23e-200 0.0 5e-324");
    expect("{{ 2.675 | round(2) }} {{ 2.5 | round }} {{ -0.4 | round }} {{ 3.5e22 | round(-22) }} {{ 1.5e23 | "
           "round(-24) }}",
           "2.67 2.0 -0.0 4e+22 0.0");
    expect("{{ 15.0 | round(-1) }} {{ 5.0 | round(-1) }} {{ 5.000001 | round(-1) }} {{ -6.0 | round(-1) }} {{ -3.0 | "
           "round(-400) }}",
           "20.0 0.0 10.0 -10.0 -0.0");
    expect("{{ 25 | round(-1) }} {{ -35 | round(-1) }} {{ 9007199254740993 | round(-1) }} {{ 5000000000000000000 | "
           "round(-19) }} "
           "{{ 7 | round(-25) }}",
           "20 -40 9007199254740990 0 0");
    expect("{{ 9223372036854775807 | round(-1) }}", "render: line 1: filter 'round': an integer of more than 64 bits");
    expect("{{ 5000000000000000001 | round(-19) }}", "render: line 1: filter 'round': an integer of more than 64 bits");
    expect("{{ 1.7976931348623157e308 | round(-308) }}",
           "render: line 1: filter 'round': the rounded number is too large");
    expect("{{ 9007199254740993 | round(400, 'ceil') }} {{ -0.5 | round(0, 'ceil') }} {{ 42.551 | round(1, 'floor') }}",
           "9007199254740992.0 0.0 42.5");
    expect("{{ 1.5 | round(400, 'ceil') }}",
           "render: line 1: filter 'round': the number cannot be rounded to 400 digits");
}

static void test_formats(void **state)
{
    (void)state;
    expect("{{ '{:010,}|{:#020_x}|{:08,.2f}'.format(1234, 65, -1234.5) }}",
           "00,001,234|0x000_0000_0000_0041|-1,234.50");
    expect("{{ '{:.2}|{:.3}|{:.3}|{:5.1}|{:.2}|{:.1}'.format(1.0, 123.0, 120.0, -1.5, 0.0, 0.0) }}",
           "1.0|1.23e+02|1.2e+02|-2e+00|0.0|0e+00");
    expect("{{ ('%.102e|%.101f' % (7, 0.5)) | length }}", "212");
    expect("{{ '%E %G %g' % ('nan' | float, 'inf' | float, 'inf' | float) }}", "NAN INF inf");
    expect("{{ '%a|{!a}' % 'é€😀' }}{{ '{!a}{!r}'.format('é', 'é') }}", "'\\xe9\\u20ac\\U0001f600'|{!a}'\\xe9''é'");
    expect("{{ '%05c|%-05c|%05s' % (65, 'b', 'c') }}{{ '|' % range(5) }}", "    A|b    |    c|");
    expect("{{ '%5%' % () }}", "render: line 1: operator %: the format has an unknown '%'");
    expect("{{ '{:5}'.format(undef) }}",
           "render: line 1: call of 'format': 'Undefined' can be written in one way only");
    expect("{{ '{:-}'.format('a') }}", "render: line 1: call of 'format': this way to write a value is none for a str");
    expect("{{ '{:,b}'.format(5) }}", "render: line 1: call of 'format': this way to write a value is none for an int");
    expect("{{ '{:<05}|{:^05}|{:>05}|{:=05}|{:05}|{:x<05}|{:<+08,}'.format(3, 3, 3, -3, -3, 3, 1234) }}",
           "30000|00300|00003|-0003|-0003|3xxxx|+1,23400");
    expect("{{ '{:05}|{:<05}|{:>05}|{:^06}|{:<07.2f}'.format('a', 'a', 'a', 'a', 2.5) }}",
           "a0000|a0000|0000a|00a000|2.50000");
    expect("{{ '{:=05}'.format('a') }}",
           "render: line 1: call of 'format': this way to write a value is none for a str");
    expect("{{ '{:#}'.format('a') }}", "render: line 1: call of 'format': this way to write a value is none for a str");
    expect("{{ '{:c}|{:5c}|{:<5c}|{:05c}|{:c}'.format(65, 65, 65, 65, 8364) }}", "A|    A|A    |0000A|€");
    expect("{{ '{:c}'.format(1114112) }}", "render: line 1: call of 'format': 1114112 is the code of no character");
    expect("{{ '{:c}'.format(55296) }}", "render: line 1: call of 'format': 55296 is the code of no character");
    expect("{{ '{:+c}'.format(65) }}",
           "render: line 1: call of 'format': this way to write a value is none for an int");
    expect("{{ '{:z}|{:z.1f}|{:+z.1f}|{:z.0e}|{:z}|{:z.1%}'.format(1.0, -0.04, -0.01, -0.0, -0.5, -0.0001) }}",
           "1.0|0.0|+0.0|0e+00|-0.5|0.0%");
    expect("{{ '{:z}'.format(1) }}", "render: line 1: call of 'format': this way to write a value is none for an int");
    expect("{{ '{:n}|{:5n}'.format(12345678, 3) }}", "12345678|    3");
    expect("{{ '{:1.}'.format('a') }}", "render: line 1: call of 'format': the format has a point without a precision");
}

/* Properties that do not follow from the general category. */
static void test_characters(void **state)
{
    (void)state;
    expect("{{ ['①'.isdigit(), '፩'.isdigit(), '²'.isdigit(), '½'.isdigit(), '①'.isdecimal(), '٣'.isdecimal()] }}",
           "[True, True, True, False, False, True]");
    expect("{{ ['一'.isnumeric(), '½'.isnumeric(), 'Ⅷ'.isnumeric(), '丁'.isnumeric(), '①a'.isalnum()] }}",
           "[True, True, True, False, True]");
    expect("{{ ['ªº'.islower(), 'ⅷ'.islower(), 'Ⓐ'.isupper(), 'Ⓐ'.islower(), 'ʰ' is lower, 'Ⅷ' is upper, "
           "'ǅ'.isupper()] }}",
           "[True, True, True, False, True, True, False]");
    expect("{{ 'ⓐⅧ'.swapcase() }}{{ 'ªa ⓐⓑ'.title() }}{{ ['Ⓐⓐ'.istitle(), 'ⓐ'.istitle()] }}", "Ⓐⅷªa Ⓐⓑ[True, False]");
    expect("{{ 'ΑΣ․Α'.lower() }} {{ 'ΑΣ․'.lower() }} {{ 'Α:Σ'.lower() }} {{ 'Α՟Σ Β'.lower() }} {{ 'Α!Σ'.lower() }}",
           "ασ․α ας․ α:ς α՟ς β α!σ");
    expect("{{ 'ŉa'.title() }}{{ 'ŉ'.capitalize() }}{{ 'ﬃ ﬁx'.title() }}", "ʼNaʼNFfi Fix");
    expect("{{ 'ΑΒΣ ΑΣ-ΣΑΣ(ΤΗΣ' | title }}", "Αβς Ασ-Σας(Της");
}

static void test_arguments(void **state)
{
    (void)state;
    expect("{{ 'abc'.count('') }}{{ 'abc'.count('', 1, 2) }}{{ 'abc'.count('', 2, 1) }}{{ 'äbc'.count('', -2) }}",
           "4203");
    expect("{{ [{'a': 1}, ['x', 'y']] | map(attribute=1, default='none') | list }}", "['none', 'y']");
    static const char *const no_none[] = {"s.center(none)", "s.zfill(none)", "s.split('e', none)",
                                          "s.replace('t', 'T', none)", "s.expandtabs(none)"};
    for (size_t i = 0; i < sizeof no_none / sizeof *no_none; i++)
        expect_failure(no_none[i], "expected an integer, not 'NoneType'");
    expect("{{ s.find('t', none) }}{{ s.find('t', 1, none) }}{{ s.count('t', none, none) }}", "032");
    expect("{{ s | center(none) }}", "render: line 1: filter 'center': width must be an integer, not NoneType");
    expect("{{ s | truncate(none) }}", "render: line 1: filter 'truncate': length must be an integer, not NoneType");
    expect("{{ s | truncate(3, leeway=none) }}", "text");
}

static void test_bytes_that_end_strings(void **state)
{
    (void)state;
    json_t *v = json_loads(variables, JSON_ALLOW_NUL, NULL);
    err e;
    buf out = {0};
    static const char source[] = "{{ nul | length }}{{ nul[1:] | tojson }}{{ 'a\0b' | length }}";
    jinja *p = jinja_compile(source, sizeof source - 1, &e);
    assert_non_null(p);
    assert_int_equal(jinja_render(p, &(jinja_input){.variables = v}, &jinja_default_limits, &out, NULL, &e), 0);
    assert_string_equal(out.data, "3\"\\u0000b\"3");
    buf_free(&out);
    jinja_free(p);
    json_decref(v);
}

static void test_bounds(void **state)
{
    (void)state;
    static const jinja_limits few = {.steps = 20000, .memory = 1u << 20, .output = 10000};
    expect_within("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", &few,
                  "render: line 1: {% for %}: it takes too many steps");
    expect_within("{% for a in range(3000) %}{{ 'abcdefgh' }}{% endfor %}", &few,
                  "render: line 1: a constant: it writes more than 0 MB");
    expect_within("{{ 'ab' * 1000000000000 }}", &few,
                  "render: line 1: operator *: a string of 1000000000000 times 2 bytes is too long");
    expect_within("{{ 'ab' * 500000 }}", &few, "render: line 1: operator *: it needs more than 1 MB of memory");
    expect_within("{{ [1, 2] * 100000000000 }}", &few,
                  "render: line 1: operator *: a list of 100000000000 times 2 items is too long");
    expect_within("{{ '%999999999d' % 5 }}", &few,
                  "render: line 1: operator %: a format's width and precision are at most 100000");
    expect_within("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", &few,
                  "render: line 1: {{ ... }}: nested too deeply");
    expect_within(
        "{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", &few,
        "render: line 1: attribute 'x': nested too deeply");
    expect_within("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", &few,
                  "render: line 1: variable 'ns': nested too deeply");
    char deep[4000] = "{{ ";
    memset(deep + 3, '(', 3000);
    expect(deep, "compile: line 1: nested too deeply");
    memset(deep, '\0', sizeof deep);
    strcpy(deep, "{{ ");
    for (int i = 0; i < 900; i++)
        strcat(deep, "not ");
    strcat(deep, "n }}");
    expect(deep, "True");
}

/* A text that grows piece by piece costs what is added, not its whole length each time. */
static void test_growing_text(void **state)
{
    (void)state;
    static const jinja_limits limits = {.steps = 1000000, .memory = 4u << 20, .output = 1u << 20};
    expect_within("{% set ns = namespace(x='') %}{% for i in range(5000) %}{% set ns.x = ns.x + 'twenty characters at "
                  "l' + 'east' %}{% endfor %}"
                  "{{ ns.x | length }}{% set a = ns.x + 'a' %}{% set b = ns.x + 'b' %}{{ a[-1] }}{{ b[-1] }}",
                  &limits, "130000ab");
}

/* Looking for something many times in a long text is counted by what is looked at, not by what is left of it. */
static void test_steps_of_searches(void **state)
{
    (void)state;
    static const jinja_limits limits = {.steps = 100000, .memory = 16u << 20, .output = 1u << 20};
    expect_within(
        "{% set s = 'a line of text, not long\n' * 4000 %}{{ s.replace('\n', '') | length }} {{ s.split('\n') | length "
        "}} "
        "{{ s.rsplit('\n') | length }} {{ s.count('line') }} {{ s.splitlines() | length }} {{ s.split() | length }}",
        &limits, "96000 4001 4001 4000 4000 24000");
    expect_within("{% set s = 'ä' * 400000 %}{% for i in range(1000) %}{% if s is lower %}{% endif %}{% endfor %}",
                  &limits, "render: line 1: test 'lower': it takes too many steps");
    expect_within(
        "{% set s = 'ä' * 400000 %}{% for i in range(1000) %}{% if s.find('x', 300000) %}{% endif %}{% endfor %}",
        &limits, "render: line 1: call of 'find': it takes too many steps");
    expect_within("{% set s = 'a' * 400000 %}{% set t = 'a' * 200000 + 'b' %}{{ s.rfind(t) }}", &limits,
                  "render: line 1: call of 'rfind': it takes too many steps");
}

/* Threads. */

enum { N_THREADS = 4, N_TIMES = 200 };

static const jinja *shared;

static void *render_often(void *unused)
{
    (void)unused;
    json_t *v = json_loads(variables, JSON_ALLOW_NUL, NULL);
    err e;
    for (int i = 0; i < N_TIMES; i++) {
        buf out = {0};
        if (jinja_render(shared, &(jinja_input){.variables = v}, &jinja_default_limits, &out, NULL, &e) ||
            strcmp(out.data, "23TEXT[1, 2, 3]a-x,b-y,7m1é2callerm") != 0)
            fprintf(stderr, "%s\n", out.data), abort();
        buf_free(&out);
    }
    json_decref(v);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static const char source[] =
        "{{ 'é€' | length }}{{ '日本語'[1:] | length + 1 }}{{ s | upper }}{{ l | sort }}"
        "{% for k, v in {'a': 'x', 'b': 'y'}.items() %}{{ '%s-%s,' | format(k, v) }}{% endfor %}"
        "{% macro m(a, b='é') %}{{ m.name }}{{ a }}{{ b }}{{ b | length + 1 }}{{ caller() if caller }}{{ m.name }}{% "
        "endmacro %}{{ n }}"
        "{% call m(1) %}{{ 'caller' }}{% endcall %}";
    err e;
    jinja *p = jinja_compile(source, strlen(source), &e);
    if (!p)
        fail_msg("%s", e.msg);
    shared = p;
    pthread_t thread[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, render_often, NULL), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
    jinja_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile_errors),
        cmocka_unit_test(test_render_errors),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_big_integers),
        cmocka_unit_test(test_extreme_arguments),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_bytes_that_end_strings),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_growing_text),
        cmocka_unit_test(test_steps_of_searches),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
