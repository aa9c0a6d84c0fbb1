/* jinja_methods.c - see jinja_methods.h */
#include "text/jinja_methods.h"

#include <math.h>

#include "text/jinja_chars.h"
#include "text/jinja_eval.h"
#include "text/jinja_format.h"
#include "text/jinja_str.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Arguments of methods. */

static const str *text_argument(jinja_run *r, const char *method, value v)
{
    if (v.kind != VALUE_STRING)
        jinja_run_fail(r, "%s takes a string, not '%s'", method, value_type(v));
    return v.s;
}

/* Returns a string, or NULL for None or an argument that is not given. */
static const str *optional_text(jinja_run *r, const char *method, value v)
{
    return v.kind == VALUE_MISSING || v.kind == VALUE_NONE ? NULL : text_argument(r, method, v);
}

static int64_t int_or(jinja_run *r, const char *method, value v, int64_t default_value)
{
    if (v.kind == VALUE_MISSING)
        return default_value;
    if (!value_is_int(v))
        jinja_run_fail(r, "%s: expected an integer, not '%s'", method, value_type(v));
    return value_to_int(v);
}

/* Returns v, as Markup if the method was called on Markup. */
static value like(jinja_run *r, const function *f, value v)
{
    return f->self.s->markup ? value_str(str_mark(r, v.s)) : v;
}

/* Strings. */

static value strip(jinja_run *r, function *f, const jinja_arguments *a, side where)
{
    value chars;
    jinja_args_bind_positional(r, f->name, a, 0, "chars", &chars);
    return value_str(str_strip(r, f->self.s, optional_text(r, f->name, chars), where));
}

static value str_m_strip(jinja_run *r, function *f, const jinja_arguments *a)
{
    return strip(r, f, a, SIDE_BOTH);
}
static value str_m_lstrip(jinja_run *r, function *f, const jinja_arguments *a)
{
    return strip(r, f, a, SIDE_LEFT);
}
static value str_m_rstrip(jinja_run *r, function *f, const jinja_arguments *a)
{
    return strip(r, f, a, SIDE_RIGHT);
}

static value in_case(jinja_run *r, function *f, const jinja_arguments *a, str_case to)
{
    jinja_args_none(r, f->name, a);
    return value_str(str_in_case(r, f->self.s, to));
}

static value str_m_upper(jinja_run *r, function *f, const jinja_arguments *a)
{
    return in_case(r, f, a, CASE_UPPER);
}
static value str_m_lower(jinja_run *r, function *f, const jinja_arguments *a)
{
    return in_case(r, f, a, CASE_LOWER);
}
static value str_m_title(jinja_run *r, function *f, const jinja_arguments *a)
{
    return in_case(r, f, a, CASE_TITLE);
}
static value str_m_capitalize(jinja_run *r, function *f, const jinja_arguments *a)
{
    return in_case(r, f, a, CASE_CAPITALIZED);
}
static value str_m_swapcase(jinja_run *r, function *f, const jinja_arguments *a)
{
    return in_case(r, f, a, CASE_SWAPPED);
}
static value str_m_casefold(jinja_run *r, function *f, const jinja_arguments *a)
{
    return in_case(r, f, a, CASE_FOLDED);
}

static value split(jinja_run *r, function *f, const jinja_arguments *a, bool from_right)
{
    value v[2];
    jinja_args_bind(r, f->name, a, 0, "sep maxsplit", v);
    return str_split(r, f->self.s, optional_text(r, f->name, v[0]), int_or(r, f->name, v[1], -1), from_right);
}

static value str_m_split(jinja_run *r, function *f, const jinja_arguments *a)
{
    return split(r, f, a, false);
}
static value str_m_rsplit(jinja_run *r, function *f, const jinja_arguments *a)
{
    return split(r, f, a, true);
}

static value str_m_splitlines(jinja_run *r, function *f, const jinja_arguments *a)
{
    value keep;
    jinja_args_bind(r, f->name, a, 0, "keepends", &keep);
    return str_lines(r, f->self.s, value_is_true(r, keep));
}

/* Converts a start or end in code points (negative: from the end; None: left out) to an offset in bytes; past the end,
 * length + 1. */
