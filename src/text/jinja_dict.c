/* jinja_dict.c - the dicts of jinja_value.h: entries in order, and an index by hash where there are many */
#include <math.h>
#include <string.h>

#include "text/jinja_value.h"

dict *dict_new(jinja_run *r, size_t cap)
{
    dict *d = JINJA_NEW(r, dict);
    *d = (dict){.cap = cap};
    d->at = jinja_run_alloc_array(r, cap, sizeof *d->at);
    return d;
}

value value_dict(const dict *d)
{
    return (value){.kind = VALUE_DICT, .dict = (dict *)d};
}

static uint64_t hash_bytes(const void *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const unsigned char *p = bytes; n > 0; n--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

value dict_unhashable_part(jinja_run *r, value key)
{
    value part = value_missing();
    switch (key.kind) {
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_KEYS:
    case VALUE_ITEMS: return key;
    case VALUE_TUPLE:
        jinja_run_enter(r);
        for (size_t i = 0; i < key.list->n && part.kind == VALUE_MISSING; i++)
            part = dict_unhashable_part(r, key.list->at[i]);
        jinja_run_leave(r);
        return part;
    default: return part;
    }
}

void dict_check_key(jinja_run *r, value key)
{
    value part = dict_unhashable_part(r, key);
    if (part.kind != VALUE_MISSING)
        jinja_run_fail(r, "unhashable type: '%s'", value_type(part));
}

/* Hashes a range by its items, which are equal in equal ranges: the step of a range of none or one does not count. */
static uint64_t hash_range(const jinja_range *x)
{
    int64_t n = jinja_range_length(x);
    const int64_t parts[] = {n, n > 0 ? x->start : 0, n > 1 ? x->step : 0};
    return hash_bytes(parts, sizeof parts);
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. The value must be hashable. */
static uint64_t hash(jinja_run *r, value v)
{
    uint64_t h = 0;
    switch (v.kind) {
    case VALUE_STRING: jinja_run_spend(r, v.s->n / 64); return hash_bytes(v.s->s, v.s->n);
    case VALUE_FLOAT:
        if (v.f == floor(v.f) && value_float_fits(v.f))
            return hash(r, value_int((int64_t)v.f));
        return hash_bytes(&v.f, sizeof v.f);
    case VALUE_BOOL:
    case VALUE_INT: h = (uint64_t)value_to_int(v); return hash_bytes(&h, sizeof h);
    case VALUE_TUPLE:
        jinja_run_enter(r);
        for (size_t i = 0; i < v.list->n; i++)
            h = h * 31 + hash(r, v.list->at[i]);
        jinja_run_leave(r);
        return h;
    case VALUE_RANGE: return hash_range(v.range);
    case VALUE_UNDEFINED:
    case VALUE_NONE: return hash_bytes(&v.kind, sizeof v.kind);
    default: return hash_bytes(&v.list, sizeof(void *)); /* compared by address */
    }
}

static void index_entry(jinja_run *r, dict *d, size_t i)
{
    size_t at = hash(r, d->at[i].key) % d->index_size;
    while (d->index[at] >= 0)
        at = (at + 1) % d->index_size;
    d->index[at] = (int32_t)i;
}

/* Indexes a dict of many entries, when a key is first looked for. */
static void make_index(jinja_run *r, dict *d)
{
    d->index_size = 3 * d->n + 1;
    d->index = JINJA_NEW_ARRAY(r, int32_t, d->index_size);
    memset(d->index, 0xff, d->index_size * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++)
        index_entry(r, d, i);
}

/* Returns the position of the key; n: it is not there. Fails for an unhashable key even if no hash is needed. */
static size_t find(jinja_run *r, dict *d, value key)
{
    enum { FEW = 8 };
    dict_check_key(r, key);
    if (d->n <= FEW) {
        size_t i = 0;
        while (i < d->n && !value_equal(r, d->at[i].key, key))
            i++;
        return i;
    }
    if (!d->index)
        make_index(r, d);
    for (size_t at = hash(r, key) % d->index_size; d->index[at] >= 0; at = (at + 1) % d->index_size)
        if (value_equal(r, d->at[d->index[at]].key, key))
            return (size_t)d->index[at];
    return d->n;
}

void dict_add(jinja_run *r, dict *d, value key, value v)
{
    d->at = jinja_run_grow(r, d->at, d->n, &d->cap, 8, sizeof *d->at);
    d->at[d->n].key = key;
    d->at[d->n++].value = v;
    if (d->index && 2 * d->n > d->index_size)
        make_index(r, d);
    else if (d->index)
        index_entry(r, d, d->n - 1);
}

void dict_put(jinja_run *r, dict *d, value key, value v)
{
    size_t i = find(r, d, key);
    if (i < d->n)
        d->at[i].value = v;
    else
        dict_add(r, d, key, v);
}

bool dict_get(jinja_run *r, const dict *d, value key, value *out)
{
    size_t i = find(r, (dict *)d, key); /* which may make the index */
    if (i == d->n)
        return false;
    *out = d->at[i].value;
    return true;
}

bool dict_get_name(jinja_run *r, const dict *d, const char *key, value *out)
{
    const str name = {.s = key, .n = strlen(key), .n_chars = UNCOUNTED};
    return dict_get(r, d, value_str(&name), out);
}

value dict_view(jinja_run *r, const dict *d, value_kind kind)
{
    value *at = JINJA_NEW_ARRAY(r, value, d->n);
    jinja_run_spend(r, d->n);
    for (size_t i = 0; i < d->n; i++)
        at[i] = kind == VALUE_VALUES  ? d->at[i].value
                : kind == VALUE_ITEMS ? value_pair(r, d->at[i].key, d->at[i].value)
                                      : d->at[i].key;
    return value_list(r, kind, at, d->n);
}
