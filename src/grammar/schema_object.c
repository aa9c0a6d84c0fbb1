/* schema_object.c - objects of a schema: see schema_parts.h
 *
 * Properties come in the schema's order; those that are not required may be left out. Behind them come undeclared ones
 * ("others"), where the schema allows them; the declared names are subtracted from the language of their names. */
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema_parts.h"

#define MAX_PATTERNS 4 /* every subset of them is a class of names */

typedef struct {
    const char *name;
    size_t n;
    bool required, never;
    all_of must;
} property;

typedef struct {
    const json_t *owner, *is; /* the schema that has the pattern; the schema of properties that match it */
    const dfa *names;
} property_pattern;

typedef struct {
    schema *s;
    const all_of *list;
    property *at; /* [n] in order */
    int n, cap;
    property_pattern pattern[MAX_PATTERNS];
    int n_patterns;
    int min, max; /* properties */
    bool open;    /* there may be others: asked for, or needed for `min`, or no property is declared */
} object;

static property *find_property(object *o, const char *name, size_t n)
{
    for (int i = 0; i < o->n; i++) {
        build_step(o->s->b, 1);
        if (o->at[i].n == n && memcmp(o->at[i].name, name, n) == 0)
            return &o->at[i];
    }
    o->at = build_grow(o->s->b, o->at, &o->cap, o->n + 1, sizeof *o->at);
    o->at[o->n] = (property){.name = name, .n = n};
    return &o->at[o->n++];
}

static const json_t *object_member(schema *s, const json_t *m, const char *keyword)
{
    const json_t *v = json_object_get(m, keyword);
    if (v && !json_is_object(v))
        build_fail(s->b, "\"%s\" must be an object", keyword);
    return v;
}

static void read_names(object *o, const json_t *m)
{
    const json_t *properties = object_member(o->s, m, "properties"), *required = json_object_get(m, "required");
    const char *name;
    size_t n;
    json_t *ignored;
    json_object_keylen_foreach((json_t *)properties, name, n, ignored) find_property(o, name, n);
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_is_string(json_array_get(required, i)))
            build_fail(o->s->b, "\"required\" must be a list of names");
}

static void read_required(object *o, const json_t *m)
{
    const json_t *required = json_object_get(m, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        find_property(o, json_string_value(name), json_string_length(name))->required = true;
    }
}

static void read_patterns(object *o, const json_t *m)
{
    const json_t *patterns = object_member(o->s, m, "patternProperties");
    const char *text;
    size_t n;
    json_t *is;
    json_object_keylen_foreach((json_t *)patterns, text, n, is)
    {
        if (o->n_patterns == MAX_PATTERNS)
            build_fail(o->s->b, "more than %d \"patternProperties\" are not served", MAX_PATTERNS);
        o->pattern[o->n_patterns++] = (property_pattern){m, is, regex_language(o->s->b, text, n, REGEX_SOMEWHERE)};
    }
}

/* Adds what one schema demands of a property: by its name, by patterns, or as one of the others. */
static void add_demands(object *o, const json_t *m, const property *p, all_of *must)
{
    const json_t *own = json_object_getn(json_object_get(m, "properties"), p->name, p->n);
    bool named = own != NULL;
    if (own)
        all_of_add(o->s, must, (part){.s = own});
    for (int i = 0; i < o->n_patterns; i++)
        if (o->pattern[i].owner == m && dfa_matches(o->pattern[i].names, p->name, p->n)) {
            all_of_add(o->s, must, (part){.s = o->pattern[i].is});
            named = true;
        }
    const json_t *others = json_object_get(m, "additionalProperties");
    if (!named && others)
        all_of_add(o->s, must, (part){.s = others});
}

static bool may_be_named(object *o, const json_t *m, const property *p)
{
    const json_t *names = json_object_get(m, "propertyNames");
    return !names || schema_validates(o->s, names, build_string(o->s->b, p->name, p->n)) == VERDICT_VALID;
}

/* Gathers what all schemas demand of a property, and whether it can never be there. */
static void gather_demands(object *o, property *p)
{
    for (int i = 0; i < o->list->n; i++) {
        const json_t *m = o->list->at[i].s;
        if (o->list->at[i].not_by)
            continue;
        add_demands(o, m, p, &p->must);
        p->never = p->never || !may_be_named(o, m, p);
    }
    for (int i = 0; i < p->must.n; i++)
        p->never = p->never || json_is_false(p->must.at[i].s);
}

