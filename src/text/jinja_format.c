/* jinja_format.c - see jinja_format.h */
#include "text/jinja_format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_ops.h"
#include "text/jinja_str.h"
#include "text/utf8.h"

enum { MAX_WIDTH = 100000 };

/* How one value is to be written; both format languages are parsed into this. */
typedef struct {
    uint32_t fill, align;     /* align: '<' '>' '^' '='; 0: the default of the value's kind */
    char sign;                /* '+', ' ', '-'; 0: none, which is '-' */
    bool no_minus_zero;       /* z: what is rounded to -0 is written as 0 */
    bool alternate;           /* # */
    int64_t width, precision; /* precision -1: none */
    char group;               /* ',' or '_'; 0: none */
    char type;                /* 0: none */
} spec;

static void add_fill(text *out, uint32_t fill, int64_t n)
{
    for (; n > 0; n--)
        text_add_char(out, fill);
}

/* Writes prefix (a sign, 0x) and body, filled to the width; with '=' the fill goes between the two.
 * default_align: the alignment if the spec has none. */
static void add_padded(text *out, const spec *s, const char *prefix, const str *body, uint32_t default_align)
{
    int64_t more = s->width - (int64_t)strlen(prefix) - (int64_t)str_chars(body);
    uint32_t align = s->align ? s->align : default_align;
    int64_t left = more <= 0 || align == '<' ? 0 : align == '^' ? more / 2 : more;
    add_fill(out, s->fill, align == '=' ? 0 : left);
    text_add_cstr(out, prefix);
    add_fill(out, s->fill, align == '=' ? left : 0);
    text_add_str(out, body);
    add_fill(out, s->fill, more > 0 ? more - left : 0);
}

static void check_bounds(jinja_run *r, const spec *s)
{
    if (s->width > MAX_WIDTH || s->precision > MAX_WIDTH)
        jinja_run_fail(r, "a format's width and precision are at most %d", MAX_WIDTH);
}

static void add_text(text *out, const spec *s, const str *what, uint32_t default_align)
{
    if (s->precision >= 0)
        what = str_slice(out->r, what, 0, (size_t)s->precision);
    add_padded(out, s, "", what, default_align);
}

static const char *sign_of(const spec *s, bool negative)
{
    return negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
}

