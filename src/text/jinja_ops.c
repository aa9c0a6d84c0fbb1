/* jinja_ops.c - see jinja_ops.h */
#include "text/jinja_ops.h"

#include <math.h>
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_format.h"
#include "text/jinja_methods.h"
#include "text/jinja_str.h"

_Noreturn static void fail_types(jinja_run *r, const char *op, value a, value b)
{
    jinja_run_fail(r, "'%s' and '%s' have no %s", value_type(a), value_type(b), op);
}

_Noreturn static void fail_overflow(jinja_run *r)
{
    jinja_run_fail(r, "the result is an integer of more than 64 bits");
}

/* Numbers. */

static int64_t int_floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t int_mod(int64_t a, int64_t b)
{
    int64_t m = b == -1 ? 0 : a % b; /* INT64_MIN % -1 overflows */
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m == 0)
        return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

/* Returns a // b as Python computes it: (a - a % b) / b with Python's %, which is an integer but for rounding errors,
 * rounded to the nearest one. */
static double float_floor_div(double a, double b)
{
    double m = fmod(a, b), quotient = (a - m) / b, whole = floor(quotient);
    if (m != 0 && (m < 0) != (b < 0))
        whole = floor(quotient -= 1);
    if (quotient == 0)
        return copysign(0, a / b);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

/* Returns a / b, rounded once: converting both to double first would round integers of more than 53 bits. */
static double int_quotient(int64_t a, int64_t b)
{
    enum { EXACT = 53 };
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    if ((x >> EXACT == 0 && y >> EXACT == 0) || x == 0)
        return (double)a / (double)b;
    /* Long division to 64 significant bits; the last of them is also the sticky bit, for the remainder. */
    int shift = 0;
    uint64_t quotient = x / y, rest = x % y;
    for (; quotient >> 63 == 0; shift--) {
        bool carry = rest >> 63, bit;
        rest <<= 1;
        bit = carry || rest >= y;
        rest -= bit ? y : 0;
        quotient = quotient << 1 | bit;
    }
    double q = ldexp((double)(quotient | (rest != 0)), shift);
    return (a < 0) != (b < 0) ? -q : q;
}

static value int_power(jinja_run *r, int64_t base, int64_t exponent)
{
    int64_t x = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(x, base, &x))
            fail_overflow(r);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            fail_overflow(r);
    }
    return value_int(x);
}

static value int_binary(jinja_run *r, op_kind op, int64_t a, int64_t b)
{
    int64_t x = 0;
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &x); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &x); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &x); break;
    case OP_DIV: return value_float(int_quotient(a, b));
    case OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        x = over ? 0 : int_floor_div(a, b);
        break;
    case OP_MOD: x = int_mod(a, b); break;
    default: return b < 0 ? value_float(pow((double)a, (double)b)) : int_power(r, a, b);
    }
    if (over)
        fail_overflow(r);
    return value_int(x);
}

static value float_binary(jinja_run *r, op_kind op, double a, double b)
{
    double x = 0;
    switch (op) {
    case OP_ADD: return value_float(a + b);
    case OP_SUB: return value_float(a - b);
    case OP_MUL: return value_float(a * b);
    case OP_DIV: return value_float(a / b);
    case OP_FLOORDIV: return value_float(float_floor_div(a, b));
    case OP_MOD: return value_float(float_mod(a, b));
    default: x = pow(a, b);
    }
    if (isinf(x) && !isinf(a) && !isinf(b))
        jinja_run_fail(r, "the result is too large");
    if (isnan(x) && !isnan(a) && !isnan(b))
        jinja_run_fail(r, "complex numbers are not served here");
    return value_float(x);
}

static value number_binary(jinja_run *r, op_kind op, value a, value b)
{
    bool divides = op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD;
    if ((divides && value_number(b) == 0) || (op == OP_POW && value_number(a) == 0 && value_number(b) < 0))
        jinja_run_fail(r, "division by zero");
    if (value_is_int(a) && value_is_int(b))
        return int_binary(r, op, value_to_int(a), value_to_int(b));
    return float_binary(r, op, value_number(a), value_number(b));
}

/* Sequences. */

static value join_lists(jinja_run *r, value a, value b)
{
    size_t n = a.list->n + b.list->n;
    value *at = JINJA_NEW_ARRAY(r, value, n);
    jinja_run_spend(r, n);
    if (a.list->n)
        memcpy(at, a.list->at, a.list->n * sizeof *at);
    if (b.list->n)
        memcpy(at + a.list->n, b.list->at, b.list->n * sizeof *at);
    return value_list(r, a.kind, at, n);
}

