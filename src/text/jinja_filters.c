/* jinja_filters.c - see jinja_filters.h
 *
 * This file has the filters of single values; those of sequences are in jinja_sequences.c, tojson in jinja_json.c. */
#include "text/jinja_filters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_chars.h"
#include "text/jinja_eval.h"
#include "text/jinja_format.h"
#include "text/jinja_json.h"
#include "text/jinja_ops.h"
#include "text/jinja_sequences.h"
#include "text/jinja_str.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Text. */

static value filter_string(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "string", a);
    return value_str(value_to_str(r, in));
}

static value filter_upper(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "upper", a);
    return value_str(str_in_case(r, value_to_str(r, in), CASE_UPPER));
}

static value filter_lower(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "lower", a);
    return value_str(str_in_case(r, value_to_str(r, in), CASE_LOWER));
}

static value filter_capitalize(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "capitalize", a);
    return value_str(str_in_case(r, value_to_str(r, in), CASE_CAPITALIZED));
}

static uint32_t char_at(const char *p)
{
    return utf8_next(&p);
}

static bool ends_word(uint32_t cp)
{
    return unicode_is_blank(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

/* Differs from Python's title(): a word begins behind white space, a hyphen or an opening bracket. */
static value filter_title(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "title", a);
    const str *s = value_to_str(r, in);
    text out = {.r = r};
    jinja_run_spend(r, s->n);
    for (const char *p = s->s, *end = s->s + s->n; p < end;) {
        const char *first = p, *rest;
        bool goes_on = !ends_word(utf8_next(&p));
        for (rest = p; goes_on && p < end && !ends_word(char_at(p));)
            utf8_next(&p);
        text_add_str(&out, str_in_case(r, str_new(r, first, (size_t)(rest - first)), CASE_UPPER));
        text_add_str(&out, str_in_case(r, str_new(r, rest, (size_t)(p - rest)), CASE_LOWER));
    }
    return text_value(&out);
}

static value filter_trim(jinja_run *r, value in, const jinja_arguments *a)
{
    value chars;
    jinja_args_bind(r, "trim", a, 0, "chars", &chars);
    bool given = chars.kind != VALUE_MISSING && chars.kind != VALUE_NONE;
    if (given && chars.kind != VALUE_STRING)
        jinja_run_fail(r, "what to trim must be a string");
    return value_str(str_strip(r, value_to_str(r, in), given ? chars.s : NULL, SIDE_BOTH));
}

static value filter_replace(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind(r, "replace", a, 2, "old new count", v);
    bool has_count = v[2].kind != VALUE_MISSING && v[2].kind != VALUE_NONE;
    if (has_count && !value_is_int(v[2]))
        jinja_run_fail(r, "expected an integer, not '%s'", value_type(v[2]));
    return value_str(str_replace(r, str_plain(r, value_to_str(r, in)), value_to_str(r, v[0]), value_to_str(r, v[1]),
                                 has_count ? value_to_int(v[2]) : -1));
}

static const str *indentation(jinja_run *r, value width)
{
    if (width.kind == VALUE_STRING)
        return width.s;
    if (width.kind != VALUE_MISSING && !value_is_int(width))
        jinja_run_fail(r, "the width must be a number or a string, not %s", value_type(width));
    return str_repeat(r, str_of(r, " "), width.kind == VALUE_MISSING ? 4 : value_to_int(width));
}

static value filter_indent(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind(r, "indent", a, 0, "width first blank", v);
    const str *by = indentation(r, v[0]);
    if (in.kind != VALUE_STRING)
        jinja_run_fail(r, "can only indent str, not %s", value_type(in));
    const jinja_list *lines = str_lines(r, str_concat(r, str_plain(r, in.s), str_of(r, "\n")), false).list;
    text out = {.r = r};
    for (size_t i = 0; i < lines->n; i++) {
        text_add_cstr(&out, i ? "\n" : "");
        bool indents = i == 0 ? value_is_true(r, v[1]) : lines->at[i].s->n > 0 || value_is_true(r, v[2]);
        if (indents)
            text_add_str(&out, by);
        text_add_str(&out, lines->at[i].s);
    }
    return text_value(&out);
}

static int64_t int_or(jinja_run *r, const char *what, value v, int64_t default_value)
{
    if (v.kind == VALUE_MISSING)
        return default_value;
    if (!value_is_int(v))
        jinja_run_fail(r, "%s must be an integer, not %s", what, value_type(v));
    return value_to_int(v);
}

static value filter_truncate(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[4];
    jinja_args_bind(r, "truncate", a, 0, "length killwords end leeway", v);
    int64_t length = int_or(r, "length", v[0], 255),
            leeway = int_or(r, "leeway", v[3].kind == VALUE_NONE ? value_missing() : v[3], 5);
    const str *end = v[2].kind == VALUE_MISSING ? str_of(r, "...") : value_to_str(r, v[2]);
    if (length < (int64_t)str_chars(end) || leeway < 0)
        jinja_run_fail(r, "the length must be at least that of the end, the leeway at least 0");
    if (value_length(r, in) - leeway <= length) /* length + leeway may overflow */
        return in;
    if (in.kind != VALUE_STRING)
        jinja_run_fail(r, "can only truncate str, not %s", value_type(in));
    const str *kept = str_slice(r, in.s, 0, (size_t)(length - (int64_t)str_chars(end)));
    size_t blank = str_find_last(r, kept, str_of(r, " "), 0, kept->n);
    if (!value_is_true(r, v[1]) && blank != STR_NOT_FOUND)
        kept = str_like(r, kept, kept->s, blank);
    return value_str(str_concat(r, kept, end));
}

static value filter_center(jinja_run *r, value in, const jinja_arguments *a)
{
    value width;
    jinja_args_bind(r, "center", a, 0, "width", &width);
    const str *s = value_to_str(r, in), *blank = str_of(r, " ");
    int64_t wanted = int_or(r, "width", width, 80), n = (int64_t)str_chars(s);
    if (wanted <= n)
        return value_str(s);
    int64_t more = wanted - n;
    int64_t left = more / 2 + (more & wanted & 1);
    const str *x = str_concat(r, str_repeat(r, blank, left), s);
    return value_str(str_concat(r, x, str_repeat(r, blank, more - left)));
}

static bool is_word(uint32_t cp)
{
    return cp == '_' || char_is_alpha(cp) || char_is_numeric(cp);
}

static value filter_wordcount(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "wordcount", a);
    const str *s = value_to_str(r, in);
    int64_t n = 0;
    bool inside = false;
    jinja_run_spend(r, s->n / 16);
    for (const char *p = s->s; p < s->s + s->n;) {
        bool word = is_word(utf8_next(&p));
        n += word && !inside;
        inside = word;
    }
    return value_int(n);
}

