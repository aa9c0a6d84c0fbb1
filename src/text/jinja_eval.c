/* jinja_eval.c - see jinja_eval.h */
#include "text/jinja_eval.h"

#include <string.h>

#include "text/jinja_globals.h"
#include "text/jinja_ops.h"
#include "text/jinja_own.h"
#include "text/jinja_render.h"
#include "text/jinja_str.h"

/* Scopes. */

void scope_set(jinja_run *r, scope *s, int symbol, value v)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i].symbol == symbol) {
            s->at[i].value = v;
            return;
        }
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 4;
        binding *more = JINJA_NEW_ARRAY(r, binding, (size_t)cap);
        if (s->n)
            memcpy(more, s->at, (size_t)s->n * sizeof *more);
        s->at = more;
        s->cap = cap;
    }
    s->at[s->n++] = (binding){symbol, v};
}

void scope_restart(jinja_run *r, scope *s, const symbol_list *unset)
{
    s->n = 0;
    for (int i = 0; i < unset->n; i++)
        scope_set(r, s, unset->at[i], value_missing());
}

scope *scope_enter(jinja_run *r, scope *around, const symbol_list *unset)
{
    scope *s = JINJA_NEW(r, scope);
    *s = (scope){.around = around};
    scope_restart(r, s, unset);
    r->render->scope = s;
    return s;
}

static value look_up(jinja_run *r, int symbol)
{
    for (const scope *s = r->render->scope; s; s = s->around)
        for (int i = 0; i < s->n; i++)
            if (s->at[i].symbol == symbol)
                return s->at[i].value;
    return r->render->variable[symbol];
}

/* Expressions. */

static value eval_name(jinja_run *r, const jinja_node *n)
{
    value v = look_up(r, n->symbol);
    return v.kind == VALUE_MISSING ? value_undefined_of(r, value_missing(), value_str(n->name)) : v;
}

static value eval_list(jinja_run *r, const jinja_node *n, value_kind kind)
{
    value *at = JINJA_NEW_ARRAY(r, value, (size_t)n->list.n);
    for (int i = 0; i < n->list.n; i++)
        at[i] = eval_node(r, n->list.at[i]);
    return value_list(r, kind, at, (size_t)n->list.n);
}

static value eval_dict(jinja_run *r, const jinja_node *n)
{
    dict *d = dict_new(r, (size_t)n->list.n / 2);
    for (int i = 0; i < n->list.n; i += 2) {
        value key = eval_node(r, n->list.at[i]), v = eval_node(r, n->list.at[i + 1]);
        eval_at(r, n);
        dict_put(r, d, key, v);
    }
    return value_dict(d);
}

static value eval_cond(jinja_run *r, const jinja_node *n)
{
    if (value_is_true(r, eval_node(r, n->a)))
        return eval_node(r, n->b);
    if (n->c)
        return eval_node(r, n->c);
    return value_undefined(r, "an inline if without else was false");
}

static value eval_logic(jinja_run *r, const jinja_node *n)
{
    value a = eval_node(r, n->a);
    return value_is_true(r, a) == (n->kind == EXPR_OR) ? a : eval_node(r, n->b);
}

