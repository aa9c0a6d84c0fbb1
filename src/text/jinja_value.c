/* jinja_value.c - see jinja_value.h */
#include "text/jinja_value.h"

#include <math.h>
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_str.h"

value value_text(jinja_run *r, const char *s, size_t n)
{
    return value_str(str_new(r, s, n));
}

value value_list(jinja_run *r, value_kind kind, const value *at, size_t n)
{
    jinja_list *l = JINJA_NEW(r, jinja_list);
    *l = (jinja_list){.at = at, .n = n};
    return (value){.kind = kind, .list = l};
}

value value_pair(jinja_run *r, value a, value b)
{
    value *at = JINJA_NEW_ARRAY(r, value, 2);
    at[0] = a;
    at[1] = b;
    return value_list(r, VALUE_TUPLE, at, 2);
}

value value_function(jinja_run *r, const char *name, function_body *call, value self)
{
    function *f = JINJA_NEW(r, function);
    *f = (function){.name = name, .call = call, .self = self};
    return (value){.kind = VALUE_FUNCTION, .function = f};
}

value value_iterator(jinja_run *r, const char *type, bool (*next)(jinja_run *, iter *, value *), iter *inner,
                     void *state)
{
    iter *it = JINJA_NEW(r, iter);
    *it = (iter){.next = next, .type = type, .inner = inner, .state = state};
    return (value){.kind = VALUE_ITERATOR, .iter = it};
}

value value_undefined(jinja_run *r, const char *hint)
{
    undefined *u = JINJA_NEW(r, undefined);
    *u = (undefined){.hint = hint};
    return (value){.kind = VALUE_UNDEFINED, .undefined = u};
}

value value_undefined_of(jinja_run *r, value of, value name)
{
    undefined *u = JINJA_NEW(r, undefined);
    *u = (undefined){.of = of, .name = name};
    return (value){.kind = VALUE_UNDEFINED, .undefined = u};
}

_Noreturn void value_fail_undefined(jinja_run *r, value v)
{
    const undefined *u = v.undefined;
    if (!u || u->hint)
        jinja_run_fail(r, "%s", u ? u->hint : "the value is undefined");
    text name = {.r = r};
    value_write_repr(&name, u->name);
    if (u->of.kind == VALUE_MISSING)
        jinja_run_fail(r, "%.*s is undefined", (int)name.n, name.data);
    jinja_run_fail(r, "'%s' has no %s %.*s", value_type(u->of), u->name.kind == VALUE_STRING ? "attribute" : "element",
                   (int)name.n, name.data);
}

const char *value_type(value v)
{
    static const char *const names[] = {
        [VALUE_MISSING] = "missing",
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",
        [VALUE_LIST] = "list",
        [VALUE_TUPLE] = "tuple",
        [VALUE_KEYS] = "dict_keys",
        [VALUE_VALUES] = "dict_values",
        [VALUE_ITEMS] = "dict_items",
        [VALUE_DICT] = "dict",
        [VALUE_RANGE] = "range",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_LOOP] = "LoopContext",
        [VALUE_MACRO] = "Macro",
        [VALUE_FUNCTION] = "function",
        [VALUE_CYCLER] = "Cycler",
    };
    if (v.kind == VALUE_ITERATOR)
        return v.iter->type;
    return v.kind == VALUE_STRING && v.s->markup ? "Markup" : names[v.kind];
}

bool value_has_length(value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED:
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_KEYS:
    case VALUE_VALUES:
    case VALUE_ITEMS:
    case VALUE_DICT:
    case VALUE_RANGE:
    case VALUE_LOOP: return true;
    default: return false;
    }
}

int64_t jinja_range_length(const jinja_range *x)
{
    if (x->step > 0 ? x->start >= x->stop : x->start <= x->stop)
        return 0;
    uint64_t distance = x->step > 0 ? (uint64_t)x->stop - (uint64_t)x->start : (uint64_t)x->start - (uint64_t)x->stop;
    uint64_t step = x->step > 0 ? (uint64_t)x->step : 0 - (uint64_t)x->step;
    uint64_t n = (distance - 1) / step + 1;
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

int64_t jinja_range_item(const jinja_range *x, int64_t i)
{
    return (int64_t)((uint64_t)x->start + (uint64_t)i * (uint64_t)x->step); /* i * step alone may overflow */
}

int64_t value_length(jinja_run *r, value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED: return 0;
    case VALUE_STRING:
        if (v.s->n_chars == UNCOUNTED)
            jinja_run_spend(r, v.s->n / 64);
        return (int64_t)str_chars(v.s);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_KEYS:
    case VALUE_VALUES:
    case VALUE_ITEMS: return (int64_t)v.list->n;
    case VALUE_DICT: return (int64_t)v.dict->n;
    case VALUE_RANGE: return jinja_range_length(v.range);
    case VALUE_LOOP: return jinja_loop_length(r, v.loop);
    default: jinja_run_fail(r, "'%s' has no length", value_type(v));
    }
}

bool value_is_true(jinja_run *r, value v)
{
    switch (v.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v.b;
    case VALUE_INT: return v.i != 0;
    case VALUE_FLOAT: return v.f != 0;
    case VALUE_STRING: return v.s->n != 0;
    default: return !value_has_length(v) || value_length(r, v) != 0;
    }
}

static bool lists_equal(jinja_run *r, const jinja_list *a, const jinja_list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = value_equal(r, a->at[i], b->at[i]);
    return same;
}

/* Keys and items are compared as sets. */
static bool views_equal(jinja_run *r, const jinja_list *a, const jinja_list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        same = false;
        for (size_t k = 0; !same && k < b->n; k++)
            same = value_equal(r, a->at[i], b->at[k]);
    }
    return same;
}

