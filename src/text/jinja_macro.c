/* jinja_macro.c - arguments, macros and everything else that can be called */
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_render.h"
#include "text/jinja_str.h"

/* Arguments. */

static const jinja_list *eval_star(jinja_run *r, const jinja_node *star)
{
    static const jinja_list nothing = {0};
    return star ? value_to_list(r, eval_node(r, star)) : &nothing;
}

static const dict *eval_star_star(jinja_run *r, const jinja_node *star_star)
{
    static const dict nothing = {0};
    if (!star_star)
        return &nothing;
    value v = eval_node(r, star_star);
    if (v.kind != VALUE_DICT)
        jinja_run_fail(r, "** takes a dict, not '%s'", value_type(v));
    for (size_t i = 0; i < v.dict->n; i++)
        if (v.dict->at[i].key.kind != VALUE_STRING)
            jinja_run_fail(r, "the names behind ** must be strings");
    return v.dict;
}

jinja_arguments eval_args(jinja_run *r, const call_args *a, keyword extra)
{
    value *at = JINJA_NEW_ARRAY(r, value, (size_t)a->at.n);
    for (int i = 0; i < a->at.n; i++)
        at[i] = eval_node(r, a->at.at[i]);
    const jinja_list *star = eval_star(r, a->star);
    if (star->n > 0) {
        value *all = JINJA_NEW_ARRAY(r, value, (size_t)a->at.n + star->n);
        memcpy(all, at, (size_t)a->at.n * sizeof *at);
        memcpy(all + a->at.n, star->at, star->n * sizeof *at);
        at = all;
    }
    keyword *named = JINJA_NEW_ARRAY(r, keyword, (size_t)a->n_named + 1);
    for (int i = 0; i < a->n_named; i++)
        named[i] = (keyword){a->named[i].name, eval_node(r, a->named[i].value)};
    const dict *more = eval_star_star(r, a->star_star);
    int n = a->n_named;
    if (more->n > 0) {
        keyword *all = JINJA_NEW_ARRAY(r, keyword, (size_t)a->n_named + more->n + 1);
        memcpy(all, named, (size_t)a->n_named * sizeof *all);
        for (size_t i = 0; i < more->n; i++)
            all[n++] = (keyword){more->at[i].key.s, more->at[i].value};
        named = all;
    }
    if (extra.name)
        named[n++] = extra;
    return (jinja_arguments){.at = at, .n = a->at.n + (int)star->n, .keyword = named, .n_keywords = n};
}

/* Returns the position of name in names (separated by spaces), or -1. */
static int name_number(const char *names, const str *name)
{
    int i = 0;
    for (const char *at = names; *at; i++) {
        size_t n = strcspn(at, " ");
        if (n == name->n && memcmp(at, name->s, n) == 0)
            return i;
        at += n + strspn(at + n, " ");
    }
    return -1;
}

static int count_names(const char *names)
{
    int n = *names != '\0';
    for (; *names; names++)
        n += *names == ' ';
    return n;
}

void jinja_args_bind(jinja_run *r, const char *what, const jinja_arguments *a, int n_needed, const char *names,
                     value *out)
{
    int n = count_names(names);
    if (a->n > n)
        jinja_run_fail(r, "%s takes at most %d arguments, %d were given", what, n, a->n);
    for (int i = 0; i < n; i++)
        out[i] = i < a->n ? a->at[i] : value_missing();
    for (int i = 0; i < a->n_keywords; i++) {
        const str *name = a->keyword[i].name;
        int at = name_number(names, name);
        if (at < 0)
            jinja_run_fail(r, "%s has no argument '%.*s'", what, (int)name->n, name->s);
        if (out[at].kind != VALUE_MISSING)
            jinja_run_fail(r, "%s got two values for argument '%.*s'", what, (int)name->n, name->s);
        out[at] = a->keyword[i].value;
    }
    for (int i = 0; i < n_needed; i++)
        if (out[i].kind == VALUE_MISSING)
            jinja_run_fail(r, "%s needs %d argument%s", what, n_needed, n_needed == 1 ? "" : "s");
}

void jinja_args_bind_positional(jinja_run *r, const char *what, const jinja_arguments *a, int n_needed,
                                const char *names, value *out)
{
    if (a->n_keywords)
        jinja_run_fail(r, "%s takes no keyword arguments", what);
    jinja_args_bind(r, what, a, n_needed, names, out);
}

void jinja_args_none(jinja_run *r, const char *what, const jinja_arguments *a)
{
    if (a->n || a->n_keywords)
        jinja_run_fail(r, "%s takes no arguments", what);
}

/* Macros. */

value jinja_macro_new(jinja_run *r, const macro_code *code)
{
    jinja_macro *m = JINJA_NEW(r, jinja_macro);
    *m = (jinja_macro){code, r->render->scope};
    return (value){.kind = VALUE_MACRO, .macro = m};
}

/* Returns the value of this keyword and marks it as taken; MISSING: there is none. */
static value take_keyword(const jinja_arguments *a, bool *taken, const str *name)
{
    for (int i = 0; i < a->n_keywords; i++)
        if (!taken[i] && str_equal(a->keyword[i].name, name)) {
            taken[i] = true;
            return a->keyword[i].value;
        }
    return value_missing();
}