static void digits_in_base(uint64_t x, unsigned base, bool upper, char out[72])
{
    char reversed[72];
    int n = 0;
    do
        reversed[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[x % base];
    while ((x /= base) > 0);
    for (int i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    out[n] = '\0';
}

/* Returns the digits with the spec's separator between groups of `size` before the point. Where the number is filled
 * with zeros to the width, which counts n_before characters before the digits, the zeros are grouped too. */
static const str *grouped(jinja_run *r, const spec *s, const char *digits, int size, size_t n_before)
{
    if (!s->group)
        return str_copy(r, digits, strlen(digits));
    text t = {.r = r};
    int64_t n = (int64_t)strspn(digits, "0123456789abcdefABCDEF"), zeros = 0;
    if (strchr(digits, '.') || strchr(digits, 'e'))
        n = (int64_t)strspn(digits, "0123456789");
    int64_t others = (int64_t)(n_before + strlen(digits)) - n;
    if (s->fill == '0' && s->align == '=' && n > 0)
        while (others + n + zeros + (n + zeros - 1) / size < s->width)
            zeros++;
    for (int64_t i = -zeros; i < n; i++) {
        text_add(&t, i < 0 ? "0" : &digits[i], 1);
        if (i + 1 < n && (n - 1 - i) % size == 0)
            text_add(&t, &s->group, 1);
    }
    text_add_cstr(&t, digits + n);
    return text_value(&t).s;
}

static void add_int(text *out, const spec *s, int64_t i)
{
    unsigned base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    char digits[72], prefix[4];
    digits_in_base(magnitude, base, s->type == 'X', digits);
    const char *mark = !s->alternate || base == 10 ? ""
                       : base == 8                 ? "0o"
                       : base == 2                 ? "0b"
                       : s->type == 'X'            ? "0X"
                                                   : "0x";
    snprintf(prefix, sizeof prefix, "%s%s", sign_of(s, i < 0), mark);
    const str *body = grouped(out->r, s, digits, base == 10 ? 3 : 4, strlen(prefix));
    text zeros = {.r = out->r};
    for (int64_t n = s->precision - (int64_t)strlen(digits); n > 0; n--) /* "%.5d" */
        text_add_cstr(&zeros, "0");
    text_add_str(&zeros, body);
    add_padded(out, s, prefix, text_value(&zeros).s, '>');
}

/* Drops the zeros at the end of the mantissa of "1.50e+10", and a point that is then its end. */
static void drop_zeros(char *s)
{
    char *e = strchr(s, 'e'), *end = e;
    while (end > s && end[-1] == '0')
        end--;
    end -= end > s && end[-1] == '.';
    memmove(end, e, strlen(e) + 1);
}

/* Writes a number without a type: as str() does, or with a precision as %g, but never as an integer: with a point or
 * with an exponent. */
static void write_general(double x, int precision, char *out, size_t size)
{
    if (precision < 0) {
        float_repr(x, out);
        return;
    }
    precision = precision ? precision : 1;
    snprintf(out, size, "%.*g", precision, x);
    if (strpbrk(out, ".e"))
        return;
    if ((int)strlen(out) < precision) {
        strcat(out, ".0");
        return;
    }
    snprintf(out, size, "%.*e", precision - 1, x);
    if (precision > 1)
        drop_zeros(out);
}

/* Returns whether digits are those of 0, as "0.00" and "0e+00" are. */
static bool is_zero(const char *digits)
{
    size_t n = strspn(digits, "0.");
    return n > 0 && (!digits[n] || strchr("eE%", digits[n]));
}

static void add_float(text *out, const spec *s, double x)
{
    int precision = (int)s->precision; /* at most MAX_WIDTH */
    size_t size = 512 + (size_t)(precision > 0 ? precision : 0);
    char *digits = jinja_run_alloc(out->r, size), c_format[8];
    bool percent = s->type == '%';
    double magnitude = fabs(percent ? x * 100 : x);
    if (isnan(x) || isinf(x)) {
        bool upper = s->type && strchr("EFG", s->type);
        snprintf(digits, size, "%s", isnan(x) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf");
    } else if (!s->type) {
        write_general(magnitude, precision, digits, size);
    } else {
        char type = percent ? 'f' : s->type == 'n' ? 'g' : s->type;
        snprintf(c_format, sizeof c_format, "%%%s.*%c", s->alternate ? "#" : "", type);
        snprintf(digits, size - 1, c_format, precision < 0 ? 6 : precision, magnitude);
    }
    if (percent)
        strcat(digits, "%");
    const char *sign = sign_of(s, signbit(x) && !isnan(x) && !(s->no_minus_zero && is_zero(digits)));
    add_padded(out, s, sign, grouped(out->r, s, digits, 3, strlen(sign)), '>');
}

/* Writes str(v), repr(v) or ascii(v) for s, r or a. */
static void write_as(text *out, char how, value v)
{
    text t = {.r = out->r};
    how == 's' ? value_write(out, v) : value_write_repr(how == 'r' ? out : &t, v);
    const str *repr = text_value(&t).s; /* empty but for ascii() */
    for (const char *p = repr->s; p < repr->s + repr->n;) {
        uint32_t cp = utf8_next(&p);
        if (cp < 0x80)
            text_add_char(out, cp);
        else
            text_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
}

/* Writes the character that has this code. */
static void add_code(text *out, const spec *s, int64_t code)
{
    text one = {.r = out->r};
    if (code < 0 || code >= 0x110000 || code >> 11 == 0x1b)
        jinja_run_fail(out->r, "%lld is the code of no character", (long long)code);
    text_add_char(&one, (uint32_t)code);
    add_padded(out, s, "", text_value(&one).s, '>');
}

/* "%s" % x. */

typedef struct {
    jinja_run *r;
    const str *format;
    size_t at;
    value with;
    int n_used; /* arguments of a tuple; of anything else, 1 when it was used */
    bool by_name;
} percent;

static char peek(const percent *p)
{
    if (p->at >= p->format->n)
        jinja_run_fail(p->r, "the format ends too early");
    return p->format->s[p->at];
}

static value next_argument(percent *p)
{
    bool is_tuple = p->with.kind == VALUE_TUPLE;
    size_t n = is_tuple ? p->with.list->n : 1;
    if ((size_t)p->n_used >= n)
        jinja_run_fail(p->r, "the format wants more arguments");
    p->n_used++;
    return is_tuple ? p->with.list->at[p->n_used - 1] : p->with;
}

/* Reads the (name) of %(name)s and returns the argument it names. */
static value read_name(percent *p)
{
    size_t start = ++p->at;
    for (int open = 1; open > 0; p->at++)
        open += peek(p) == '(' ? 1 : peek(p) == ')' ? -1 : 0;
    if (p->with.kind != VALUE_DICT)
        jinja_run_fail(p->r, "the format names arguments, which a dict must hold");
    value found;
    p->by_name = true;
    if (!dict_get(p->r, p->with.dict, value_text(p->r, p->format->s + start, p->at - 1 - start), &found))
        jinja_run_fail(p->r, "the format names a key that the mapping does not have");
    return found;
}

/* Returns a width or precision; one beyond MAX_WIDTH on either side as one beyond it. */
static int64_t read_count(percent *p)
{
    int64_t n = 0;
    if (peek(p) == '*') {
        p->at++;
        value v = next_argument(p);
        if (!value_is_int(v))
            jinja_run_fail(p->r, "* takes its width from an integer");
        int64_t i = value_to_int(v);
        return i > MAX_WIDTH ? MAX_WIDTH + 1 : i < -MAX_WIDTH ? -MAX_WIDTH - 1 : i;
    }
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        n = n > MAX_WIDTH ? n : n * 10 + (peek(p) - '0');
    return n;
}

static spec read_percent_spec(percent *p)
{
    spec s = {.fill = ' ', .precision = -1, .align = '>'};
    for (; strchr("-+ #0", peek(p)) && peek(p); p->at++) {
        char c = peek(p);
        if (c == '-')
            s.align = '<';
        else if (c == '+' || (c == ' ' && !s.sign))
            s.sign = c;
        else if (c == '#')
            s.alternate = true;
        else if (c == '0')
            s.fill = '0';
    }
    s.width = read_count(p);
    if (s.width < 0) {
        s.align = '<';
        s.width = -s.width;
    }
    if (peek(p) == '.') {
        p->at++;
        s.precision = read_count(p);
        if (s.precision < 0) /* from a *; Python too refuses one that is far below 0 */
            s.precision = s.precision < -MAX_WIDTH ? MAX_WIDTH + 1 : 0;
    }
    while (strchr("hlL", peek(p)) && peek(p))
        p->at++;
    s.type = peek(p);
    p->at++;
    check_bounds(p->r, &s);
    return s;
}

static void add_percent_number(percent *p, text *out, spec s, value v)
{
    bool wants_float = strchr("eEfFgG", s.type);
    if (v.kind == VALUE_UNDEFINED)
        value_fail_undefined(p->r, v);
    if (!value_is_number(v) || (v.kind == VALUE_FLOAT && strchr("xXo", s.type)))
        jinja_run_fail(p->r, "%%%c writes numbers, not '%s'", s.type, value_type(v));
    if (s.fill == '0')
        s.align = s.align == '<' ? '<' : '=';
    if (s.align == '<')
        s.fill = ' ';
    if (wants_float)
        add_float(out, &s, value_number(v));
    else if (v.kind == VALUE_FLOAT && !value_float_fits(v.f))
        jinja_run_fail(p->r, "the number does not fit into 64 bits");
    else
        add_int(out, &s, v.kind == VALUE_FLOAT ? (int64_t)v.f : value_to_int(v));
}

static void add_percent_char(percent *p, text *out, const spec *s, value v)
{
    if (value_is_int(v))
        add_code(out, s, value_to_int(v));
    else if (v.kind == VALUE_STRING && str_chars(v.s) == 1)
        add_padded(out, s, "", v.s, '>');
    else
        jinja_run_fail(p->r, "%%c writes one character");
}

static void add_conversion(percent *p, text *out)
{
    if (peek(p) == '%') {
        text_add_cstr(out, "%");
        p->at++;
        return;
    }
    bool named = peek(p) == '(';
    value v = named ? read_name(p) : value_missing();
    spec s = read_percent_spec(p);
    if (!strchr("sradiuxXofFeEgGc", s.type) || !s.type)
        jinja_run_fail(p->r, "the format has an unknown '%c'", s.type >= ' ' && s.type < 0x7f ? s.type : '?');
    if (!named)
        v = next_argument(p);
    if (strchr("csra", s.type)) /* only numbers are filled with zeros */
        s.fill = ' ';
    if (s.type == 'c') {
        add_percent_char(p, out, &s, v);
    } else if (strchr("sra", s.type)) {
        text t = {.r = p->r};
        write_as(&t, s.type, v);
        const str *written = text_value(&t).s;
        bool escape = p->format->markup && !(v.kind == VALUE_STRING && v.s->markup);
        add_text(out, &s, escape ? str_plain(p->r, str_escape(p->r, written)) : written, '>');
    } else {
        add_percent_number(p, out, s, v);
    }
}

value format_percent(jinja_run *r, const str *format, value with)
{
    percent p = {.r = r, .format = format, .with = with};
    text out = {.r = r};
    while (p.at < format->n) {
        const char *mark = memchr(format->s + p.at, '%', format->n - p.at);
        size_t plain = mark ? (size_t)(mark - format->s) : format->n;
        text_add_part(&out, format, p.at, plain - p.at);
        p.at = plain;
        if (!mark)
            break;
        p.at++;
        add_conversion(&p, &out);
    }
    bool may_be_unused =
        with.kind == VALUE_DICT || with.kind == VALUE_LIST || with.kind == VALUE_RANGE || with.kind == VALUE_UNDEFINED;
    bool all_used = with.kind == VALUE_TUPLE ? (size_t)p.n_used == with.list->n : p.n_used || may_be_unused;
    if (!all_used && !p.by_name)
        jinja_run_fail(r, "the format leaves arguments over");
    value v = text_value(&out);
    return format->markup ? value_str(str_mark(r, v.s)) : v;
}

/* "{}".format(x). */

typedef struct {
    jinja_run *r;
    const jinja_arguments *a;
    int n_auto; /* {} seen; -1: fields are numbered */
    bool markup;
} braces;

static int64_t number_of(const char *s, size_t n)
{
    int64_t x = n ? 0 : -1;
    for (size_t i = 0; i < n && x >= 0; i++)
        x = s[i] >= '0' && s[i] <= '9' && x < MAX_WIDTH ? x * 10 + (s[i] - '0') : -1;
    return x;
}

/* Returns the argument that the first part of a field names. */
static value field_argument(braces *b, const char *s, size_t n)
{
    int64_t i = number_of(s, n);
    if (n == 0) {
        if (b->n_auto < 0)
            jinja_run_fail(b->r, "the format has {} behind {0}");
        i = b->n_auto++;
    } else if (i >= 0) {
        if (b->n_auto > 0)
            jinja_run_fail(b->r, "the format has {0} behind {}");
        b->n_auto = -1;
    }
    if (i >= 0 && i < b->a->n)
        return b->a->at[i];
    if (i >= 0)
        jinja_run_fail(b->r, "the format wants argument %lld, which is not given", (long long)i);
    for (int k = 0; k < b->a->n_keywords; k++)
        if (b->a->keyword[k].name->n == n && memcmp(b->a->keyword[k].name->s, s, n) == 0)
            return b->a->keyword[k].value;
    jinja_run_fail(b->r, "the format names an argument that is not given: '%.*s'", (int)n, s);
}

/* Returns the value that a field names: name.attribute[element]... */
static value field_value(braces *b, const char *s, size_t n)
{
    size_t at = 0;
    while (at < n && s[at] != '.' && s[at] != '[')
        at++;
    value v = field_argument(b, s, at);
    while (at < n) {
        bool dot = s[at++] == '.';
        size_t end = at;
        while (end < n && (dot ? s[end] != '.' && s[end] != '[' : s[end] != ']'))
            end++;
        if (end == at || (!dot && end == n))
            jinja_run_fail(b->r, "a field of the format is not well formed");
        const str *name = str_new(b->r, s + at, end - at);
        int64_t i = number_of(s + at, end - at);
        v = dot ? op_attribute(b->r, v, name) : op_item(b->r, v, i >= 0 ? value_int(i) : value_str(name));
        at = dot ? end : end + 1;
    }
    return v;
}

/* is_text: of a string, which a 0 before the width fills as it is aligned; of a number it fills behind the sign, unless
 * an alignment is given. */
static spec read_brace_spec(jinja_run *r, const str *source, bool is_text)
{
    spec s = {.fill = ' ', .precision = -1};
    bool has_fill = false;
    const char *p = source->s, *end = source->s + source->n;
    if (p < end) {
        const char *next = p;
        uint32_t first = utf8_next(&next);
        if (next < end && strchr("<>^=", *next) && *next) {
            s.fill = first;
            has_fill = true;
            s.align = (unsigned char)*next;
            p = next + 1;
        } else if (strchr("<>^=", *p) && *p) {
            s.align = (unsigned char)*p++;
        }
    }
    if (p < end && (*p == '+' || *p == ' ' || *p == '-'))
        s.sign = *p++;
    if (p < end && *p == 'z') {
        s.no_minus_zero = true;
        p++;
    }
    if (p < end && *p == '#') {
        s.alternate = true;
        p++;
    }
    if (p < end && *p == '0' && !has_fill) {
        s.fill = '0';
        s.align = s.align || is_text ? s.align : '=';
        p++;
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        s.width = s.width > MAX_WIDTH ? s.width : s.width * 10 + (*p - '0');
    if (p < end && (*p == ',' || *p == '_'))
        s.group = *p++;
    if (p < end && *p == '.') {
        s.precision = 0;
        if (++p == end || *p < '0' || *p > '9')
            jinja_run_fail(r, "the format has a point without a precision");
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            s.precision = s.precision > MAX_WIDTH ? s.precision : s.precision * 10 + (*p - '0');
    }
    if (p < end)
        s.type = *p++;
    if (p < end)
        jinja_run_fail(r, "the format has an unknown way to write a value");
    check_bounds(r, &s);
    return s;
}

static bool is_one_of(char type, const char *types)
{
    return type && strchr(types, type);
}

static bool can_write_text(const spec *s)
{
    return (!s->type || s->type == 's') && !s->sign && !s->no_minus_zero && !s->alternate && !s->group &&
           s->align != '=';
}

static bool can_write_float(const spec *s)
{
    return (!s->type || is_one_of(s->type, "eEfFgG%n")) && !(s->type == 'n' && s->group);
}

static bool can_write_int(const spec *s)
{
    bool groups = !s->type || s->type == 'd' || (s->group == '_' && is_one_of(s->type, "boxX"));
    return (!s->type || is_one_of(s->type, "bcdnoxX")) && s->precision < 0 && !s->no_minus_zero &&
           (groups || !s->group) && (s->type != 'c' || (!s->sign && !s->alternate));
}

static void add_field(braces *b, text *out, value v, const str *how)
{
    jinja_run *r = b->r;
    if (how->n == 0) {
        const str *s = value_to_str(r, v);
        text_add_str(out, b->markup ? str_escape(r, s) : s);
        return;
    }
    spec s = read_brace_spec(r, how, v.kind == VALUE_STRING);
    if (v.kind == VALUE_STRING) {
        if (!can_write_text(&s))
            jinja_run_fail(r, "this way to write a value is none for a str");
        add_text(out, &s, b->markup ? str_escape(r, v.s) : v.s, '<');
    } else if (v.kind == VALUE_FLOAT || (value_is_int(v) && is_one_of(s.type, "eEfFgG%"))) {
        if (!can_write_float(&s))
            jinja_run_fail(r, "'%c' is no way to write a float", s.type);
        add_float(out, &s, value_number(v));
    } else if (value_is_int(v)) {
        if (!can_write_int(&s))
            jinja_run_fail(r, "this way to write a value is none for an int");
        (s.type == 'c' ? add_code : add_int)(out, &s, value_to_int(v));
    } else {
        jinja_run_fail(r, "'%s' can be written in one way only", value_type(v));
    }
}

static void write_braces(braces *b, text *out, const str *format, int depth);

/* Writes one field. s: what stands between its braces. */
static void write_field(braces *b, text *out, const char *s, size_t n, int depth)
{
    size_t name = 0;
    for (int open = 0; name < n && (open || (s[name] != '!' && s[name] != ':')); name++)
        open += s[name] == '[' ? 1 : s[name] == ']' ? -1 : 0;
    value v = field_value(b, s, name);
    size_t at = name;
    if (at < n && s[at] == '!') {
        char how = at + 1 < n ? s[at + 1] : 0;
        if (how != 'r' && how != 's' && how != 'a')
            jinja_run_fail(b->r, "behind ! stands r, s or a");
        text t = {.r = b->r};
        write_as(&t, how, v);
        v = text_value(&t);
        at += 2;
        if (at < n && s[at] != ':')
            jinja_run_fail(b->r, "behind !r stands a colon, or nothing");
    }
    text how = {.r = b->r};
    if (at < n)
        write_braces(b, &how, str_new(b->r, s + at + 1, n - at - 1), depth + 1);
    add_field(b, out, v, text_value(&how).s);
}

static void write_braces(braces *b, text *out, const str *format, int depth)
{
    const char *s = format->s;
    if (depth > 1)
        jinja_run_fail(b->r, "fields of the format are nested too deeply");
    for (size_t at = 0; at < format->n;) {
        char c = s[at];
        if (c != '{' && c != '}') {
            text_add_part(out, format, at++, 1);
            continue;
        }
        if (depth == 0 && at + 1 < format->n && s[at + 1] == c) {
            text_add(out, &c, 1);
            at += 2;
            continue;
        }
        size_t end = at + 1;
        for (int open = c == '{'; open > 0 && end < format->n; end++)
            open += s[end] == '{' ? 1 : s[end] == '}' ? -1 : 0;
        if (c == '}' || s[end - 1] != '}' || end < at + 2)
            jinja_run_fail(b->r, "a '%c' of the format stands alone", c);
        write_field(b, out, s + at + 1, end - at - 2, depth);
        at = end;
    }
}

value format_braces(jinja_run *r, const str *format, const jinja_arguments *a)
{
    braces b = {.r = r, .a = a, .markup = format->markup};
    text out = {.r = r};
    write_braces(&b, &out, format, 0);
    value v = text_value(&out);
    return format->markup ? value_str(str_mark(r, v.s)) : v;
}
