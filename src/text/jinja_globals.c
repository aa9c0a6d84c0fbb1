/* jinja_globals.c - see jinja_globals.h */
#include "text/jinja_globals.h"

#include <string.h>
#include <time.h>

#include "text/jinja_eval.h"
#include "text/jinja_str.h"

#define MAX_RANGE 100000 /* as in Jinja's sandbox */

static int64_t int_argument(jinja_run *r, value v)
{
    if (v.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, v);
    if (!value_is_int(v))
        jinja_run_fail(r, "expected an integer, not '%s'", value_type(v));
    return value_to_int(v);
}

static value call_range(jinja_run *r, function *f, const jinja_arguments *a)
{
    (void)f;
    if (a->n_keywords || a->n < 1 || a->n > 3)
        jinja_run_fail(r, "range takes 1 to 3 arguments");
    jinja_range *x = JINJA_NEW(r, jinja_range);
    *x = (jinja_range){0, int_argument(r, a->at[a->n > 1]), 1};
    if (a->n > 1)
        x->start = int_argument(r, a->at[0]);
    if (a->n > 2)
        x->step = int_argument(r, a->at[2]);
    if (x->step == 0)
        jinja_run_fail(r, "the step of a range cannot be 0");
    if (jinja_range_length(x) > MAX_RANGE)
        jinja_run_fail(r, "a range has at most %d items", MAX_RANGE);
    return (value){.kind = VALUE_RANGE, .range = x};
}

/* dict(mapping or pairs, name=value, ...) */
static dict *make_dict(jinja_run *r, const char *what, const jinja_arguments *a)
{
    dict *d = dict_new(r, (size_t)a->n_keywords);
    if (a->n > 1)
        jinja_run_fail(r, "%s takes at most 1 argument beside names, %d were given", what, a->n);
    if (a->n == 1 && a->at[0].kind == VALUE_DICT) {
        for (size_t i = 0; i < a->at[0].dict->n; i++)
            dict_put(r, d, a->at[0].dict->at[i].key, a->at[0].dict->at[i].value);
    } else if (a->n == 1) {
        value pair;
        for (iter *it = value_iter(r, a->at[0]); iter_next(r, it, &pair);) {
            const jinja_list *l = value_to_list(r, pair);
            if (l->n != 2)
                jinja_run_fail(r, "%s: an element has %zu parts, not 2", what, l->n);
            dict_put(r, d, l->at[0], l->at[1]);
        }
    }
    for (int i = 0; i < a->n_keywords; i++)
        dict_put(r, d, value_str(a->keyword[i].name), a->keyword[i].value);
    return d;
}

static value call_dict(jinja_run *r, function *f, const jinja_arguments *a)
{
    return value_dict(make_dict(r, f->name, a));
}

/* Fails for names that begin with an underscore: Transformers allows no template to set them. */
static void check_name(jinja_run *r, value name)
{
    if (name.kind == VALUE_STRING && name.s->n && name.s->s[0] == '_')
        jinja_run_fail(r, "a namespace takes no names with an underscore before them: '%.*s'", (int)name.s->n,
                       name.s->s);
}

static value call_namespace(jinja_run *r, function *f, const jinja_arguments *a)
{
    dict *d = make_dict(r, f->name, a);
    for (size_t i = 0; i < d->n; i++)
        check_name(r, d->at[i].key);
    return (value){.kind = VALUE_NAMESPACE, .dict = d};
}

void namespace_set(jinja_run *r, value of, const str *name, value v)
{
    check_name(r, value_str(name));
    dict_put(r, of.dict, value_str(name), v);
}

static value call_cycler(jinja_run *r, function *f, const jinja_arguments *a)
{
    (void)f;
    if (a->n == 0 || a->n_keywords)
        jinja_run_fail(r, "a cycler needs at least one item");
    cycler *c = JINJA_NEW(r, cycler);
    *c = (cycler){.items = {.at = a->at, .n = (size_t)a->n}};
    return (value){.kind = VALUE_CYCLER, .cycler = c};
}

/* The first call returns "", all others the separator. */
static value call_joined(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_args_none(r, "joiner", a);
    return f->n_calls++ ? f->self : value_str(str_of(r, ""));
}

static value call_joiner(jinja_run *r, function *f, const jinja_arguments *a)
{
    value sep;
    (void)f;
    jinja_args_bind(r, "joiner", a, 0, "sep", &sep);
    return value_function(r, "joiner", call_joined, sep.kind == VALUE_MISSING ? value_str(str_of(r, ", ")) : sep);
}

static value call_raise(jinja_run *r, function *f, const jinja_arguments *a)
{
    value message;
    jinja_args_bind(r, f->name, a, 1, "message", &message);
    jinja_run_raise(r, value_to_str(r, message));
}

/* Returns the format for C's strftime(), which does not have Python's %f: the microseconds become 000000. */
static char *c_format(jinja_run *r, const str *format)
{
    text t = {.r = r};
    for (size_t i = 0; i < format->n; i++) {
        bool pair = format->s[i] == '%' && i + 1 < format->n;
        if (pair && format->s[i + 1] == 'f')
            text_add_cstr(&t, "000000");
        else
            text_add(&t, &format->s[i], pair ? 2 : 1);
        i += pair;
    }
    text_add(&t, "", 1);
    return t.data;
}

static value call_strftime_now(jinja_run *r, function *f, const jinja_arguments *a)
{
    value format;
    struct tm tm;
    jinja_args_bind(r, f->name, a, 1, "format", &format);
    if (format.kind != VALUE_STRING)
        jinja_run_fail(r, "the format must be a string, not '%s'", value_type(format));
    if (format.s->n > 256 || memchr(format.s->s, '\0', format.s->n))
        jinja_run_fail(r, "the format is too long, or has a NUL");
    const char *c = c_format(r, format.s);
    size_t size = 16384, n;
    char *out = jinja_run_alloc(r, size);
    if (!localtime_r(&r->now, &tm))
        jinja_run_fail(r, "the clock shows a time that has no date");
    n = strftime(out, size, c, &tm);
    return value_text(r, out, n);
}

static value call_lipsum(jinja_run *r, function *f, const jinja_arguments *a)
{
    (void)a;
    jinja_run_fail(r, "%s is not served here", f->name);
}

value global_find(jinja_run *r, const str *name)
{
    static const struct {
        const char *name;
        function_body *call;
    } globals[] = {
        {"range", call_range},
        {"dict", call_dict},
        {"namespace", call_namespace},
        {"cycler", call_cycler},
        {"joiner", call_joiner},
        {"raise_exception", call_raise},
        {"strftime_now", call_strftime_now},
        {"lipsum", call_lipsum},
    };
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (str_is(name, globals[i].name))
            return value_function(r, globals[i].name, globals[i].call, value_none());
    return value_missing();
}