static size_t offset_of(jinja_run *r, function *f, value v, int64_t default_value)
{
    int64_t n = (int64_t)str_chars(f->self.s);
    int64_t i = v.kind == VALUE_NONE ? default_value : int_or(r, f->name, v, default_value);
    if (n != (int64_t)f->self.s->n)
        jinja_run_spend(r, f->self.s->n / 64);
    if (i < 0)
        i = i + n < 0 ? 0 : i + n;
    return i > n ? f->self.s->n + 1 : str_offset(f->self.s, (size_t)i);
}

/* Returns whether self[start:end] begins (ends) with a string, or with one of a tuple. */
static value starts_or_ends(jinja_run *r, function *f, const jinja_arguments *a, bool starts)
{
    value v[3];
    jinja_args_bind_positional(r, f->name, a, 1, "prefix start end", v);
    size_t from = offset_of(r, f, v[1], 0), to = offset_of(r, f, v[2], INT64_MAX);
    if (to > f->self.s->n)
        to = f->self.s->n;
    if (from > to)
        return value_bool(false);
    const str between = {.s = f->self.s->s + from, .n = to - from, .n_chars = UNCOUNTED};
    bool is_tuple = v[0].kind == VALUE_TUPLE;
    size_t n = is_tuple ? v[0].list->n : 1;
    for (size_t i = 0; i < n; i++) {
        value one = is_tuple ? v[0].list->at[i] : v[0];
        if (one.kind != VALUE_STRING)
            jinja_run_fail(r, "%s takes a string or a tuple of strings, not '%s'", f->name, value_type(one));
        jinja_run_spend(r, one.s->n / 256);
        if (starts ? str_starts(&between, one.s->s, one.s->n) : str_ends(&between, one.s->s, one.s->n))
            return value_bool(true);
    }
    return value_bool(false);
}

static value str_m_startswith(jinja_run *r, function *f, const jinja_arguments *a)
{
    return starts_or_ends(r, f, a, true);
}
static value str_m_endswith(jinja_run *r, function *f, const jinja_arguments *a)
{
    return starts_or_ends(r, f, a, false);
}

static value find(jinja_run *r, function *f, const jinja_arguments *a, bool last, bool must)
{
    value v[3];
    jinja_args_bind_positional(r, f->name, a, 1, "sub start end", v);
    const str *what = text_argument(r, f->name, v[0]);
    size_t from = offset_of(r, f, v[1], 0), to = offset_of(r, f, v[2], INT64_MAX);
    size_t at = (last ? str_find_last : str_find)(r, f->self.s, what, from, to);
    if (at == STR_NOT_FOUND && must)
        jinja_run_fail(r, "the text is not there");
    return value_int(at == STR_NOT_FOUND ? -1 : (int64_t)str_chars_before(f->self.s, at));
}

static value str_m_find(jinja_run *r, function *f, const jinja_arguments *a)
{
    return find(r, f, a, false, false);
}
static value str_m_rfind(jinja_run *r, function *f, const jinja_arguments *a)
{
    return find(r, f, a, true, false);
}
static value str_m_index(jinja_run *r, function *f, const jinja_arguments *a)
{
    return find(r, f, a, false, true);
}
static value str_m_rindex(jinja_run *r, function *f, const jinja_arguments *a)
{
    return find(r, f, a, true, true);
}

static value str_m_count(jinja_run *r, function *f, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind_positional(r, f->name, a, 1, "sub start end", v);
    const str *what = text_argument(r, f->name, v[0]);
    size_t at = offset_of(r, f, v[1], 0), to = offset_of(r, f, v[2], INT64_MAX), n = 0;
    to = to < f->self.s->n ? to : f->self.s->n;
    if (what->n == 0 && at > to)
        return value_int(0);
    if (what->n == 0) /* it is before every character, and at the end */
        return value_int((int64_t)(str_chars_before(f->self.s, to) - str_chars_before(f->self.s, at)) + 1);
    for (; (at = str_find(r, f->self.s, what, at, to)) != STR_NOT_FOUND; at += what->n)
        n++;
    return value_int((int64_t)n);
}

static value str_m_replace(jinja_run *r, function *f, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind_positional(r, f->name, a, 2, "old new count", v);
    const str *what = text_argument(r, f->name, v[0]), *by = text_argument(r, f->name, v[1]);
    return value_str(str_replace(r, f->self.s, what, by, int_or(r, f->name, v[2], -1)));
}

