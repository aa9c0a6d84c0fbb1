/* jinja_sequences.c - see jinja_sequences.h
 *
 * map, select and the like are generators, as in Jinja: nothing is computed, and nothing fails, before an item is asked
 * for, and they can be walked over once. */
#include "text/jinja_sequences.h"

#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_str.h"
#include "text/jinja_tests.h"

/* Attributes by path. */

static bool is_number(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return n > 0 && n < 18;
}

/* Takes one step of a path: an element, by index if the step is a number. */
static value follow(jinja_run *r, value item, const char *s, size_t n)
{
    int64_t i = 0;
    if (!is_number(s, n))
        return op_item(r, item, value_text(r, s, n));
    for (size_t k = 0; k < n; k++)
        i = i * 10 + (s[k] - '0');
    return op_item(r, item, value_int(i));
}

/* Returns item.a.b for "a.b". default_value, unless MISSING or none, replaces what is undefined on the way. */
static value follow_path(jinja_run *r, value item, value path, value default_value)
{
    bool has_default = default_value.kind != VALUE_MISSING && default_value.kind != VALUE_NONE;
    if (path.kind == VALUE_MISSING || path.kind == VALUE_NONE)
        return item;
    if (path.kind != VALUE_STRING) {
        item = op_item(r, item, path);
        return item.kind == VALUE_UNDEFINED && has_default ? default_value : item;
    }
    for (size_t at = 0; at <= path.s->n;) {
        const char *start = path.s->s + at, *dot = memchr(start, '.', path.s->n - at);
        size_t n = dot ? (size_t)(dot - start) : path.s->n - at;
        item = follow(r, item, start, n);
        if (item.kind == VALUE_UNDEFINED && has_default)
            item = default_value;
        at += n + 1;
    }
    return item;
}

/* Keys and order. */

static value fold_case(jinja_run *r, value v)
{
    return v.kind == VALUE_STRING ? value_str(str_in_case(r, v.s, CASE_LOWER)) : v;
}

static value key_of(jinja_run *r, const sort_key *k, value item)
{
    if (!k)
        return item;
    value key = follow_path(r, item, k->attribute, k->default_value);
    return k->ignores_case ? fold_case(r, key) : key;
}

/* Returns what to compare an item by. For the sort filter that is a list, of the key of each path in "a,b". */
static value keys_of(jinja_run *r, const sort_key *k, value item)
{
    if (!k || !k->several)
        return key_of(r, k, item);
    const jinja_list *paths = k->attribute.kind == VALUE_STRING
                                  ? str_split(r, k->attribute.s, str_of(r, ","), -1, false).list
                                  : &(jinja_list){.at = &k->attribute, .n = 1};
    value *keys = JINJA_NEW_ARRAY(r, value, paths->n);
    for (size_t i = 0; i < paths->n; i++)
        keys[i] = key_of(r, &(sort_key){.attribute = paths->at[i], .ignores_case = k->ignores_case}, item);
    return value_list(r, VALUE_LIST, keys, paths->n);
}

typedef struct { value key, item; } keyed;

/* Merge sort: stable, and comparisons may leave by jinja_run_fail(). */
static void sort(jinja_run *r, keyed *at, keyed *spare, size_t n)
{
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, k = half;
    sort(r, at, spare, half);
    sort(r, at + half, spare, n - half);
    memcpy(spare, at, n * sizeof *at);
    for (size_t out = 0; out < n; out++) {
        bool right = i == half || (k < n && value_compare(r, spare[k].key, spare[i].key, "<") == ORDER_LESS);
        at[out] = spare[right ? k++ : i++];
    }
}

static keyed *sort_by_key(jinja_run *r, const jinja_list *items, const sort_key *key)
{
    keyed *all = JINJA_NEW_ARRAY(r, keyed, items->n + 1), *spare = JINJA_NEW_ARRAY(r, keyed, items->n + 1);
    for (size_t i = 0; i < items->n; i++)
        all[i] = (keyed){keys_of(r, key, items->at[i]), items->at[i]};
    sort(r, all, spare, items->n);
    return all;
}