static value eval_compare(jinja_run *r, const jinja_node *n)
{
    value left = eval_node(r, n->a);
    for (int i = 0; i < n->list.n; i++) {
        value right = eval_node(r, n->list.at[i]);
        eval_at(r, n);
        if (!op_compare(r, n->op[i], left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static value eval_concat(jinja_run *r, const jinja_node *n)
{
    const str *all = str_of(r, "");
    for (int i = 0; i < n->list.n; i++)
        all = str_concat(r, all, str_plain(r, value_to_str(r, eval_node(r, n->list.at[i]))));
    return value_str(all);
}

static value eval_slice(jinja_run *r, const jinja_node *n)
{
    value of = eval_node(r, n->a);
    const jinja_node *s = n->b;
    value start = s->a ? eval_node(r, s->a) : value_missing(), stop = s->b ? eval_node(r, s->b) : value_missing();
    value step = s->c ? eval_node(r, s->c) : value_missing();
    eval_at(r, n);
    return op_slice(r, of, start, stop, step);
}

static value eval_binary(jinja_run *r, const jinja_node *n)
{
    value a = eval_node(r, n->a), b = eval_node(r, n->b);
    eval_at(r, n);
    return op_binary(r, n->op[0], a, b);
}

static value eval_item(jinja_run *r, const jinja_node *n)
{
    if (n->b->kind == EXPR_SLICE)
        return eval_slice(r, n);
    value of = eval_node(r, n->a), key = eval_node(r, n->b);
    eval_at(r, n);
    return op_item(r, of, key);
}

static value eval_unary(jinja_run *r, const jinja_node *n)
{
    value v = eval_node(r, n->a);
    eval_at(r, n);
    return n->kind == EXPR_NEGATIVE   ? op_negative(r, v)
           : n->kind == EXPR_POSITIVE ? op_positive(r, v)
                                      : value_bool(!value_is_true(r, v));
}

static value eval_call_node(jinja_run *r, const jinja_node *n, keyword extra)
{
    value callee = eval_node(r, n->a);
    jinja_arguments a = eval_args(r, n->args, extra);
    eval_at(r, n);
    return eval_call(r, callee, &a);
}

/* Applies a filter to the value before it, or to the text of a block. */
static value eval_filter(jinja_run *r, const jinja_node *n, value block)
{
    value in = !n->a ? block : n->a->kind == EXPR_FILTER ? eval_filter(r, n->a, block) : eval_node(r, n->a);
    jinja_arguments a = eval_args(r, n->args, (keyword){0});
    eval_at(r, n);
    if (!n->filter)
        jinja_run_fail(r, "there is no filter '%.*s'", (int)n->name->n, n->name->s);
    return n->filter(r, in, &a);
}

static value eval_test(jinja_run *r, const jinja_node *n)
{
    value in = eval_node(r, n->a);
    jinja_arguments a = eval_args(r, n->args, (keyword){0});
    eval_at(r, n);
    if (!n->test)
        jinja_run_fail(r, "there is no test '%.*s'", (int)n->name->n, n->name->s);
    return value_bool(n->test(r, in, &a));
}

static value eval_inside(jinja_run *r, const jinja_node *n)
{
    switch (n->kind) {
    case EXPR_CONST: return n->constant;
    case EXPR_NAME: return eval_name(r, n);
    case EXPR_LIST: return eval_list(r, n, VALUE_LIST);
    case EXPR_TUPLE: return eval_list(r, n, VALUE_TUPLE);
    case EXPR_DICT: return eval_dict(r, n);
    case EXPR_COND: return eval_cond(r, n);
    case EXPR_OR:
    case EXPR_AND: return eval_logic(r, n);
    case EXPR_NOT:
    case EXPR_NEGATIVE:
    case EXPR_POSITIVE: return eval_unary(r, n);
    case EXPR_COMPARE: return eval_compare(r, n);
    case EXPR_BINARY: return eval_binary(r, n);
    case EXPR_CONCAT: return eval_concat(r, n);
    case EXPR_ITEM: return eval_item(r, n);
    case EXPR_CALL: return eval_call_node(r, n, (keyword){0});
    case EXPR_FILTER: return eval_filter(r, n, value_missing());
    case EXPR_TEST: return eval_test(r, n);
    default: break;
    }
    CHECK(n->kind == EXPR_ATTRIBUTE);
    value of = eval_node(r, n->a);
    eval_at(r, n);
    return op_attribute(r, of, n->name);
}

value eval_node(jinja_run *r, const jinja_node *n)
{
    jinja_run_enter(r);
    jinja_run_spend(r, 1);
    eval_at(r, n);
    value v = eval_inside(r, n);
    jinja_run_leave(r);
    return v;
}

/* Statements. */

static void unpack(jinja_run *r, const jinja_node *target, value v)
{
    if (!value_is_iterable(v))
        jinja_run_fail(r, "'%s' cannot be taken apart into names", value_type(v));
    const jinja_list *l = value_to_list(r, v);
    if (l->n > (size_t)target->list.n)
        jinja_run_fail(r, "there are more values than the %d names", target->list.n);
    if (l->n < (size_t)target->list.n)
        jinja_run_fail(r, "there are %zu values for %d names", l->n, target->list.n);
    for (int i = 0; i < target->list.n; i++)
        eval_assign(r, target->list.at[i], l->at[i]);
}

void eval_assign(jinja_run *r, const jinja_node *target, value v)
{
    eval_at(r, target);
    if (target->kind == EXPR_TUPLE) {
        unpack(r, target, v);
    } else if (target->kind == EXPR_NAME) {
        scope_set(r, r->render->scope, target->symbol, v);
    } else {
        value of = look_up(r, target->symbol);
        if (of.kind != VALUE_NAMESPACE)
            jinja_run_fail(r, "only a namespace's attributes can be set");
        namespace_set(r, of, target->name, v);
    }
}

text *eval_collect(jinja_run *r, text *t)
{
    text *before = r->render->out;
    *t = (text){.r = r};
    r->render->out = t;
    return before;
}

void eval_collect_end(jinja_run *r, text *before)
{
    r->render->out = before;
}

static void check_output(jinja_run *r)
{
    if (r->render->out->n > r->max_output)
        jinja_run_fail(r, "it writes more than %zu MB", r->max_output >> 20);
}

/* {% set %}...{% endset %} and {% filter %}: sends the body's text through the filters, still in the body's scope. */
static flow exec_collected(jinja_run *r, const jinja_node *n)
{
    text collected;
    scope *around = r->render->scope;
    text *before = eval_collect(r, &collected);
    scope_enter(r, around, &n->unset);
    flow f = eval_body(r, &n->body);
    eval_collect_end(r, before);
    value v = text_value(&collected);
    if (f == FLOW_ON && n->a)
        v = eval_filter(r, n->a, v);
    r->render->scope = around;
    if (f == FLOW_ON && n->kind == STMT_SET_BLOCK)
        eval_assign(r, n->target, v);
    else if (f == FLOW_ON)
        value_write(r->render->out, v);
    return f;
}

static flow exec_with(jinja_run *r, const jinja_node *n)
{
    scope *around = r->render->scope, *s = scope_enter(r, around, &n->unset);
    for (int i = 0; i < n->list.n; i += 2) {
        r->render->scope = around;
        value v = eval_node(r, n->list.at[i + 1]);
        r->render->scope = s;
        eval_assign(r, n->list.at[i], v);
    }
    flow f = eval_body(r, &n->body);
    r->render->scope = around;
    return f;
}

static flow exec_scope(jinja_run *r, const jinja_node *n)
{
    scope *around = r->render->scope;
    scope_enter(r, around, &n->unset);
    flow f = eval_body(r, &n->body);
    r->render->scope = around;
    return f;
}

static void exec_call_block(jinja_run *r, const jinja_node *n)
{
    value caller = jinja_macro_new(r, n->macro);
    value v = eval_call_node(r, n->a, (keyword){str_of(r, "caller"), caller});
    value_write(r->render->out, v);
}

static flow exec(jinja_run *r, const jinja_node *n)
{
    jinja_run_spend(r, 1);
    eval_at(r, n);
    switch (n->kind) {
    case STMT_TEXT: text_add_str(r->render->out, n->constant.s); break;
    case STMT_PRINT: value_write(r->render->out, eval_node(r, n->a)); break;
    case STMT_IF: return eval_body(r, value_is_true(r, eval_node(r, n->a)) ? &n->body : &n->other);
    case STMT_FOR: return jinja_loop_run(r, n);
    case STMT_SET: eval_assign(r, n->target, eval_node(r, n->a)); break;
    case STMT_SET_BLOCK:
    case STMT_FILTER_BLOCK: return exec_collected(r, n);
    case STMT_MACRO: scope_set(r, r->render->scope, n->symbol, jinja_macro_new(r, n->macro)); break;
    case STMT_CALL_BLOCK: exec_call_block(r, n); break;
    case STMT_WITH: return exec_with(r, n);
    case STMT_SCOPE: return exec_scope(r, n);
    case STMT_BREAK: return FLOW_BREAK;
    default: CHECK(n->kind == STMT_CONTINUE); return FLOW_CONTINUE;
    }
    check_output(r);
    return FLOW_ON;
}

flow eval_body(jinja_run *r, const node_list *body)
{
    flow f = FLOW_ON;
    jinja_run_enter(r);
    for (int i = 0; i < body->n && f == FLOW_ON; i++)
        f = exec(r, body->at[i]);
    jinja_run_leave(r);
    return f;
}

/* Converts a value from JSON; a string becomes the template's own. */
static value own_from_json(jinja_run *r, const json_t *v)
{
    value made = value_from_json(r, v);
    if (made.kind == VALUE_STRING)
        ((str *)made.s)->own = &own_all;
    return made;
}

void eval_program(jinja_run *r, const jinja *p, const json_t *variables, const json_t *own, text *out)
{
    render x = {.p = p, .variable = JINJA_NEW_ARRAY(r, value, (size_t)p->n_symbols), .out = out};
    r->render = &x;
    for (int i = 0; i < p->n_symbols; i++) {
        const json_t *v = json_object_getn(variables, p->symbol[i]->s, p->symbol[i]->n);
        const json_t *token = json_object_getn(own, p->symbol[i]->s, p->symbol[i]->n);
        x.variable[i] = v ? value_from_json(r, v) : token ? own_from_json(r, token) : global_find(r, p->symbol[i]);
    }
    scope_enter(r, NULL, &p->unset);
    eval_body(r, &p->body);
}
