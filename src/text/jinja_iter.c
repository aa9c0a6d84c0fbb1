/* jinja_iter.c - the iterators of jinja_value.h */
#include "text/jinja_value.h"
#include "text/utf8.h"

static bool next_of_list(jinja_run *r, iter *it, value *out)
{
    (void)r;
    if (it->at == it->over.list->n)
        return false;
    *out = it->over.list->at[it->at++];
    return true;
}

static bool next_char(jinja_run *r, iter *it, value *out)
{
    const char *p = it->over.s->s + it->at, *start = p;
    if (it->at == it->over.s->n)
        return false;
    utf8_next(&p);
    *out = value_text(r, start, (size_t)(p - start));
    it->at += (size_t)(p - start);
    return true;
}

static bool next_of_range(jinja_run *r, iter *it, value *out)
{
    (void)r;
    if (it->at == (size_t)jinja_range_length(it->over.range))
        return false;
    *out = value_int(jinja_range_item(it->over.range, (int64_t)it->at++));
    return true;
}

static bool next_of_nothing(jinja_run *r, iter *it, value *out)
{
    (void)r;
    (void)it;
    (void)out;
    return false;
}

bool value_is_iterable(value v)
{
    return v.kind == VALUE_ITERATOR || (value_has_length(v) && v.kind != VALUE_LOOP);
}

iter *value_iter(jinja_run *r, value v)
{
    if (v.kind == VALUE_ITERATOR)
        return v.iter;
    if (!value_is_iterable(v))
        jinja_run_fail(r, "'%s' cannot be iterated over", value_type(v));
    iter *it = JINJA_NEW(r, iter);
    *it = (iter){.next = next_of_list, .over = v, .type = "iterator"};
    if (v.kind == VALUE_DICT)
        it->over = dict_view(r, v.dict, VALUE_LIST);
    else if (v.kind == VALUE_STRING)
        it->next = next_char;
    else if (v.kind == VALUE_RANGE)
        it->next = next_of_range;
    else if (v.kind == VALUE_UNDEFINED)
        it->next = next_of_nothing;
    return it;
}

value value_iterate_list(jinja_run *r, const char *type, value items)
{
    iter *it = JINJA_NEW(r, iter);
    *it = (iter){.next = next_of_list, .over = items, .type = type};
    return (value){.kind = VALUE_ITERATOR, .iter = it};
}

bool iter_next(jinja_run *r, iter *it, value *out)
{
    jinja_run_spend(r, 1);
    return it->next(r, it, out);
}

const jinja_list *value_to_list(jinja_run *r, value v)
{
    if (value_is_sequence(v) || v.kind == VALUE_KEYS || v.kind == VALUE_VALUES || v.kind == VALUE_ITEMS)
        return v.list;
    size_t n = 0, cap = 0;
    value *at = NULL, item;
    for (iter *it = value_iter(r, v); iter_next(r, it, &item);) {
        at = jinja_run_grow(r, at, n, &cap, 8, sizeof *at);
        at[n++] = item;
    }
    return value_list(r, VALUE_LIST, at, n).list;
}