value sorted_list(jinja_run *r, const jinja_list *items, const sort_key *key)
{
    keyed *all = sort_by_key(r, items, key);
    value *at = JINJA_NEW_ARRAY(r, value, items->n);
    for (size_t i = 0; i < items->n; i++)
        at[i] = all[i].item;
    return value_list(r, VALUE_LIST, at, items->n);
}

static const jinja_list *reversed(jinja_run *r, const jinja_list *l)
{
    value *at = JINJA_NEW_ARRAY(r, value, l->n);
    jinja_run_spend(r, l->n);
    for (size_t i = 0; i < l->n; i++)
        at[i] = l->at[l->n - 1 - i];
    return value_list(r, VALUE_LIST, at, l->n).list;
}

/* Returns the items in descending order; equal items keep theirs, as in sorted(reverse=True). */
static value sorted_backwards(jinja_run *r, const jinja_list *items, const sort_key *key)
{
    value forward = sorted_list(r, reversed(r, items), key);
    return (value){.kind = VALUE_LIST, .list = reversed(r, forward.list)};
}

static value filter_sort(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind(r, "sort", a, 0, "reverse case_sensitive attribute", v);
    const sort_key key = {.attribute = v[2], .ignores_case = !value_is_true(r, v[1]), .several = true};
    const jinja_list *items = value_to_list(r, in);
    return value_is_true(r, v[0]) ? sorted_backwards(r, items, &key) : sorted_list(r, items, &key);
}

static value filter_dictsort(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind(r, "dictsort", a, 0, "case_sensitive by reverse", v);
    bool by_value = v[1].kind == VALUE_STRING && str_is(v[1].s, "value");
    if (v[1].kind != VALUE_MISSING && !by_value && !(v[1].kind == VALUE_STRING && str_is(v[1].s, "key")))
        jinja_run_fail(r, "dictsort sorts by \"key\" or by \"value\"");
    if (in.kind == VALUE_UNDEFINED)
        value_fail_undefined(r, in);
    if (in.kind != VALUE_DICT)
        jinja_run_fail(r, "only a dict can be sorted by dictsort, not '%s'", value_type(in));
    const sort_key key = {.attribute = value_int(by_value), .ignores_case = !value_is_true(r, v[0])};
    const jinja_list *items = dict_view(r, in.dict, VALUE_ITEMS).list;
    return value_is_true(r, v[2]) ? sorted_backwards(r, items, &key) : sorted_list(r, items, &key);
}

static value filter_groupby(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[3];
    jinja_args_bind(r, "groupby", a, 1, "attribute default case_sensitive", v);
    const sort_key key = {.attribute = v[0], .default_value = v[1], .ignores_case = !value_is_true(r, v[2])};
    const jinja_list *items = value_to_list(r, in);
    keyed *all = sort_by_key(r, items, &key);
    value *groups = JINJA_NEW_ARRAY(r, value, items->n);
    size_t n = 0;
    for (size_t i = 0, end; i < items->n; i = end) {
        for (end = i + 1; end < items->n && value_equal(r, all[i].key, all[end].key);)
            end++;
        value *members = JINJA_NEW_ARRAY(r, value, end - i);
        for (size_t k = i; k < end; k++)
            members[k - i] = all[k].item;
        groups[n] = value_pair(r, follow_path(r, all[i].item, v[0], v[1]), value_list(r, VALUE_LIST, members, end - i));
        ((jinja_list *)groups[n++].list)->is_group = true;
    }
    return value_list(r, VALUE_LIST, groups, n);
}