static value str_m_join(jinja_run *r, function *f, const jinja_arguments *a)
{
    value over, item;
    text out = {.r = r};
    bool first = true;
    jinja_args_bind_positional(r, f->name, a, 1, "iterable", &over);
    for (iter *it = value_iter(r, over); iter_next(r, it, &item); first = false) {
        if (item.kind != VALUE_STRING && !f->self.s->markup)
            jinja_run_fail(r, "only strings can be joined, not '%s'", value_type(item));
        if (!first)
            text_add_str(&out, f->self.s);
        text_add_str(&out, f->self.s->markup ? str_escape(r, value_to_str(r, item)) : item.s);
    }
    return like(r, f, text_value(&out));
}

static value str_m_format(jinja_run *r, function *f, const jinja_arguments *a)
{
    return format_braces(r, f->self.s, a);
}

static value without(jinja_run *r, function *f, const jinja_arguments *a, bool prefix)
{
    value v;
    jinja_args_bind_positional(r, f->name, a, 1, "affix", &v);
    const str *s = f->self.s, *affix = text_argument(r, f->name, v);
    if (prefix ? !str_starts(s, affix->s, affix->n) : !str_ends(s, affix->s, affix->n))
        return f->self;
    return value_str(str_like(r, s, prefix ? s->s + affix->n : s->s, s->n - affix->n));
}

static value str_m_removeprefix(jinja_run *r, function *f, const jinja_arguments *a)
{
    return without(r, f, a, true);
}
static value str_m_removesuffix(jinja_run *r, function *f, const jinja_arguments *a)
{
    return without(r, f, a, false);
}

static value partition(jinja_run *r, function *f, const jinja_arguments *a, bool last)
{
    value sep;
    jinja_args_bind_positional(r, f->name, a, 1, "sep", &sep);
    const str *s = f->self.s, *by = text_argument(r, f->name, sep);
    if (by->n == 0)
        jinja_run_fail(r, "the separator is empty");
    size_t at = (last ? str_find_last : str_find)(r, s, by, 0, s->n);
    value *parts = JINJA_NEW_ARRAY(r, value, 3), empty = value_str(str_like(r, s, "", 0));
    bool found = at != STR_NOT_FOUND;
    parts[0] = found ? value_str(str_like(r, s, s->s, at)) : last ? empty : f->self;
    parts[1] = found ? value_str(str_like(r, s, by->s, by->n)) : empty;
    parts[2] = found ? value_str(str_like(r, s, s->s + at + by->n, s->n - at - by->n)) : last ? f->self : empty;
    return value_list(r, VALUE_TUPLE, parts, 3);
}

static value str_m_partition(jinja_run *r, function *f, const jinja_arguments *a)
{
    return partition(r, f, a, false);
}
static value str_m_rpartition(jinja_run *r, function *f, const jinja_arguments *a)
{
    return partition(r, f, a, true);
}

/* Returns s with `left` fill characters before it and `right` behind it. */
static value padded(jinja_run *r, const str *s, const str *fill, int64_t left, int64_t right)
{
    const str *x = str_concat(r, str_repeat(r, fill, left), str_plain(r, s));
    x = str_concat(r, x, str_repeat(r, fill, right));
    return value_str(s->markup ? str_mark(r, x) : x);
}

static value pad(jinja_run *r, function *f, const jinja_arguments *a, int sides)
{
    value v[2];
    jinja_args_bind_positional(r, f->name, a, 1, "width fillchar", v);
    const str *fill = v[1].kind == VALUE_MISSING ? str_of(r, " ") : text_argument(r, f->name, v[1]);
    int64_t width = int_or(r, f->name, v[0], 0), n = (int64_t)str_chars(f->self.s);
    if (str_chars(fill) != 1)
        jinja_run_fail(r, "what to fill with must be one character");
    if (width <= n)
        return f->self;
    int64_t more = width - n;
    int64_t left = sides == SIDE_LEFT ? more : sides == SIDE_RIGHT ? 0 : more / 2 + (more & width & 1);
    return padded(r, f->self.s, fill, left, more - left);
}

static value str_m_center(jinja_run *r, function *f, const jinja_arguments *a)
{
    return pad(r, f, a, SIDE_BOTH);
}
static value str_m_ljust(jinja_run *r, function *f, const jinja_arguments *a)
{
    return pad(r, f, a, SIDE_RIGHT);
}
static value str_m_rjust(jinja_run *r, function *f, const jinja_arguments *a)
{
    return pad(r, f, a, SIDE_LEFT);
}