static object read_object(schema *s, const all_of *list)
{
    object o = {.s = s, .list = list, .max = ANY_COUNT};
    bool closed = false, said = false;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < list->n; i++) {
            const json_t *m = list->at[i].s;
            if (list->at[i].not_by)
                continue;
            if (pass == 0) {
                read_names(&o, m);
                read_patterns(&o, m);
                int lo = schema_count(s, m, "minProperties", 0), hi = schema_count(s, m, "maxProperties", ANY_COUNT);
                o.min = lo > o.min ? lo : o.min;
                o.max = hi < o.max ? hi : o.max;
                const json_t *others = json_object_get(m, "additionalProperties");
                closed = closed || (json_is_false(others) && !json_object_get(m, "patternProperties"));
                said = said || others || json_object_get(m, "patternProperties") || json_object_get(m, "propertyNames");
            } else {
                read_required(&o, m);
            }
        }
    for (int i = 0; i < o.n; i++)
        gather_demands(&o, &o.at[i]);
    o.open = !closed && (said || o.n == 0 || o.min > o.n);
    return o;
}

/* Returns the names of a class: undeclared ones that match all patterns of the set and no other pattern. NULL: any. */
static const dfa *names_of(object *o, unsigned set)
{
    build *b = o->s->b;
    const dfa *x = NULL;
    for (int i = 0; i < o->n_patterns; i++) {
        const dfa *all = x ? x : json_rule_all_texts(b);
        x = set >> i & 1 ? dfa_and(b, all, o->pattern[i].names) : dfa_minus(b, all, o->pattern[i].names);
    }
    all_of names = {0};
    for (int i = 0; i < o->list->n; i++) {
        const json_t *is = json_object_get(o->list->at[i].s, "propertyNames");
        if (is && !o->list->at[i].not_by)
            all_of_add(o->s, &names, (part){.s = is});
    }
    const dfa *allowed = schema_names(o->s, &names);
    x = x && allowed ? dfa_and(b, x, allowed) : x ? x : allowed;
    const expr *declared = expr_never(b);
    for (int i = 0; i < o->n; i++)
        declared = expr_either(b, declared, expr_text(b, o->at[i].name, o->at[i].n));
    return o->n ? dfa_minus(b, x ? x : json_rule_all_texts(b), dfa_of(b, declared)) : x;
}

/* Adds what a property must obey whose name is of the class. False: there may be no such property. */
static bool class_demands(object *o, unsigned set, all_of *must)
{
    for (int i = 0; i < o->list->n; i++) {
        const json_t *m = o->list->at[i].s, *others = json_object_get(m, "additionalProperties");
        bool named = false;
        if (o->list->at[i].not_by)
            continue;
        for (int k = 0; k < o->n_patterns; k++)
            if (o->pattern[k].owner == m && (set >> k & 1)) {
                all_of_add(o->s, must, (part){.s = o->pattern[k].is});
                named = true;
            }
        if (!named && others)
            all_of_add(o->s, must, (part){.s = others});
    }
    for (int i = 0; i < must->n; i++)
        if (json_is_false(must->at[i].s))
            return false;
    return true;
}

static const expr *pair_of(schema *s, const expr *name, const expr *value)
{
    const expr *colon = expr_concat(s->b, expr_str(s->b, ":"), json_rule_blank(&s->json));
    return expr_sequence(s->b, 3, (const expr *[]){name, colon, value});
}

/* Returns any one undeclared property; NULL: there may be none. */
static const expr *others_of(object *o)
{
    schema *s = o->s;
    const expr *x = NULL;
    for (unsigned set = 0; o->open && set < 1u << o->n_patterns; set++) {
        all_of must = {0};
        if (!class_demands(o, set, &must))
            continue;
        const dfa *names = names_of(o, set);
        if (names && dfa_is_empty(s->b, names))
            continue;
        const expr *name = names ? json_rule_string_of(&s->json, names) : json_rule_string(&s->json);
        x = expr_either(s->b, x, pair_of(s, name, schema_value(s, &must)));
    }
    return x;
}

/* The paths through the properties. Nodes count those written, up to `cap`; more need not be counted. */
typedef struct {
    object *o;
    graph g;
    const expr *separator;
    int cap;
    int *at;
} property_writer; /* at: [cap + 1] nodes */

/* Adds an edge with the label from each of w->at to the node of `next` that counts one more. */
static void add_edges(property_writer *w, const expr *label, int *next)
{
    int begin = -1, done = -1;
    for (int c = 0; c <= w->cap; c++) {
        int to = c < w->cap ? c + 1 : c;
        if (w->cap > 1) { /* counted: the label, a call of a rule, is copied for each node */
            graph_edge(&w->g, w->at[c], next[to], c ? expr_concat(w->o->s->b, w->separator, label) : label);
            continue;
        }
        if (begin < 0) {
            begin = graph_node(&w->g);
            done = graph_node(&w->g);
            graph_edge(&w->g, begin, done, label);
            graph_edge(&w->g, done, next[w->cap], NULL);
        }
        graph_edge(&w->g, w->at[c], begin, c ? w->separator : NULL);
    }
}

