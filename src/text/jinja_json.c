/* jinja_json.c - see jinja_json.h */
#include "text/jinja_json.h"

#include <math.h>
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_own.h"
#include "text/jinja_sequences.h"
#include "text/jinja_str.h"
#include "text/utf8.h"

/* To JSON. */

typedef struct {
    text out;
    bool ascii, sorted;
    const str *indent; /* NULL: all in one line */
    const str *comma, *colon;
    int depth;
} dump;

static void write_unit(text *t, uint32_t unit)
{
    text_printf(t, "\\u%04x", unit);
}

static void write_char(dump *d, uint32_t cp)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    const char *found = cp && cp < 0x80 ? strchr(plain, (char)cp) : NULL;
    if (found)
        text_printf(&d->out, "\\%c", letter[found - plain]);
    else if (cp < 0x20 || (d->ascii && cp > 0x7e && cp < 0x10000))
        write_unit(&d->out, cp);
    else if (d->ascii && cp >= 0x10000) {
        write_unit(&d->out, 0xd800 + ((cp - 0x10000) >> 10));
        write_unit(&d->out, 0xdc00 + ((cp - 0x10000) & 0x3ff));
    } else
        text_add_char(&d->out, cp);
}

static void write_string(dump *d, const str *s)
{
    text_add_cstr(&d->out, "\"");
    for (const char *p = s->s; p < s->s + s->n;)
        write_char(d, utf8_next(&p));
    text_add_cstr(&d->out, "\"");
}

static void write_float(dump *d, double x)
{
    char s[32];
    if (isnan(x) || isinf(x))
        text_add_cstr(&d->out, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
    else
        text_add(&d->out, s, float_repr(x, s));
}

static void break_line(dump *d)
{
    if (!d->indent)
        return;
    text_add_cstr(&d->out, "\n");
    for (int i = 0; i < d->depth; i++)
        text_add_str(&d->out, d->indent);
}

static void write_value(dump *d, value v);

static void write_array(dump *d, const jinja_list *l)
{
    text_add_cstr(&d->out, "[");
    d->depth++;
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            text_add_str(&d->out, d->comma);
        break_line(d);
        write_value(d, l->at[i]);
    }
    d->depth--;
    if (l->n)
        break_line(d);
    text_add_cstr(&d->out, "]");
}

/* Keys that are not strings are written as strings. */
static void write_key(dump *d, value key)
{
    if (key.kind == VALUE_STRING) {
        write_string(d, key.s);
        return;
    }
    if (!value_is_number(key) && key.kind != VALUE_NONE)
        jinja_run_fail(d->out.r, "keys must be str, int, float, bool or None, not %s", value_type(key));
    text_add_cstr(&d->out, "\"");
    write_value(d, key);
    text_add_cstr(&d->out, "\"");
}

static void write_object(dump *d, const dict *o)
{
    value keys = dict_view(d->out.r, o, VALUE_KEYS), v;
    if (d->sorted)
        keys = sorted_list(d->out.r, keys.list, NULL);
    text_add_cstr(&d->out, "{");
    d->depth++;
    for (size_t i = 0; i < o->n; i++) {
        if (i)
            text_add_str(&d->out, d->comma);
        break_line(d);
        write_key(d, keys.list->at[i]);
        text_add_str(&d->out, d->colon);
        dict_get(d->out.r, o, keys.list->at[i], &v);
        write_value(d, v);
    }
    d->depth--;
    if (o->n)
        break_line(d);
    text_add_cstr(&d->out, "}");
}

static void write_value(dump *d, value v)
{
    jinja_run *r = d->out.r;
    jinja_run_enter(r);
    jinja_run_spend(r, 1);
    switch (v.kind) {
    case VALUE_NONE: text_add_cstr(&d->out, "null"); break;
    case VALUE_BOOL: text_add_cstr(&d->out, v.b ? "true" : "false"); break;
    case VALUE_INT: text_printf(&d->out, "%lld", (long long)v.i); break;
    case VALUE_FLOAT: write_float(d, v.f); break;
    case VALUE_STRING: write_string(d, v.s); break;
    case VALUE_LIST:
    case VALUE_TUPLE: write_array(d, v.list); break;
    case VALUE_DICT: write_object(d, v.dict); break;
    default: jinja_run_fail(r, "'%s' cannot be written as JSON", value_type(v));
    }
    jinja_run_leave(r);
}