static value filter_format(jinja_run *r, value in, const jinja_arguments *a)
{
    if (a->n && a->n_keywords)
        jinja_run_fail(r, "format takes either positions or names");
    value with = value_list(r, VALUE_TUPLE, a->at, (size_t)a->n);
    if (a->n_keywords) {
        dict *d = dict_new(r, (size_t)a->n_keywords);
        for (int i = 0; i < a->n_keywords; i++)
            dict_put(r, d, value_str(a->keyword[i].name), a->keyword[i].value);
        with = value_dict(d);
    }
    return format_percent(r, value_to_str(r, in), with);
}

static value filter_safe(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "safe", a);
    return value_str(str_mark(r, value_to_str(r, in)));
}

static value filter_escape(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "escape", a);
    return value_str(str_escape(r, value_to_str(r, in)));
}

static value filter_forceescape(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "forceescape", a);
    return value_str(str_escape(r, str_plain(r, value_to_str(r, in))));
}

static void add_quoted(text *out, const str *s, bool in_query)
{
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->s[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr("_.-~", c));
        if (plain || (c == '/' && !in_query))
            text_add(out, &s->s[i], 1);
        else if (c == ' ' && in_query)
            text_add_cstr(out, "+");
        else
            text_printf(out, "%%%02X", c);
    }
}

static value filter_urlencode(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "urlencode", a);
    text out = {.r = r};
    if (in.kind == VALUE_STRING || !value_is_iterable(in)) {
        add_quoted(&out, value_to_str(r, in), false);
        return text_value(&out);
    }
    const jinja_list *pairs = in.kind == VALUE_DICT ? dict_view(r, in.dict, VALUE_ITEMS).list : value_to_list(r, in);
    for (size_t i = 0; i < pairs->n; i++) {
        const jinja_list *pair = value_to_list(r, pairs->at[i]);
        if (pair->n != 2)
            jinja_run_fail(r, "urlencode needs pairs");
        text_add_cstr(&out, i ? "&" : "");
        add_quoted(&out, value_to_str(r, pair->at[0]), true);
        text_add_cstr(&out, "=");
        add_quoted(&out, value_to_str(r, pair->at[1]), true);
    }
    return text_value(&out);
}

/* Numbers. */

/* Returns the text, NUL-terminated, with white space around it and single underscores in it removed, as Python takes
 * numbers; NULL: it is none. */
static const char *number_text(jinja_run *r, const str *s)
{
    const str *bare = str_strip(r, s, NULL, SIDE_BOTH);
    char *out = jinja_run_alloc(r, bare->n + 1);
    size_t n = 0;
    if (bare->n == 0 || bare->n > 4096)
        return NULL;
    for (size_t i = 0; i < bare->n; i++) {
        bool between = i > 0 && i + 1 < bare->n && bare->s[i - 1] != '_' && bare->s[i + 1] != '_';
        if (bare->s[i] == '_' && between)
            continue;
        if (bare->s[i] == '_' || !bare->s[i])
            return NULL;
        out[n++] = bare->s[i];
    }
    out[n] = '\0';
    return out;
}

