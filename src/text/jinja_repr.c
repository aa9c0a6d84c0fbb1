/* jinja_repr.c - the text of values: Python's str() and repr() */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_eval.h"
#include "text/jinja_own.h"
#include "text/utf8.h"

static void reserve(text *t, size_t more)
{
    if (t->cap - t->n >= more)
        return;
    size_t cap = t->cap ? 2 * t->cap : 64;
    while (cap - t->n < more && cap < t->r->mem.limit)
        cap *= 2;
    char *data = jinja_run_alloc(t->r, cap > more ? cap : more);
    if (t->n)
        memcpy(data, t->data, t->n);
    t->data = data;
    t->cap = cap > more ? cap : more;
}

void text_add(text *t, const char *s, size_t n)
{
    if (n == 0)
        return;
    if (n > t->r->mem.limit)
        jinja_run_fail(t->r, "it needs more than %zu MB of memory", t->r->mem.limit >> 20);
    reserve(t, n);
    jinja_run_spend(t->r, n / 64);
    memcpy(t->data + t->n, s, n);
    t->n += n;
}

void text_add_str(text *t, const str *s)
{
    text_add_part(t, s, 0, s->n);
}

void text_add_part(text *t, const str *s, size_t at, size_t n)
{
    own_add(t->r, &t->own, t->n, s, at, n);
    text_add(t, s->s + at, n);
}

void text_add_cstr(text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_add_char(text *t, uint32_t cp)
{
    char c[4];
    size_t n = (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)c);
    text_add(t, c, n);
}

void text_printf(text *t, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    CHECK(n >= 0 && (size_t)n < sizeof line);
    text_add(t, line, (size_t)n);
}

/* Empties t: its bytes and spans are the string's now, and a list of spans may grow in place for one owner only. */
value text_value(text *t)
{
    value v = value_text(t->r, t->n ? t->data : "", t->n);
    if (t->own.n > 0) {
        own_list *own = JINJA_NEW(t->r, own_list);
        *own = t->own;
        own->len = t->n;
        bool all = own->n == 1 && own->at[0].from == 0 && own->at[0].to == t->n;
        ((str *)v.s)->own = all ? &own_all : own;
    }
    *t = (text){.r = t->r};
    return v;
}

/* Writes the digits of the shortest decimal that reads back as x, without the point. Returns the exponent of the
 * first. */
static int shortest_digits(double x, char digits[20])
{
    char s[32];
    for (int precision = x < DBL_MIN ? 0 : 14; precision <= 16;
         precision++) { /* any 15 digits survive the round trip */
        snprintf(s, sizeof s, "%.*e", precision, x);
        if (strtod(s, NULL) == x)
            break;
    }
    size_t n = 0;
    const char *p = s;
    for (; *p != 'e'; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return atoi(p + 1);
}

size_t float_repr(double x, char out[32])
{
    if (isnan(x) || isinf(x))
        return (size_t)snprintf(out, 32, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
    char digits[20];
    int exponent = shortest_digits(fabs(x), digits), n = (int)strlen(digits);
    const char *sign = signbit(x) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, 32, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                                exponent < 0 ? '-' : '+', abs(exponent));
    if (exponent < 0)
        return (size_t)snprintf(out, 32, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    if (n <= exponent + 1)
        return (size_t)snprintf(out, 32, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
    return (size_t)snprintf(out, 32, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

static bool is_printable(uint32_t cp)
{
    if (cp < 0x7f)
        return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void write_repr_char(text *t, uint32_t cp, char quote)
{
    if (cp == '\\' || cp == (uint32_t)quote)
        text_printf(t, "\\%c", (char)cp);
    else if (cp == '\n' || cp == '\r' || cp == '\t')
        text_add_cstr(t, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
    else if (is_printable(cp))
        text_add_char(t, cp);
    else
        text_printf(t, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

static void write_str_repr(text *t, const str *s)
{
    bool single = memchr(s->s, '\'', s->n) && !memchr(s->s, '"', s->n);
    char quote = s->n && single ? '"' : '\'';
    text_add_cstr(t, s->markup ? "Markup(" : "");
    text_add(t, &quote, 1);
    for (const char *p = s->s; p < s->s + s->n;)
        write_repr_char(t, utf8_next(&p), quote);
    text_add(t, &quote, 1);
    text_add_cstr(t, s->markup ? ")" : "");
}

static void write_list(text *t, const jinja_list *l, const char *open, const char *close)
{
    text_add_cstr(t, open);
    for (size_t i = 0; i < l->n; i++) {
        text_add_cstr(t, i ? ", " : "");
        value_write_repr(t, l->at[i]);
    }
    text_add_cstr(t, close);
}

static void write_dict(text *t, const dict *d)
{
    text_add_cstr(t, "{");
    for (size_t i = 0; i < d->n; i++) {
        text_add_cstr(t, i ? ", " : "");
        value_write_repr(t, d->at[i].key);
        text_add_cstr(t, ": ");
        value_write_repr(t, d->at[i].value);
    }
    text_add_cstr(t, "}");
}

static void write_range(text *t, const jinja_range *x)
{
    text_printf(t, "range(%lld, %lld", (long long)x->start, (long long)x->stop);
    if (x->step != 1)
        text_printf(t, ", %lld", (long long)x->step);
    text_add_cstr(t, ")");
}

static void write_number(text *t, value v)
{
    char s[32];
    if (v.kind == VALUE_FLOAT)
        text_add(t, s, float_repr(v.f, s));
    else
        text_printf(t, "%lld", (long long)v.i);
}

void value_write_repr(text *t, value v)
{
    jinja_run_enter(t->r);
    jinja_run_spend(t->r, 1);
    switch (v.kind) {
    case VALUE_STRING: write_str_repr(t, v.s); break;
    case VALUE_NONE: text_add_cstr(t, "None"); break;
    case VALUE_BOOL: text_add_cstr(t, v.b ? "True" : "False"); break;
    case VALUE_INT:
    case VALUE_FLOAT: write_number(t, v); break;
    case VALUE_LIST: write_list(t, v.list, "[", "]"); break;
    case VALUE_TUPLE: write_list(t, v.list, "(", v.list->n == 1 ? ",)" : ")"); break;
    case VALUE_KEYS:
    case VALUE_VALUES:
    case VALUE_ITEMS:
        text_printf(t, "%s(", value_type(v));
        write_list(t, v.list, "[", "])");
        break;
    case VALUE_DICT: write_dict(t, v.dict); break;
    case VALUE_NAMESPACE:
        text_add_cstr(t, "<Namespace ");
        write_dict(t, v.dict);
        text_add_cstr(t, ">");
        break;
    case VALUE_RANGE: write_range(t, v.range); break;
    case VALUE_UNDEFINED:
    case VALUE_MISSING: text_add_cstr(t, "Undefined"); break;
    default: object_write(t, v);
    }
    jinja_run_leave(t->r);
}

void value_write(text *t, value v)
{
    if (v.kind == VALUE_STRING)
        text_add_str(t, v.s);
    else if (v.kind != VALUE_UNDEFINED)
        value_write_repr(t, v);
}

const str *value_to_str(jinja_run *r, value v)
{
    if (v.kind == VALUE_STRING)
        return v.s;
    text t = {.r = r};
    value_write(&t, v);
    return text_value(&t).s;
}