static value repeat(jinja_run *r, value what, int64_t n)
{
    if (what.kind == VALUE_STRING)
        return value_str(str_repeat(r, what.s, n));
    if (n <= 0 || what.list->n == 0)
        return value_list(r, what.kind, NULL, 0);
    if ((uint64_t)n > r->mem.limit / what.list->n)
        jinja_run_fail(r, "a list of %lld times %zu items is too long", (long long)n, what.list->n);
    size_t all = (size_t)n * what.list->n;
    value *at = JINJA_NEW_ARRAY(r, value, all);
    jinja_run_spend(r, all);
    for (size_t i = 0; i < all; i++)
        at[i] = what.list->at[i % what.list->n];
    return value_list(r, what.kind, at, all);
}

static bool can_repeat(value v)
{
    return v.kind == VALUE_STRING || value_is_sequence(v);
}

value op_binary(jinja_run *r, op_kind op, value a, value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == OP_MOD && a.kind == VALUE_STRING)
        return format_percent(r, a.s, b);
    if (a.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, a);
    if (b.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, b);
    if (value_is_number(a) && value_is_number(b))
        return number_binary(r, op, a, b);
    if (op == OP_ADD && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return value_str(str_concat(r, a.s, b.s));
    if (op == OP_ADD && a.kind == b.kind && value_is_sequence(a))
        return join_lists(r, a, b);
    if (op == OP_MUL && can_repeat(a) && value_is_int(b))
        return repeat(r, a, value_to_int(b));
    if (op == OP_MUL && value_is_int(a) && can_repeat(b))
        return repeat(r, b, value_to_int(a));
    if (op == OP_ADD && (a.kind == VALUE_STRING || value_is_sequence(a)))
        jinja_run_fail(r, "'%s' cannot be added to '%s'", value_type(b), value_type(a));
    fail_types(r, names[op], a, b);
}

bool op_compare(jinja_run *r, op_kind op, value a, value b)
{
    value_order order;
    switch (op) {
    case OP_EQ: return value_equal(r, a, b);
    case OP_NE: return !value_equal(r, a, b);
    case OP_LT: return value_compare(r, a, b, "<") == ORDER_LESS;
    case OP_LE: order = value_compare(r, a, b, "<="); return order == ORDER_LESS || order == ORDER_EQUAL;
    case OP_GT: return value_compare(r, a, b, ">") == ORDER_GREATER;
    case OP_GE: order = value_compare(r, a, b, ">="); return order == ORDER_GREATER || order == ORDER_EQUAL;
    case OP_IN: return value_contains(r, b, a);
    default: return !value_contains(r, b, a);
    }
}

value op_negative(jinja_run *r, value v)
{
    if (v.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, v);
    if (v.kind == VALUE_FLOAT)
        return value_float(-v.f);
    if (!value_is_int(v))
        jinja_run_fail(r, "'%s' has no negative", value_type(v));
    return int_binary(r, OP_SUB, 0, value_to_int(v));
}

value op_positive(jinja_run *r, value v)
{
    if (v.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, v);
    if (!value_is_number(v))
        jinja_run_fail(r, "'%s' has no +", value_type(v));
    return v.kind == VALUE_FLOAT ? v : value_int(value_to_int(v));
}

/* Attributes and elements. */

value op_find_attribute(jinja_run *r, value of, const str *name)
{
    value found = value_missing();
    if (of.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, of);
    if (of.kind == VALUE_NAMESPACE) {
        dict_get(r, of.dict, value_str(name), &found);
        return found;
    }
    if (of.kind == VALUE_LOOP)
        return jinja_loop_attribute(r, of.loop, name);
    if (of.kind == VALUE_MACRO)
        return jinja_macro_attribute(r, of.macro, name);
    if (of.kind == VALUE_TUPLE && of.list->is_group && (str_is(name, "grouper") || str_is(name, "list")))
        return of.list->at[str_is(name, "list")];
    if (value_is_number(of) && str_is(name, "real"))
        return op_positive(r, of);
    return method_find(r, of, name);
}

/* Returns the element; MISSING: there is none, or `of` cannot have any. */
static value find_item(jinja_run *r, value of, value key)
{
    value found = value_missing();
    if (of.kind == VALUE_DICT) {
        if (dict_unhashable_part(r, key).kind == VALUE_MISSING)
            dict_get(r, of.dict, key, &found);
        return found;
    }
    bool indexed = of.kind == VALUE_STRING || value_is_sequence(of) || of.kind == VALUE_RANGE;
    if (!indexed || !value_is_int(key))
        return found;
    int64_t i = value_to_int(key), n = value_length(r, of);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return found;
    if (of.kind == VALUE_STRING)
        return value_str(str_slice(r, of.s, (size_t)i, (size_t)i + 1));
    if (of.kind == VALUE_RANGE)
        return value_int(jinja_range_item(of.range, i));
    return of.list->at[i];
}