static value best(jinja_run *r, value in, const jinja_arguments *a, const char *name, value_order wanted)
{
    value v[2], item, found = value_missing(), found_key = value_missing();
    jinja_args_bind(r, name, a, 0, "case_sensitive attribute", v);
    const sort_key key = {.attribute = v[1], .ignores_case = !value_is_true(r, v[0])};
    for (iter *it = value_iter(r, in); iter_next(r, it, &item);) {
        value k = key_of(r, &key, item);
        if (found.kind != VALUE_MISSING && value_compare(r, k, found_key, wanted == ORDER_LESS ? "<" : ">") != wanted)
            continue;
        found = item;
        found_key = k;
    }
    return found.kind == VALUE_MISSING ? value_undefined(r, "min or max of nothing") : found;
}

static value filter_min(jinja_run *r, value in, const jinja_arguments *a)
{
    return best(r, in, a, "min", ORDER_LESS);
}
static value filter_max(jinja_run *r, value in, const jinja_arguments *a)
{
    return best(r, in, a, "max", ORDER_GREATER);
}

/* Generators. */

typedef struct {
    value over;                     /* what to iterate over; MISSING: iteration has begun */
    jinja_arguments a;              /* of map or select: for the filter or test itself */
    value attribute, default_value; /* MISSING: none */
    const str *name;                /* of the filter or test; NULL: none */
    bool wanted;                    /* select: true, reject: false */
    dict *seen;                     /* of unique */
    bool ignores_case;
} generator;

/* Gets the next item of the generator's input. A value that is false has none, even one that cannot be iterated. */
static bool next_inner(jinja_run *r, iter *it, value *out)
{
    generator *g = it->state;
    if (g->over.kind != VALUE_MISSING) {
        if (value_is_true(r, g->over))
            it->inner = value_iter(r, g->over);
        g->over = value_missing();
    }
    return it->inner && iter_next(r, it->inner, out);
}

static value make_generator(jinja_run *r, bool (*next)(jinja_run *, iter *, value *), const generator *g)
{
    generator *own = JINJA_NEW(r, generator);
    *own = *g;
    return value_iterator(r, "generator", next, NULL, own);
}

static jinja_arguments without_first(const jinja_arguments *a, int n)
{
    jinja_arguments rest = *a;
    rest.at += n;
    rest.n -= n;
    return rest;
}

static const str *name_argument(jinja_run *r, const char *what, value v)
{
    if (v.kind != VALUE_STRING)
        jinja_run_fail(r, "%s: the name must be a string, not %s", what, value_type(v));
    return v.s;
}

static bool next_mapped(jinja_run *r, iter *it, value *out)
{
    const generator *g = it->state;
    value item;
    if (!next_inner(r, it, &item))
        return false;
    if (!g->name) {
        *out = follow_path(r, item, g->attribute, g->default_value);
        return true;
    }
    filter_body *f = filter_find(g->name);
    if (!f)
        jinja_run_fail(r, "there is no filter '%.*s'", (int)g->name->n, g->name->s);
    *out = f(r, item, &g->a);
    return true;
}

static value filter_map(jinja_run *r, value in, const jinja_arguments *a)
{
    generator g = {.over = in, .a = *a};
    if (a->n > 0) {
        g.name = name_argument(r, "map", a->at[0]);
        g.a = without_first(a, 1);
    } else {
        value v[2];
        jinja_args_bind(r, "map", a, 1, "attribute default", v);
        g.attribute = v[0];
        g.default_value = v[1];
    }
    return make_generator(r, next_mapped, &g);
}

static bool next_selected(jinja_run *r, iter *it, value *out)
{
    const generator *g = it->state;
    test_body *test = g->name ? test_find(g->name) : NULL;
    while (next_inner(r, it, out)) {
        if (g->name && !test)
            jinja_run_fail(r, "there is no test '%.*s'", (int)g->name->n, g->name->s);
        value v = follow_path(r, *out, g->attribute, value_missing());
        if ((test ? test(r, v, &g->a) : value_is_true(r, v)) == g->wanted)
            return true;
    }
    return false;
}