static value str_m_zfill(jinja_run *r, function *f, const jinja_arguments *a)
{
    value v;
    jinja_args_bind_positional(r, f->name, a, 1, "width", &v);
    const str *s = f->self.s;
    int64_t width = int_or(r, f->name, v, 0), n = (int64_t)str_chars(s);
    size_t sign = s->n && (s->s[0] == '-' || s->s[0] == '+');
    if (width <= n)
        return f->self;
    const str *zeros = str_repeat(r, str_of(r, "0"), width - n);
    const str *x = str_concat(r, str_new(r, s->s, sign), zeros);
    return value_str(str_concat(r, x, str_new(r, s->s + sign, s->n - sign)));
}

static value str_m_expandtabs(jinja_run *r, function *f, const jinja_arguments *a)
{
    value size;
    text out = {.r = r};
    jinja_args_bind(r, f->name, a, 0, "tabsize", &size);
    int64_t width = int_or(r, f->name, size, 8), column = 0;
    for (const char *p = f->self.s->s; p < f->self.s->s + f->self.s->n;) {
        uint32_t cp = utf8_next(&p);
        if (cp == '\t') {
            int64_t n = width > 0 ? width - column % width : 0;
            text_add_str(&out, str_repeat(r, str_of(r, " "), n));
            column += n;
        } else {
            text_add_char(&out, cp);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
    }
    return like(r, f, text_value(&out));
}

static bool is_alnum(uint32_t cp)
{
    return char_is_alpha(cp) || char_is_numeric(cp);
}
static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* Returns whether there are characters and `is` holds for all of them. isascii() holds for an empty string too. */
static value all_are(jinja_run *r, function *f, const jinja_arguments *a, bool (*is)(uint32_t))
{
    jinja_args_none(r, f->name, a);
    jinja_run_spend(r, f->self.s->n / 16);
    for (const char *p = f->self.s->s; p < f->self.s->s + f->self.s->n;)
        if (!is(utf8_next(&p)))
            return value_bool(false);
    return value_bool(f->self.s->n > 0 || is == is_ascii);
}

static value str_m_isalpha(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, char_is_alpha);
}
static value str_m_isdigit(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, char_is_digit);
}
static value str_m_isdecimal(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, char_is_decimal);
}
static value str_m_isnumeric(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, char_is_numeric);
}
static value str_m_isalnum(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, is_alnum);
}
static value str_m_isspace(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, unicode_is_blank);
}
static value str_m_isascii(jinja_run *r, function *f, const jinja_arguments *a)
{
    return all_are(r, f, a, is_ascii);
}

static value str_m_isupper(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    return value_bool(str_has_case(r, f->self.s, true));
}

static value str_m_islower(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    return value_bool(str_has_case(r, f->self.s, false));
}

static value str_m_istitle(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    return value_bool(str_is_title(r, f->self.s));
}

/* Dicts, lists, numbers, cyclers. */

static value dict_m_get(jinja_run *r, function *f, const jinja_arguments *a)
{
    value v[2], found;
    jinja_args_bind_positional(r, f->name, a, 1, "key default", v);
    if (dict_get(r, f->self.dict, v[0], &found))
        return found;
    return v[1].kind == VALUE_MISSING ? value_none() : v[1];
}

static value view(jinja_run *r, function *f, const jinja_arguments *a, value_kind kind)
{
    jinja_args_none(r, f->name, a);
    return dict_view(r, f->self.dict, kind);
}

static value dict_m_keys(jinja_run *r, function *f, const jinja_arguments *a)
{
    return view(r, f, a, VALUE_KEYS);
}
static value dict_m_values(jinja_run *r, function *f, const jinja_arguments *a)
{
    return view(r, f, a, VALUE_VALUES);
}
static value dict_m_items(jinja_run *r, function *f, const jinja_arguments *a)
{
    return view(r, f, a, VALUE_ITEMS);
}

static value m_copy(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    return f->self; /* nothing can tell it from a copy */
}

static value list_m_index(jinja_run *r, function *f, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind_positional(r, f->name, a, 1, "value start stop", v);
    int64_t n = (int64_t)f->self.list->n, from = int_or(r, f->name, v[1], 0), to = int_or(r, f->name, v[2], n);
    from = from < 0 ? from + n : from;
    to = to < 0 ? to + n : to;
    for (int64_t i = from < 0 ? 0 : from; i < to && i < n; i++)
        if (value_equal(r, f->self.list->at[i], v[0]))
            return value_int(i);
    jinja_run_fail(r, "the value is not in the %s", value_type(f->self));
}