value op_attribute(jinja_run *r, value of, const str *name)
{
    value found = op_find_attribute(r, of, name);
    if (found.kind == VALUE_MISSING)
        found = find_item(r, of, value_str(name));
    return found.kind == VALUE_MISSING ? value_undefined_of(r, of, value_str(name)) : found;
}

value op_item(jinja_run *r, value of, value key)
{
    if (of.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, of);
    value found = find_item(r, of, key);
    if (found.kind == VALUE_MISSING && key.kind == VALUE_STRING)
        found = op_find_attribute(r, of, key.s);
    return found.kind == VALUE_MISSING ? value_undefined_of(r, of, key) : found;
}

/* Returns a bound of a slice, clamped to low and high; default_value if it is left out. */
static int64_t bound(jinja_run *r, value v, int64_t n, int64_t low, int64_t high, int64_t default_value)
{
    if (v.kind == VALUE_MISSING || v.kind == VALUE_NONE)
        return default_value;
    if (v.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, v);
    if (!value_is_int(v))
        jinja_run_fail(r, "the bounds of a slice must be integers, not '%s'", value_type(v));
    int64_t i = value_to_int(v);
    if (i < 0)
        i += n;
    return i < low ? low : i > high ? high : i;
}

static value slice_str(jinja_run *r, const str *s, int64_t start, int64_t step, int64_t count)
{
    if (step == 1)
        return value_str(str_slice(r, s, (size_t)start, (size_t)(start + count)));
    text out = {.r = r};
    for (int64_t i = 0; i < count; i++)
        text_add_str(&out, str_slice(r, s, (size_t)(start + i * step), (size_t)(start + i * step) + 1));
    value v = text_value(&out);
    return s->markup ? value_str(str_mark(r, v.s)) : v;
}

/* Returns x[i]; i may also lie one before the first item or one behind the last. */
static int64_t range_bound(jinja_run *r, const jinja_range *x, int64_t i)
{
    int64_t at = i > 0 ? jinja_range_item(x, i - 1) : x->start;
    bool over = i > 0 ? __builtin_add_overflow(at, x->step, &at) : i < 0 && __builtin_sub_overflow(at, x->step, &at);
    if (over)
        fail_overflow(r);
    return at;
}

static value slice_range(jinja_run *r, const jinja_range *x, int64_t from, int64_t to, int64_t by)
{
    jinja_range *made = JINJA_NEW(r, jinja_range);
    if (__builtin_mul_overflow(x->step, by, &made->step))
        fail_overflow(r);
    made->start = range_bound(r, x, from);
    made->stop = range_bound(r, x, to);
    return (value){.kind = VALUE_RANGE, .range = made};
}

value op_slice(jinja_run *r, value of, value start, value stop, value step)
{
    if (of.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, of);
    if (of.kind != VALUE_STRING && !value_is_sequence(of) && of.kind != VALUE_RANGE)
        jinja_run_fail(r, "'%s' cannot be sliced", value_type(of));
    int64_t by = step.kind == VALUE_MISSING || step.kind == VALUE_NONE ? 1 : bound(r, step, 0, INT64_MIN, INT64_MAX, 1);
    if (by == 0)
        jinja_run_fail(r, "the step of a slice cannot be 0");
    int64_t n = value_length(r, of);
    int64_t from = by > 0 ? bound(r, start, n, 0, n, 0) : bound(r, start, n, -1, n - 1, n - 1);
    int64_t to = by > 0 ? bound(r, stop, n, 0, n, n) : bound(r, stop, n, -1, n - 1, -1);
    int64_t count = jinja_range_length(&(jinja_range){from, to, by});
    if (of.kind == VALUE_STRING)
        return slice_str(r, of.s, from, by, count);
    if (of.kind == VALUE_RANGE)
        return slice_range(r, of.range, from, to, by);
    value *at = JINJA_NEW_ARRAY(r, value, (size_t)count);
    jinja_run_spend(r, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        at[i] = find_item(r, of, value_int(from + i * by));
    return value_list(r, of.kind == VALUE_TUPLE ? VALUE_TUPLE : VALUE_LIST, at, (size_t)count);
}
