/* jinja_loop.c - {% for %} and its `loop`
 *
 * Items are taken one by one, and the loop's condition is evaluated when an item is taken: what the body sets in a
 * namespace counts for the next item. Only loop.last, loop.nextitem and what needs loop.length look ahead. */
#include "text/jinja_eval.h"
#include "text/jinja_render.h"
#include "text/jinja_str.h"

struct jinja_loop {
    const jinja_node *code;
    scope *around; /* where the for stands */
    value over;
    iter *items;
    bool all_taken;         /* items has the rest as a list, for which the condition has been evaluated */
    value ahead;            /* the item that was looked at before its turn; MISSING: none */
    value before, current;  /* MISSING: none yet */
    int64_t index0, length; /* length -1: not known yet */
    int64_t depth0;
    value changed; /* what loop.changed() was last given; MISSING: it was not called */
};

/* Returns whether the loop's condition holds for an item. */
static bool is_wanted(jinja_run *r, jinja_loop *l, value item)
{
    static const symbol_list none = {0};
    scope *inner = r->render->scope;
    scope_enter(r, l->around, &none);
    eval_assign(r, l->code->target, item);
    bool is = value_is_true(r, eval_node(r, l->code->b));
    r->render->scope = inner;
    return is;
}

static bool next_wanted(jinja_run *r, jinja_loop *l, value *out)
{
    while (iter_next(r, l->items, out))
        if (!l->code->b || l->all_taken || is_wanted(r, l, *out))
            return true;
    return false;
}

static bool look_ahead(jinja_run *r, jinja_loop *l)
{
    if (l->ahead.kind == VALUE_MISSING && !next_wanted(r, l, &l->ahead))
        l->ahead = value_missing();
    return l->ahead.kind != VALUE_MISSING;
}

static bool next_item(jinja_run *r, jinja_loop *l, value *out)
{
    if (l->ahead.kind != VALUE_MISSING)
        *out = l->ahead;
    else if (!next_wanted(r, l, out))
        return false;
    l->ahead = value_missing();
    l->before = l->current;
    l->current = *out;
    l->index0++;
    return true;
}

/* Takes all items that are left now, into a list. Returns the loop's length. */
static int64_t count_rest(jinja_run *r, jinja_loop *l)
{
    size_t n = 0, cap = 0;
    value *at = NULL, item;
    while (next_wanted(r, l, &item)) {
        at = jinja_run_grow(r, at, n, &cap, 8, sizeof *at);
        at[n++] = item;
    }
    l->items = value_iter(r, value_list(r, VALUE_LIST, at, n));
    l->all_taken = true;
    return (int64_t)n + l->index0 + 1 + (l->ahead.kind != VALUE_MISSING);
}

int64_t jinja_loop_length(jinja_run *r, jinja_loop *l)
{
    if (l->length < 0)
        l->length = !l->code->b && value_has_length(l->over) ? value_length(r, l->over) : count_rest(r, l);
    return l->length;
}

static value call_cycle(jinja_run *r, function *f, const jinja_arguments *a)
{
    if (a->n == 0 || a->n_keywords)
        jinja_run_fail(r, "loop.cycle needs at least one item");
    return a->at[f->self.loop->index0 % a->n];
}

static value call_changed(jinja_run *r, function *f, const jinja_arguments *a)
{
    jinja_loop *l = f->self.loop;
    value now = value_list(r, VALUE_TUPLE, a->at, (size_t)a->n);
    if (l->changed.kind != VALUE_MISSING && value_equal(r, l->changed, now))
        return value_bool(false);
    l->changed = now;
    return value_bool(true);
}

value jinja_loop_attribute(jinja_run *r, jinja_loop *l, const str *name)
{
    value self = {.kind = VALUE_LOOP, .loop = l};
    if (str_is(name, "index0"))
        return value_int(l->index0);
    if (str_is(name, "index"))
        return value_int(l->index0 + 1);
    if (str_is(name, "first"))
        return value_bool(l->index0 == 0);
    if (str_is(name, "last"))
        return value_bool(!look_ahead(r, l));
    if (str_is(name, "length"))
        return value_int(jinja_loop_length(r, l));
    if (str_is(name, "revindex0"))
        return value_int(jinja_loop_length(r, l) - l->index0 - 1);
    if (str_is(name, "revindex"))
        return value_int(jinja_loop_length(r, l) - l->index0);
    if (str_is(name, "depth0"))
        return value_int(l->depth0);
    if (str_is(name, "depth"))
        return value_int(l->depth0 + 1);
    if (str_is(name, "previtem"))
        return l->index0 == 0 ? value_undefined(r, "there is no previous item") : l->before;
    if (str_is(name, "nextitem"))
        return look_ahead(r, l) ? l->ahead : value_undefined(r, "there is no next item");
    if (str_is(name, "cycle"))
        return value_function(r, "cycle", call_cycle, self);
    if (str_is(name, "changed"))
        return value_function(r, "changed", call_changed, self);
    return value_missing();
}

/* Runs the body for each item, then the else branch, if no item came to the end of the body. */
static flow run_loop(jinja_run *r, const jinja_node *code, scope *around, value over, int64_t depth0)
{
    jinja_loop *l = JINJA_NEW(r, jinja_loop);
    *l = (jinja_loop){.code = code,
                      .around = around,
                      .over = over,
                      .items = value_iter(r, over),
                      .index0 = -1,
                      .length = -1,
                      .depth0 = depth0};
    scope *s = scope_enter(r, around, &code->unset);
    bool completed = false;
    flow f = FLOW_ON;
    for (value item; f != FLOW_BREAK && next_item(r, l, &item);) {
        scope_restart(r, s, &code->unset);
        r->render->scope = s;
        scope_set(r, s, code->loop, (value){.kind = VALUE_LOOP, .loop = l});
        eval_assign(r, code->target, item);
        f = eval_body(r, &code->body);
        completed |= f == FLOW_ON;
        eval_at(r, code);
    }
    f = FLOW_ON;
    if (!completed && code->other.n) {
        scope_enter(r, around, &code->other_unset);
        f = eval_body(r, &code->other);
    }
    r->render->scope = around;
    return f;
}

flow jinja_loop_run(jinja_run *r, const jinja_node *code)
{
    value over = eval_node(r, code->a);
    eval_at(r, code);
    return run_loop(r, code, r->render->scope, over, 0);
}

value jinja_loop_recurse(jinja_run *r, jinja_loop *l, const jinja_arguments *a)
{
    text collected;
    value over;
    if (!l->code->recursive)
        jinja_run_fail(r, "only a loop marked \"recursive\" can be called");
    jinja_args_bind(r, "loop", a, 1, "iterable", &over);
    scope *here = r->render->scope;
    text *before = eval_collect(r, &collected);
    jinja_run_enter(r);
    run_loop(r, l->code, l->around, over, l->depth0 + 1);
    jinja_run_leave(r);
    eval_collect_end(r, before);
    r->render->scope = here;
    return text_value(&collected);
}