static const str *indent_of(jinja_run *r, value v)
{
    if (v.kind == VALUE_MISSING || v.kind == VALUE_NONE)
        return NULL;
    if (v.kind == VALUE_STRING)
        return v.s;
    if (!value_is_int(v))
        jinja_run_fail(r, "indent must be an integer or a string, not %s", value_type(v));
    return str_repeat(r, str_of(r, " "), value_to_int(v));
}

static void set_separators(dump *d, value v)
{
    jinja_run *r = d->out.r;
    if (v.kind == VALUE_MISSING || v.kind == VALUE_NONE)
        return;
    const jinja_list *l = value_to_list(r, v);
    if (l->n != 2 || l->at[0].kind != VALUE_STRING || l->at[1].kind != VALUE_STRING)
        jinja_run_fail(r, "separators must be two strings");
    d->comma = l->at[0].s;
    d->colon = l->at[1].s;
}

value filter_tojson(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[4];
    jinja_args_bind(r, "tojson", a, 0, "ensure_ascii indent separators sort_keys", v);
    dump d = {.out = {.r = r},
              .ascii = value_is_true(r, v[0]),
              .sorted = value_is_true(r, v[3]),
              .indent = indent_of(r, v[1])};
    d.comma = str_of(r, d.indent ? "," : ", ");
    d.colon = str_of(r, ": ");
    set_separators(&d, v[2]);
    write_value(&d, in);
    return text_value(&d.out);
}

/* From JSON. */

static value array_from_json(jinja_run *r, const json_t *v)
{
    size_t n = json_array_size(v);
    value *at = JINJA_NEW_ARRAY(r, value, n);
    for (size_t i = 0; i < n; i++)
        at[i] = value_from_json(r, json_array_get(v, i));
    return value_list(r, VALUE_LIST, at, n);
}

/* Returns whether this is a well-known role. Some templates build a special token from the role ("<|" + role + "|>");
 * from none of these roles does that give a token that ends a turn. */
static bool is_known_role(const str *s)
{
    static const char *const known[] = {"system", "developer", "user",        "assistant",   "tool",     "function",
                                        "model",  "ipython",   "observation", "environment", "documents"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(s, known[i]))
            return true;
    return false;
}

/* Converts the value of an object's member; a well-known role counts as the template's own. */
static value member_from_json(jinja_run *r, const char *key, const json_t *v)
{
    value made = value_from_json(r, v);
    if (made.kind == VALUE_STRING && strcmp(key, "role") == 0 && is_known_role(made.s))
        ((str *)made.s)->own = &own_all;
    return made;
}

static value object_from_json(jinja_run *r, const json_t *v)
{
    dict *d = dict_new(r, json_object_size(v));
    for (void *i = json_object_iter((json_t *)v); i; i = json_object_iter_next((json_t *)v, i)) {
        const char *key = json_object_iter_key(i);
        dict_add(r, d, value_text(r, key, json_object_iter_key_len(i)),
                 member_from_json(r, key, json_object_iter_value(i)));
    }
    return value_dict(d);
}

value value_from_json(jinja_run *r, const json_t *v)
{
    value made;
    jinja_run_enter(r);
    jinja_run_spend(r, 1);
    switch (json_typeof(v)) {
    case JSON_OBJECT: made = object_from_json(r, v); break;
    case JSON_ARRAY: made = array_from_json(r, v); break;
    case JSON_STRING: made = value_text(r, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: made = value_int(json_integer_value(v)); break;
    case JSON_REAL: made = value_float(json_real_value(v)); break;
    case JSON_TRUE:
    case JSON_FALSE: made = value_bool(json_is_true(v)); break;
    default: made = value_none();
    }
    jinja_run_leave(r);
    return made;
}