static value select_items(jinja_run *r, value in, const jinja_arguments *a, bool by_attribute, bool wanted)
{
    generator g = {.over = in, .wanted = wanted};
    if (by_attribute && a->n == 0)
        jinja_run_fail(r, "the attribute's name is missing");
    if (by_attribute)
        g.attribute = a->at[0];
    int first = by_attribute;
    if (a->n > first)
        g.name = name_argument(r, "select", a->at[first]);
    g.a = without_first(a, a->n > first ? first + 1 : first);
    return make_generator(r, next_selected, &g);
}

static value filter_select(jinja_run *r, value in, const jinja_arguments *a)
{
    return select_items(r, in, a, false, true);
}
static value filter_reject(jinja_run *r, value in, const jinja_arguments *a)
{
    return select_items(r, in, a, false, false);
}
static value filter_selectattr(jinja_run *r, value in, const jinja_arguments *a)
{
    return select_items(r, in, a, true, true);
}
static value filter_rejectattr(jinja_run *r, value in, const jinja_arguments *a)
{
    return select_items(r, in, a, true, false);
}

static bool next_unique(jinja_run *r, iter *it, value *out)
{
    const generator *g = it->state;
    value unused;
    const sort_key key = {.attribute = g->attribute, .ignores_case = g->ignores_case};
    while (next_inner(r, it, out)) {
        value k = key_of(r, &key, *out);
        if (dict_get(r, g->seen, k, &unused))
            continue;
        dict_put(r, g->seen, k, value_none());
        return true;
    }
    return false;
}

static value filter_unique(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2];
    jinja_args_bind(r, "unique", a, 0, "case_sensitive attribute", v);
    generator g = {.over = in, .attribute = v[1], .ignores_case = !value_is_true(r, v[0]), .seen = dict_new(r, 8)};
    if (!value_is_iterable(in))
        jinja_run_fail(r, "'%s' cannot be iterated over", value_type(in));
    return make_generator(r, next_unique, &g);
}

/* Cut into parts. */

static int64_t count_argument(jinja_run *r, const char *what, value v)
{
    if (!value_is_int(v) || value_to_int(v) < 1)
        jinja_run_fail(r, "%s needs a number above 0", what);
    return value_to_int(v);
}

/* Returns l[from:to], filled up to n items with fill, unless it is MISSING or none. */
static value cut(jinja_run *r, const jinja_list *l, size_t from, size_t to, size_t n, value fill)
{
    bool fills = fill.kind != VALUE_MISSING && fill.kind != VALUE_NONE && n > to - from;
    value *at = JINJA_NEW_ARRAY(r, value, fills ? n : to - from);
    size_t k = 0;
    for (size_t i = from; i < to; i++)
        at[k++] = l->at[i];
    while (fills && k < n)
        at[k++] = fill;
    return value_list(r, VALUE_LIST, at, k);
}

static value filter_batch(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2];
    jinja_args_bind(r, "batch", a, 1, "linecount fill_with", v);
    size_t n = (size_t)count_argument(r, "batch", v[0]), count = 0;
    const jinja_list *l = value_to_list(r, in);
    value *parts = JINJA_NEW_ARRAY(r, value, l->n);
    for (size_t at = 0; at < l->n; at += n)
        parts[count++] = cut(r, l, at, at + n < l->n ? at + n : l->n, n, v[1]);
    return value_iterate_list(r, "generator", value_list(r, VALUE_LIST, parts, count));
}

static value filter_slice(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2];
    jinja_args_bind(r, "slice", a, 1, "slices fill_with", v);
    size_t n = (size_t)count_argument(r, "slice", v[0]), at = 0;
    const jinja_list *l = value_to_list(r, in);
    value *parts = JINJA_NEW_ARRAY(r, value, n);
    for (size_t i = 0; i < n; i++) {
        bool longer = i < l->n % n;
        size_t size = l->n / n + longer;
        parts[i] = cut(r, l, at, at + size, longer ? size : size + 1, v[1]);
        at += size;
    }
    return value_iterate_list(r, "generator", value_list(r, VALUE_LIST, parts, n));
}