static int *new_nodes(property_writer *w)
{
    int *node = BUILD_ARRAY(w->o->s->b, int, w->cap + 1);
    for (int i = 0; i <= w->cap; i++)
        node[i] = graph_node(&w->g);
    return node;
}

static const expr *as_rule(property_writer *w, const expr *x)
{
    return w->cap > 1 ? expr_rule(w->o->s->b, rules_add(w->o->s->r, "a property", x)) : x;
}

static void write_property(property_writer *w, const property *p)
{
    schema *s = w->o->s;
    int *next = new_nodes(w);
    for (int c = 0; !p->required && c <= w->cap; c++)
        graph_edge(&w->g, w->at[c], next[c], NULL);
    if (!p->never)
        add_edges(w, as_rule(w, pair_of(s, schema_text(s, p->name, p->n), schema_value(s, &p->must))), next);
    w->at = next;
}

/* Adds others, as long as there may be more. Two may have the same name, so only the first is sure to count for o->min.
 */
static void write_others(property_writer *w, const expr *others, int end)
{
    object *o = w->o;
    bool bounded = o->max != ANY_COUNT;
    const expr *one = as_rule(w, others);
    for (int c = 0; c <= w->cap && !bounded && w->cap <= 1; c++) {
        int begin = graph_node(&w->g), done = graph_node(&w->g);
        graph_edge(&w->g, w->at[c], begin, c ? w->separator : NULL);
        graph_edge(&w->g, begin, done, one);
        graph_edge(&w->g, done, begin, w->separator);
        graph_edge(&w->g, done, end, NULL);
        if (c == 0 && w->cap == 1) { /* the same loop serves both */
            graph_edge(&w->g, w->at[1], begin, w->separator);
            break;
        }
    }
    for (int c = 0; c <= w->cap && (bounded || w->cap > 1); c++) {
        if (c + 1 < o->min)
            continue;
        int at = w->at[c], most = bounded ? o->max - c : 1;
        for (int k = 0; k < most; k++) {
            int next = graph_node(&w->g);
            graph_edge(&w->g, at, next, c + k ? expr_concat(o->s->b, w->separator, one) : one);
            graph_edge(&w->g, next, end, NULL);
            at = next;
        }
        if (!bounded)
            graph_edge(&w->g, at, at, expr_concat(o->s->b, w->separator, one));
    }
}

static void check_counts(object *o, const expr *others)
{
    int most = others ? 1 : 0, required = 0;
    for (int i = 0; i < o->n; i++) {
        most += !o->at[i].never;
        required += o->at[i].required;
    }
    if (o->min > most)
        build_fail(o->s->b, "\"minProperties\" %d is not served: at most %d properties are sure to be different",
                   o->min, most);
    if (o->max != ANY_COUNT && o->max > 1000 && others)
        build_fail(o->s->b, "\"maxProperties\" is served up to 1000");
    if (o->min <= required)
        o->min = 0;
    if (!others && o->max >= o->n)
        o->max = ANY_COUNT;
}

const expr *schema_object(schema *s, const all_of *list)
{
    build *b = s->b;
    object *o = BUILD_NEW(b, object);
    *o = read_object(s, list);
    const expr *others = others_of(o), *blank = json_rule_blank(&s->json);
    check_counts(o, others);
    if (o->n == 0 && others && o->min <= 1 && o->max == ANY_COUNT && list->n == 0)
        return json_rule_object(&s->json);
    property_writer w = {.o = o, .g = graph_new(b), .separator = expr_concat(b, expr_str(b, ","), blank), .cap = 1};
    if (o->min > 1 || o->max != ANY_COUNT)
        w.cap = o->n > 1 ? o->n : 2;
    w.at = new_nodes(&w);
    int end = graph_node(&w.g), closing = graph_node(&w.g);
    graph_edge(&w.g, 0, w.at[0], expr_concat(b, expr_str(b, "{"), blank));
    for (int i = 0; i < o->n; i++)
        write_property(&w, &o->at[i]);
    for (int c = 0; c <= w.cap; c++)
        if (c >= o->min && c <= o->max)
            graph_edge(&w.g, w.at[c], end, NULL);
    if (others)
        write_others(&w, others, end);
    graph_edge(&w.g, end, closing, blank);
    graph_edge(&w.g, closing, 1, expr_str(b, "}"));
    return graph_done(&w.g);
}
