/* schema_array.c - arrays of a schema: see schema_parts.h */
#include "grammar/schema_parts.h"

typedef struct {
    int min, max; /* items */
    int n_first;  /* items that have schemas of their own */
    bool said;    /* there is a schema for the others */
} item_bounds;

/* Returns the list of schemas for the first items: "prefixItems", or "items" in old drafts. NULL: none. */
static const json_t *first_items(const json_t *m)
{
    const json_t *old = json_object_get(m, "items"), *first = json_object_get(m, "prefixItems");
    return first ? first : json_is_array(old) ? old : NULL;
}

static const json_t *other_items(const json_t *m)
{
    const json_t *items = json_object_get(m, "items");
    return json_is_array(items) ? json_object_get(m, "additionalItems") : items;
}

static void refuse_unique(schema *s, const json_t *m, int max)
{
    if (json_is_true(json_object_get(m, "uniqueItems")) && max > 1)
        build_fail(s->b, "\"uniqueItems\" is not served");
}

static item_bounds bounds_of(schema *s, const all_of *list)
{
    item_bounds x = {.max = ANY_COUNT};
    for (int i = 0; i < list->n; i++) {
        const json_t *m = list->at[i].s, *first = first_items(m);
        if (list->at[i].not_by)
            continue;
        if (first && !json_is_array(first))
            build_fail(s->b, "\"prefixItems\" must be a list of schemas");
        int lo = schema_count(s, m, "minItems", 0), hi = schema_count(s, m, "maxItems", ANY_COUNT),
            n = (int)json_array_size(first);
        x.min = lo > x.min ? lo : x.min;
        x.max = hi < x.max ? hi : x.max;
        x.n_first = n > x.n_first ? n : x.n_first;
        x.said = x.said || other_items(m);
    }
    for (int i = 0; i < list->n; i++)
        refuse_unique(s, list->at[i].s, list->at[i].not_by ? 0 : x.max);
    if (x.n_first > 0 && !x.said && x.min <= x.n_first && x.max > x.n_first)
        x.max = x.n_first; /* nobody asked for more */
    return x;
}

/* Returns the schemas that item number k must obey. *never: one of them is `false`, so there may be no such item. */
static all_of item_of(schema *s, const all_of *list, int k, bool *never)
{
    all_of item = {0};
    *never = false;
    for (int i = 0; i < list->n; i++) {
        const json_t *m = list->at[i].s, *first = first_items(m);
        const json_t *is = k < (int)json_array_size(first) ? json_array_get(first, (size_t)k) : other_items(m);
        if (list->at[i].not_by || !is)
            continue;
        *never = *never || json_is_false(is);
        all_of_add(s, &item, (part){.s = is});
    }
    return item;
}

/* A node is the state after some number of items. The separator comes before each item but the first. */
typedef struct {
    schema *s;
    graph g;
    const expr *separator;
} item_writer;

static int add_item(item_writer *w, int after, bool first, const expr *item)
{
    int next = graph_node(&w->g);
    graph_edge(&w->g, after, next, first ? item : expr_concat(w->s->b, w->separator, item));
    return next;
}

/* Adds one or more items, as a loop with a single entry, so that the item is written once. */
static void add_loop(item_writer *w, int after, bool first, const expr *item, int end)
{
    int begin = graph_node(&w->g), done = graph_node(&w->g);
    graph_edge(&w->g, after, begin, first ? NULL : w->separator);
    graph_edge(&w->g, begin, done, item);
    graph_edge(&w->g, done, begin, w->separator);
    graph_edge(&w->g, done, end, NULL);
}

static void write_items(item_writer *w, const all_of *list, item_bounds x, int begin, int end)
{
    schema *s = w->s;
    int at = begin, k = 0;
    bool never;
    for (; k < x.n_first && k < x.max; k++) {
        all_of item = item_of(s, list, k, &never);
        if (k >= x.min)
            graph_edge(&w->g, at, end, NULL);
        if (never)
            return;
        at = add_item(w, at, k == 0, schema_value(s, &item));
    }
    if (k >= x.min)
        graph_edge(&w->g, at, end, NULL);
    all_of rest = item_of(s, list, k, &never);
    if (k >= x.max || never)
        return;
    if (x.max != ANY_COUNT && x.max > 20000)
        build_fail(s->b, "\"maxItems\" is served up to 20000");
    if (x.min > 20000)
        build_fail(s->b, "\"minItems\" is served up to 20000");
    bool many = x.min > k || x.max != ANY_COUNT;
    const expr *item = many ? schema_rule(s, &rest) : schema_value(s, &rest);
    for (; k < (x.max == ANY_COUNT ? x.min : x.max); k++) {
        at = add_item(w, at, k == 0, item);
        if (k + 1 >= x.min)
            graph_edge(&w->g, at, end, NULL);
    }
    if (x.max == ANY_COUNT)
        add_loop(w, at, k == 0, item, end);
}

const expr *schema_array(schema *s, const all_of *list)
{
    build *b = s->b;
    item_bounds x = bounds_of(s, list);
    item_writer w = {
        .s = s, .g = graph_new(b), .separator = expr_concat(b, expr_str(b, ","), json_rule_blank(&s->json))};
    int begin = graph_node(&w.g), items = graph_node(&w.g), end = graph_node(&w.g), closing = graph_node(&w.g);
    graph_edge(&w.g, 0, begin, expr_concat(b, expr_str(b, "["), json_rule_blank(&s->json)));
    graph_edge(&w.g, begin, items, NULL);
    write_items(&w, list, x, items, end);
    graph_edge(&w.g, end, closing, json_rule_blank(&s->json));
    graph_edge(&w.g, closing, 1, expr_str(b, "]"));
    return graph_done(&w.g);
}