static bool parse_float(jinja_run *r, const str *s, double *out)
{
    const char *bare = number_text(r, s);
    char *end;
    if (!bare || strpbrk(bare, "xXpP(") || unicode_is_blank((unsigned char)bare[0]))
        return false;
    *out = strtod(bare, &end);
    return *end == '\0';
}

_Noreturn static void fail_overflow(jinja_run *r)
{
    jinja_run_fail(r, "an integer of more than 64 bits");
}

static bool parse_int(jinja_run *r, const str *s, int64_t base, int64_t *out)
{
    const char *bare = number_text(r, s);
    char *end;
    if (!bare || (base != 0 && (base < 2 || base > 36)))
        return false;
    const char *digits = bare + (bare[0] == '-' || bare[0] == '+');
    char prefix = digits[0] == '0' ? (char)(digits[1] | 32) : 0;
    int of_prefix = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    bool skips = of_prefix && (base == 0 || base == of_prefix);
    const char *start = skips ? digits + 2 : digits;
    if (unicode_is_blank((unsigned char)*start) || *start == '-' || *start == '+')
        return false;
    if (base == 0)
        base = skips ? of_prefix : 10;
    errno = 0;
    uint64_t magnitude = strtoull(start, &end, (int)base);
    bool negative = bare[0] == '-';
    if (end == start || *end)
        return false;
    if (errno || magnitude > (uint64_t)INT64_MAX + negative)
        fail_overflow(r);
    *out = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

/* Truncates toward zero, like int(). -1 for NaN and infinity. */
static int truncate_float(jinja_run *r, double x, int64_t *out)
{
    if (isnan(x) || isinf(x))
        return -1;
    if (!value_float_fits(x))
        fail_overflow(r);
    *out = (int64_t)x;
    return 0;
}

static value filter_int(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2];
    int64_t i;
    double x;
    jinja_args_bind(r, "int", a, 0, "default base", v);
    value default_value = v[0].kind == VALUE_MISSING ? value_int(0) : v[0];
    if (in.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, in);
    if (value_is_int(in))
        return value_int(value_to_int(in));
    if (in.kind == VALUE_FLOAT) {
        if (isinf(in.f))
            jinja_run_fail(r, "infinity is no integer");
        return truncate_float(r, in.f, &i) == 0 ? value_int(i) : default_value;
    }
    if (in.kind != VALUE_STRING)
        return default_value;
    if (parse_int(r, in.s, int_or(r, "base", v[1], 10), &i))
        return value_int(i);
    return parse_float(r, in.s, &x) && truncate_float(r, x, &i) == 0 ? value_int(i) : default_value;
}

static value filter_float(jinja_run *r, value in, const jinja_arguments *a)
{
    value default_value;
    double x;
    jinja_args_bind(r, "float", a, 0, "default", &default_value);
    if (in.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, in);
    if (value_is_number(in))
        return value_float(value_number(in));
    if (in.kind == VALUE_STRING && parse_float(r, in.s, &x))
        return value_float(x);
    return default_value.kind == VALUE_MISSING ? value_float(0) : default_value;
}

static value filter_abs(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "abs", a);
    if (!value_is_number(in))
        jinja_run_fail(r, "'%s' has no absolute value", value_type(in));
    if (in.kind == VALUE_FLOAT)
        return value_float(fabs(in.f));
    return value_to_int(in) < 0 ? op_negative(r, in) : value_int(value_to_int(in));
}

/* Returns x rounded to a multiple of 10^zeros, half to even. */
static int64_t round_int(jinja_run *r, int64_t x, int64_t zeros)
{
    int64_t unit = 1, rounded;
    if (zeros > 19 || (zeros == 19 && x >= -5000000000000000000 && x <= 5000000000000000000))
        return 0;
    if (zeros == 19)
        fail_overflow(r);
    for (; zeros > 0; zeros--)
        unit *= 10;
    int64_t rest = x % unit, twice = 2 * (rest < 0 ? -rest : rest);
    bool away = twice > unit || (twice == unit && x / unit % 2 != 0);
    if (__builtin_add_overflow(x - rest, !away ? 0 : x < 0 ? -unit : unit, &rounded))
        fail_overflow(r);
    return rounded;
}