/* Whole sequences. */

static value filter_list(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "list", a);
    return (value){.kind = VALUE_LIST, .list = value_to_list(r, in)};
}

static value filter_first(jinja_run *r, value in, const jinja_arguments *a)
{
    value item;
    jinja_args_none(r, "first", a);
    return iter_next(r, value_iter(r, in), &item) ? item : value_undefined(r, "the first of nothing");
}

static bool is_reversible(value v)
{
    return value_is_iterable(v) && v.kind != VALUE_ITERATOR;
}

static value filter_last(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "last", a);
    if (!is_reversible(in))
        jinja_run_fail(r, "'%s' has no last item", value_type(in));
    const jinja_list *l = value_to_list(r, in);
    return l->n ? l->at[l->n - 1] : value_undefined(r, "the last of nothing");
}

static value filter_reverse(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "reverse", a);
    if (in.kind == VALUE_STRING)
        return op_slice(r, in, value_missing(), value_missing(), value_int(-1));
    if (!value_is_iterable(in))
        jinja_run_fail(r, "only what can be iterated over can be reversed");
    value back = {.kind = VALUE_LIST, .list = reversed(r, value_to_list(r, in))};
    return is_reversible(in) ? value_iterate_list(r, "list_reverseiterator", back) : back;
}

static value filter_items(jinja_run *r, value in, const jinja_arguments *a)
{
    jinja_args_none(r, "items", a);
    if (in.kind != VALUE_DICT && in.kind != VALUE_UNDEFINED)
        jinja_run_fail(r, "only a dict has items");
    value items = in.kind == VALUE_DICT ? dict_view(r, in.dict, VALUE_ITEMS) : value_list(r, VALUE_LIST, NULL, 0);
    return value_iterate_list(r, "generator", items);
}

static value filter_join(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2], item;
    text out = {.r = r};
    bool first = true;
    jinja_args_bind(r, "join", a, 0, "d attribute", v);
    for (iter *it = value_iter(r, in); iter_next(r, it, &item); first = false) {
        if (!first && v[0].kind != VALUE_MISSING)
            value_write(&out, v[0]);
        value_write(&out, follow_path(r, item, v[1], value_missing()));
    }
    return text_value(&out);
}

static value filter_sum(jinja_run *r, value in, const jinja_arguments *a)
{
    value v[2], item;
    jinja_args_bind(r, "sum", a, 0, "attribute start", v);
    value sum = v[1].kind == VALUE_MISSING ? value_int(0) : v[1];
    if (sum.kind == VALUE_STRING)
        jinja_run_fail(r, "sum cannot begin with a string");
    for (iter *it = value_iter(r, in); iter_next(r, it, &item);)
        sum = op_binary(r, OP_ADD, sum, follow_path(r, item, v[0], value_missing()));
    return sum;
}

filter_body *sequence_filter_find(const str *name)
{
    static const struct {
        const char *name;
        filter_body *call;
    } filters[] = {
        {"batch", filter_batch},
        {"dictsort", filter_dictsort},
        {"first", filter_first},
        {"groupby", filter_groupby},
        {"items", filter_items},
        {"join", filter_join},
        {"last", filter_last},
        {"list", filter_list},
        {"map", filter_map},
        {"max", filter_max},
        {"min", filter_min},
        {"reject", filter_reject},
        {"rejectattr", filter_rejectattr},
        {"reverse", filter_reverse},
        {"select", filter_select},
        {"selectattr", filter_selectattr},
        {"slice", filter_slice},
        {"sort", filter_sort},
        {"sum", filter_sum},
        {"unique", filter_unique},
    };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (str_is(name, filters[i].name))
            return filters[i].call;
    return NULL;
}
