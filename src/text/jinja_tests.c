/* jinja_tests.c - see jinja_tests.h */
#include "text/jinja_tests.h"

#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_str.h"

/* Tests of a value's kind. */

static bool test_defined(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "defined", a);
    return in.kind != VALUE_UNDEFINED;
}

static bool test_undefined(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "undefined", a);
    return in.kind == VALUE_UNDEFINED;
}

static bool test_none(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "none", a);
    return in.kind == VALUE_NONE;
}

static bool test_boolean(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "boolean", a);
    return in.kind == VALUE_BOOL;
}

static bool test_true(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "true", a);
    return in.kind == VALUE_BOOL && in.b;
}

static bool test_false(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "false", a);
    return in.kind == VALUE_BOOL && !in.b;
}

static bool test_integer(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "integer", a);
    return in.kind == VALUE_INT;
}

static bool test_float(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "float", a);
    return in.kind == VALUE_FLOAT;
}

static bool test_number(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "number", a);
    return value_is_number(in);
}

static bool test_string(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "string", a);
    return in.kind == VALUE_STRING;
}

static bool test_mapping(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "mapping", a);
    return in.kind == VALUE_DICT;
}

static bool test_iterable(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "iterable", a);
    return value_is_iterable(in);
}

/* Returns whether a value has a length and elements; as in Jinja, an undefined value has too. */
static bool test_sequence(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "sequence", a);
    return in.kind == VALUE_STRING || value_is_sequence(in) || in.kind == VALUE_DICT || in.kind == VALUE_RANGE ||
           in.kind == VALUE_UNDEFINED;
}

static bool test_callable(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "callable", a);
    return value_is_callable(in);
}

static bool test_escaped(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "escaped", a);
    return in.kind == VALUE_STRING && in.s->markup;
}

static bool test_lower(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "lower", a);
    return str_has_case(r, value_to_str(r, in), false);
}

static bool test_upper(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "upper", a);
    return str_has_case(r, value_to_str(r, in), true);
}

/* Tests of the value itself. */

static value modulo(jinja_run *r, value in, value by)
{
    if (in.kind == VALUE_STRING)
        jinja_run_fail(r, "the format leaves arguments over");
    return op_binary(r, OP_MOD, in, by);
}

static bool test_odd(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "odd", a);
    return value_equal(r, modulo(r, in, value_int(2)), value_int(1));
}

static bool test_even(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "even", a);
    return value_equal(r, modulo(r, in, value_int(2)), value_int(0));
}

static bool test_divisibleby(jinja_run *r, value in, const jinja_arguments *a)
{
    value by;
    jinja_args_bind(r, "divisibleby", a, 1, "num", &by);
    return value_equal(r, modulo(r, in, by), value_int(0));
}

static bool compare(jinja_run *r, op_kind op, value in, const jinja_arguments *a)
{
    value other;
    jinja_args_bind(r, "the test", a, 1, "other", &other);
    return op_compare(r, op, in, other);
}

static bool test_eq(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_EQ, in, a);
}
static bool test_ne(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_NE, in, a);
}
static bool test_lt(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_LT, in, a);
}
static bool test_le(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_LE, in, a);
}
static bool test_gt(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_GT, in, a);
}
static bool test_ge(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_GE, in, a);
}
static bool test_in(jinja_run *r, value in, const jinja_arguments *a)
{
    return compare(r, OP_IN, in, a);
}

static bool test_sameas(jinja_run *r, value in, const jinja_arguments *a)
{
    value other;
    jinja_args_bind(r, "sameas", a, 1, "other", &other);
    return value_is_same(in, other);
}

static bool test_filter(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "filter", a);
    dict_check_key(r, in);
    return in.kind == VALUE_STRING && filter_find(in.s);
}

static bool test_test(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "test", a);
    dict_check_key(r, in);
    return in.kind == VALUE_STRING && test_find(in.s);
}

test_body *test_find(const str *name)
{
    static const struct {
        const char *name;
        test_body *call;
    } tests[] = {
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"none", test_none},
        {"boolean", test_boolean},
        {"true", test_true},
        {"false", test_false},
        {"integer", test_integer},
        {"float", test_float},
        {"number", test_number},
        {"string", test_string},
        {"mapping", test_mapping},
        {"iterable", test_iterable},
        {"sequence", test_sequence},
        {"callable", test_callable},
        {"escaped", test_escaped},
        {"lower", test_lower},
        {"upper", test_upper},
        {"odd", test_odd},
        {"even", test_even},
        {"divisibleby", test_divisibleby},
        {"in", test_in},
        {"sameas", test_sameas},
        {"==", test_eq},
        {"eq", test_eq},
        {"equalto", test_eq},
        {"!=", test_ne},
        {"ne", test_ne},
        {"<", test_lt},
        {"lt", test_lt},
        {"lessthan", test_lt},
        {"<=", test_le},
        {"le", test_le},
        {">", test_gt},
        {"gt", test_gt},
        {"greaterthan", test_gt},
        {">=", test_ge},
        {"ge", test_ge},
        {"filter", test_filter},
        {"test", test_test},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (str_is(name, tests[i].name))
            return tests[i].call;
    return NULL;
}