static void bind_parameters(jinja_run *r, const macro_code *m, scope *s, const jinja_arguments *a, bool *taken)
{
    for (int i = 0; i < m->n_params; i++)
        scope_set(r, s, m->param[i], i < a->n ? a->at[i] : take_keyword(a, taken, m->param_name[i]));
    for (int i = 0; i < m->n_params; i++) { /* a default may use the parameters before it */
        value *v = NULL;
        for (int k = 0; k < s->n; k++)
            if (s->at[k].symbol == m->param[i])
                v = &s->at[k].value;
        if (v->kind != VALUE_MISSING)
            continue;
        int which = i - (m->n_params - m->n_defaults);
        value given = which >= 0 ? eval_node(r, m->default_value[which])
                                 : value_undefined(r, "a parameter of the macro was not provided");
        scope_set(r, s, m->param[i], given);
    }
}

static bool has_parameter(const macro_code *m, int symbol)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->param[i] == symbol)
            return true;
    return false;
}

/* Binds caller, kwargs and varargs where the body mentions them; other arguments left over are an error. */
static void bind_rest(jinja_run *r, const macro_code *m, scope *s, const jinja_arguments *a, bool *taken)
{
    if (m->uses_caller && !has_parameter(m, m->caller)) {
        value caller = take_keyword(a, taken, str_of(r, "caller"));
        scope_set(r, s, m->caller,
                  caller.kind == VALUE_MISSING ? value_undefined(r, "the macro was not called by {% call %}") : caller);
    }
    dict *kwargs = dict_new(r, (size_t)a->n_keywords);
    for (int i = 0; i < a->n_keywords; i++)
        if (!taken[i])
            dict_put(r, kwargs, value_str(a->keyword[i].name), a->keyword[i].value);
    if (m->uses_kwargs)
        scope_set(r, s, m->kwargs, value_dict(kwargs));
    else if (kwargs->n)
        jinja_run_fail(r, "the macro takes no keyword argument '%.*s'", (int)kwargs->at[0].key.s->n,
                       kwargs->at[0].key.s->s);
    int left = a->n > m->n_params ? a->n - m->n_params : 0;
    if (m->uses_varargs)
        scope_set(r, s, m->varargs, value_list(r, VALUE_TUPLE, a->at + a->n - left, (size_t)left));
    else if (left)
        jinja_run_fail(r, "the macro takes not more than %d argument(s)", m->n_params);
}

value jinja_macro_call(jinja_run *r, const jinja_macro *m, const jinja_arguments *a)
{
    text collected;
    scope *here = r->render->scope, *s = scope_enter(r, m->around, &m->code->unset);
    bool *taken = JINJA_NEW_ARRAY(r, bool, (size_t)a->n_keywords);
    memset(taken, 0, (size_t)a->n_keywords);
    jinja_run_enter(r);
    bind_parameters(r, m->code, s, a, taken);
    bind_rest(r, m->code, s, a, taken);
    text *before = eval_collect(r, &collected);
    eval_body(r, &m->code->body);
    eval_collect_end(r, before);
    jinja_run_leave(r);
    r->render->scope = here;
    return text_value(&collected);
}

value jinja_macro_attribute(jinja_run *r, const jinja_macro *m, const str *name)
{
    const macro_code *code = m->code;
    if (str_is(name, "name"))
        return code->name ? value_str(code->name) : value_none();
    if (str_is(name, "catch_kwargs"))
        return value_bool(code->uses_kwargs);
    if (str_is(name, "catch_varargs"))
        return value_bool(code->uses_varargs);
    if (str_is(name, "caller"))
        return value_bool(code->uses_caller);
    if (!str_is(name, "arguments"))
        return value_missing();
    value *names = JINJA_NEW_ARRAY(r, value, (size_t)code->n_params);
    for (int i = 0; i < code->n_params; i++)
        names[i] = value_str(code->param_name[i]);
    return value_list(r, VALUE_TUPLE, names, (size_t)code->n_params);
}

/* Calls. */

bool value_is_callable(value v)
{
    return v.kind == VALUE_FUNCTION || v.kind == VALUE_MACRO || v.kind == VALUE_LOOP || v.kind == VALUE_UNDEFINED;
}

value eval_call(jinja_run *r, value callee, const jinja_arguments *a)
{
    switch (callee.kind) {
    case VALUE_FUNCTION: return callee.function->call(r, callee.function, a);
    case VALUE_MACRO: return jinja_macro_call(r, callee.macro, a);
    case VALUE_LOOP: return jinja_loop_recurse(r, callee.loop, a);
    case VALUE_UNDEFINED: value_fail_undefined(r, callee);
    default: jinja_run_fail(r, "'%s' cannot be called", value_type(callee));
    }
}

void object_write(text *t, value v)
{
    if (v.kind == VALUE_LOOP) {
        value index = jinja_loop_attribute(t->r, v.loop, str_of(t->r, "index"));
        text_printf(t, "<LoopContext %lld/%lld>", (long long)index.i, (long long)jinja_loop_length(t->r, v.loop));
    } else if (v.kind == VALUE_MACRO && !v.macro->code->name) {
        text_add_cstr(t, "<Macro anonymous>");
    } else if (v.kind == VALUE_MACRO) {
        text_add_cstr(t, "<Macro '");
        text_add_str(t, v.macro->code->name);
        text_add_cstr(t, "'>");
    } else if (v.kind == VALUE_FUNCTION) {
        text_printf(t, "<function %s>", v.function->name);
    } else {
        text_printf(t, "<%s object>", value_type(v));
    }
}