static bool dicts_equal(jinja_run *r, const dict *a, const dict *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        value other;
        same = dict_get(r, b, a->at[i].key, &other) && value_equal(r, a->at[i].value, other);
    }
    return same;
}

static bool ranges_equal(const jinja_range *a, const jinja_range *b)
{
    int64_t n = jinja_range_length(a);
    return n == jinja_range_length(b) && (n == 0 || (a->start == b->start && (n == 1 || a->step == b->step)));
}

/* Returns a number as it is: a long double holds every int and every float. */
static long double exact(value v)
{
    return v.kind == VALUE_FLOAT ? (long double)v.f : (long double)value_to_int(v);
}

static bool numbers_equal(value a, value b)
{
    return exact(a) == exact(b);
}

bool value_equal(jinja_run *r, value a, value b)
{
    jinja_run_spend(r, 1);
    if (value_is_number(a) && value_is_number(b))
        return numbers_equal(a, b);
    if (a.kind != b.kind)
        return false;
    bool same;
    jinja_run_enter(r);
    switch (a.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: same = true; break;
    case VALUE_STRING:
        jinja_run_spend(r, a.s->n / 256);
        same = str_equal(a.s, b.s);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE: same = lists_equal(r, a.list, b.list); break;
    case VALUE_KEYS:
    case VALUE_ITEMS: same = views_equal(r, a.list, b.list); break;
    case VALUE_DICT: same = dicts_equal(r, a.dict, b.dict); break;
    case VALUE_RANGE: same = ranges_equal(a.range, b.range); break;
    default: same = value_is_same(a, b);
    }
    jinja_run_leave(r);
    return same;
}

bool value_is_same(value a, value b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_NONE: return true;
    case VALUE_BOOL: return a.b == b.b;
    case VALUE_INT: return a.i == b.i;
    case VALUE_FLOAT: return a.f == b.f;
    case VALUE_STRING: return str_equal(a.s, b.s);
    default: return a.list == b.list; /* all others are pointers */
    }
}

static value_order order_of(int sign)
{
    return sign < 0 ? ORDER_LESS : sign > 0 ? ORDER_GREATER : ORDER_EQUAL;
}

/* Lists are ordered as the first items that are not equal; NaN is equal to none. */
static value_order compare_lists(jinja_run *r, const jinja_list *a, const jinja_list *b, const char *op)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!value_equal(r, a->at[i], b->at[i]))
            return value_compare(r, a->at[i], b->at[i], op);
    return order_of(a->n < b->n ? -1 : a->n > b->n);
}

static value_order compare_numbers(value a, value b)
{
    long double x = exact(a), y = exact(b);
    return x < y ? ORDER_LESS : x > y ? ORDER_GREATER : x == y ? ORDER_EQUAL : ORDER_NONE;
}

static value_order compare_strings(const str *a, const str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->s, b->s, n) : 0; /* UTF-8 sorts as its code points do */
    return order_of(c ? c : a->n < b->n ? -1 : a->n > b->n);
}

value_order value_compare(jinja_run *r, value a, value b, const char *op)
{
    jinja_run_spend(r, 1);
    if (a.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, a);
    if (b.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, b);
    if (value_is_number(a) && value_is_number(b))
        return compare_numbers(a, b);
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        jinja_run_spend(r, a.s->n / 256);
        return compare_strings(a.s, b.s);
    }
    if (a.kind != b.kind || !value_is_sequence(a))
        jinja_run_fail(r, "'%s' and '%s' cannot be compared by %s", value_type(a), value_type(b), op);
    jinja_run_enter(r);
    value_order order = compare_lists(r, a.list, b.list, op);
    jinja_run_leave(r);
    return order;
}

bool value_float_fits(double x)
{
    return x >= (double)INT64_MIN && x < -(double)INT64_MIN;
}

static bool range_contains(const jinja_range *x, value what)
{
    bool is_float = what.kind == VALUE_FLOAT;
    if (!value_is_number(what) || (is_float && (what.f != floor(what.f) || !value_float_fits(what.f))))
        return false;
    int64_t i = is_float ? (int64_t)what.f : value_to_int(what);
    if (x->step > 0 ? i < x->start || i >= x->stop : i > x->start || i <= x->stop)
        return false;
    /* The distances in unsigned, where they cannot overflow. */
    uint64_t distance = x->step > 0 ? (uint64_t)i - (uint64_t)x->start : (uint64_t)x->start - (uint64_t)i;
    return distance % (x->step > 0 ? (uint64_t)x->step : 0 - (uint64_t)x->step) == 0;
}

bool value_contains(jinja_run *r, value in, value what)
{
    value item;
    switch (in.kind) {
    case VALUE_STRING:
        if (what.kind != VALUE_STRING)
            jinja_run_fail(r, "only a string can be in a string, not '%s'", value_type(what));
        return str_find(r, in.s, what.s, 0, in.s->n) != STR_NOT_FOUND;
    case VALUE_DICT: return dict_get(r, in.dict, what, &item);
    case VALUE_RANGE: return range_contains(in.range, what);
    case VALUE_KEYS: dict_check_key(r, what); break;
    case VALUE_ITEMS:
        if (what.kind == VALUE_TUPLE && what.list->n == 2)
            dict_check_key(r, what.list->at[0]);
        break;
    default: break;
    }
    if (!value_is_iterable(in))
        jinja_run_fail(r, "nothing can be in '%s'", value_type(in));
    for (iter *it = value_iter(r, in); iter_next(r, it, &item);)
        if (value_equal(r, item, what))
            return true;
    return false;
}