/* Rounds half to even in decimal, on the number's exact decimal digits: a double has at most 767. */
static double round_decimal(jinja_run *r, double x, int64_t digits)
{
    enum { ALL = 770, MOST = 323, LEAST = -308 }; /* beyond MOST and LEAST rounding gives x itself, and 0 */
    char s[ALL + 16];
    if (!isfinite(x) || digits > MOST)
        return x;
    if (digits < LEAST)
        return 0 * x;
    snprintf(s, sizeof s, "%.*e", ALL, fabs(x));
    int kept = atoi(strchr(s, 'e') + 1) + (int)digits; /* behind the first digit */
    bool half = kept == -1 && s[0] == '5' && strspn(s + 2, "0") == ALL;
    if (kept < -1 || (kept == -1 && (s[0] < '5' || half)))
        return 0 * x;
    if (kept < 0)
        snprintf(s, sizeof s, "1e%d", -(int)digits);
    else
        snprintf(s, sizeof s, "%.*e", kept, fabs(x));
    double rounded = copysign(strtod(s, NULL), x);
    if (isinf(rounded))
        jinja_run_fail(r, "the rounded number is too large");
    return rounded;
}

/* Rounds up or down as Jinja does: multiplies by a power of ten, rounds, and divides again. */
static double round_to(jinja_run *r, value in, int64_t digits, bool up)
{
    if (value_is_int(in) && digits >= 0)
        return value_number(in);
    double unit = pow(10, (double)digits), x = value_number(in) * unit;
    if (!isfinite(unit) || unit == 0 || !isfinite(x))
        jinja_run_fail(r, "the number cannot be rounded to %lld digits", (long long)digits);
    return ((up ? ceil(x) : floor(x)) + 0.0) / unit; /* + 0.0: Python's integers have no -0 */
}

static value filter_round(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2];
    jinja_args_bind(r, "round", a, 0, "precision method", v);
    int64_t digits = int_or(r, "precision", v[0], 0);
    const str *method = v[1].kind == VALUE_MISSING ? str_of(r, "common") : value_to_str(r, v[1]);
    if (in.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, in);
    if (!value_is_number(in))
        jinja_run_fail(r, "'%s' cannot be rounded", value_type(in));
    if (str_is(method, "common")) {
        if (value_is_int(in))
            return value_int(digits >= 0 ? value_to_int(in)
                                         : round_int(r, value_to_int(in), digits < -20 ? 20 : -digits));
        return value_float(round_decimal(r, in.f, digits));
    }
    bool up = str_is(method, "ceil");
    if (!up && !str_is(method, "floor"))
        jinja_run_fail(r, "the method must be common, ceil or floor");
    return value_float(round_to(r, in, digits, up));
}

/* The rest. */

static value filter_default(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2];
    jinja_args_bind(r, "default", a, 0, "default_value boolean", v);
    bool missing = in.kind == VALUE_UNDEFINED || (value_is_true(r, v[1]) && !value_is_true(r, in));
    return !missing ? in : v[0].kind == VALUE_MISSING ? value_str(str_of(r, "")) : v[0];
}

static value filter_length(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "length", a);
    return value_int(value_length(r, in));
}

static value filter_attr(jinja_run *r, value in, const jinja_arguments *a)
{
    value name;
    jinja_args_bind(r, "attr", a, 1, "name", &name);
    value found = op_find_attribute(r, in, value_to_str(r, name));
    return found.kind == VALUE_MISSING ? value_undefined_of(r, in, name) : found;
}

static value filter_not_served(jinja_run *r, value in, const jinja_arguments *a)
{
    (void)in;
    (void)a;
    jinja_run_fail(r, "this filter is not served here");
}

filter_body *filter_find(const str *name)
{
    static const struct {
        const char *name;
        filter_body *call;
    } filters[] = {
        {"abs", filter_abs},
        {"attr", filter_attr},
        {"capitalize", filter_capitalize},
        {"center", filter_center},
        {"count", filter_length},
        {"d", filter_default},
        {"default", filter_default},
        {"e", filter_escape},
        {"escape", filter_escape},
        {"float", filter_float},
        {"forceescape", filter_forceescape},
        {"format", filter_format},
        {"indent", filter_indent},
        {"int", filter_int},
        {"length", filter_length},
        {"lower", filter_lower},
        {"replace", filter_replace},
        {"round", filter_round},
        {"safe", filter_safe},
        {"string", filter_string},
        {"title", filter_title},
        {"tojson", filter_tojson},
        {"trim", filter_trim},
        {"truncate", filter_truncate},
        {"upper", filter_upper},
        {"urlencode", filter_urlencode},
        {"wordcount", filter_wordcount},
        {"filesizeformat", filter_not_served},
        {"pprint", filter_not_served},
        {"random", filter_not_served},
        {"striptags", filter_not_served},
        {"urlize", filter_not_served},
        {"wordwrap", filter_not_served},
        {"xmlattr", filter_not_served},
    };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (str_is(name, filters[i].name))
            return filters[i].call;
    return sequence_filter_find(name);
}