static value list_m_count(jinja_run *r, function *f, const jinja_arguments *a)
{
    value what;
    int64_t n = 0;
    jinja_args_bind_positional(r, f->name, a, 1, "value", &what);
    for (size_t i = 0; i < f->self.list->n; i++)
        n += value_equal(r, f->self.list->at[i], what);
    return value_int(n);
}

static value float_m_is_integer(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    return value_bool(f->self.f == floor(f->self.f) && !isinf(f->self.f));
}

static value cycler_m_next(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    cycler *c = f->self.cycler;
    value v = c->items.at[c->at];
    c->at = (c->at + 1) % c->items.n;
    return v;
}

static value cycler_m_reset(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, f->name, a);
    f->self.cycler->at = 0;
    return value_none();
}

/* The tables. */

typedef struct {
    const char *name;
    function_body *call;
} method;

static const method str_methods[] = {
    {"strip", str_m_strip},
    {"lstrip", str_m_lstrip},
    {"rstrip", str_m_rstrip},
    {"upper", str_m_upper},
    {"lower", str_m_lower},
    {"title", str_m_title},
    {"capitalize", str_m_capitalize},
    {"swapcase", str_m_swapcase},
    {"casefold", str_m_casefold},
    {"split", str_m_split},
    {"rsplit", str_m_rsplit},
    {"splitlines", str_m_splitlines},
    {"startswith", str_m_startswith},
    {"endswith", str_m_endswith},
    {"find", str_m_find},
    {"rfind", str_m_rfind},
    {"index", str_m_index},
    {"rindex", str_m_rindex},
    {"count", str_m_count},
    {"replace", str_m_replace},
    {"join", str_m_join},
    {"format", str_m_format},
    {"removeprefix", str_m_removeprefix},
    {"removesuffix", str_m_removesuffix},
    {"partition", str_m_partition},
    {"rpartition", str_m_rpartition},
    {"center", str_m_center},
    {"ljust", str_m_ljust},
    {"rjust", str_m_rjust},
    {"zfill", str_m_zfill},
    {"expandtabs", str_m_expandtabs},
    {"isalpha", str_m_isalpha},
    {"isdigit", str_m_isdigit},
    {"isdecimal", str_m_isdecimal},
    {"isnumeric", str_m_isnumeric},
    {"isalnum", str_m_isalnum},
    {"isspace", str_m_isspace},
    {"isascii", str_m_isascii},
    {"isupper", str_m_isupper},
    {"islower", str_m_islower},
    {"istitle", str_m_istitle},
    {NULL},
};
static const method dict_methods[] = {
    {"get", dict_m_get},
    {"keys", dict_m_keys},
    {"values", dict_m_values},
    {"items", dict_m_items},
    {"copy", m_copy},
    {"clear"},
    {"pop"},
    {"popitem"},
    {"setdefault"},
    {"update"},
    {NULL},
};
static const method list_methods[] = {
    {"index", list_m_index},
    {"count", list_m_count},
    {"copy", m_copy},
    {"append"},
    {"clear"},
    {"pop"},
    {"reverse"},
    {"insert"},
    {"sort"},
    {"extend"},
    {"remove"},
    {NULL},
};
static const method tuple_methods[] = {{"index", list_m_index}, {"count", list_m_count}, {NULL}};
static const method float_methods[] = {{"is_integer", float_m_is_integer}, {NULL}};
static const method cycler_methods[] = {{"next", cycler_m_next}, {"reset", cycler_m_reset}, {NULL}};

static const method *methods_of(value v)
{
    switch (v.kind) {
    case VALUE_STRING: return str_methods;
    case VALUE_DICT: return dict_methods;
    case VALUE_LIST: return list_methods;
    case VALUE_TUPLE: return tuple_methods;
    case VALUE_FLOAT: return float_methods;
    case VALUE_CYCLER: return cycler_methods;
    default: return NULL;
    }
}

value method_find(jinja_run *r, value of, const str *name)
{
    if (of.kind == VALUE_CYCLER && str_is(name, "current"))
        return of.cycler->items.at[of.cycler->at];
    for (const method *m = methods_of(of); m && m->name; m++) {
        if (!str_is(name, m->name))
            continue;
        if (m->call)
            return value_function(r, m->name, m->call, of);
        text hint = {.r = r};
        text_printf(&hint, "'%s' would change '%s', and a template may not", m->name, value_type(of));
        text_add(&hint, "", 1);
        return value_undefined(r, hint.data);
    }
    return value_missing();
}
