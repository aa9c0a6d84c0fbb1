/* schema.c - see schema.h and schema_parts.h */
#include "grammar/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/number.h"
#include "grammar/schema_parts.h"

void all_of_add(schema *s, all_of *list, part p)
{
    build_step(s->b, list->n);
    for (int i = 0; i < list->n; i++)
        if (list->at[i].s == p.s && list->at[i].not_by == p.not_by) {
            list->in_circle = list->in_circle || (list->at[i].done & ~p.done & (DONE_ANY | DONE_ONE));
            return;
        }
    list->at = build_grow(s->b, list->at, &list->cap, list->n + 1, sizeof *list->at);
    list->at[list->n++] = p;
}

all_of all_of_one(schema *s, const json_t *member)
{
    all_of list = {0};
    all_of_add(s, &list, (part){.s = member});
    return list;
}

static all_of copy_list(schema *s, const all_of *list)
{
    all_of copy = {.n = list->n};
    build_step(s->b, list->n);
    copy.at = build_grow(s->b, NULL, &copy.cap, list->n, sizeof *copy.at);
    if (list->n > 0)
        memcpy(copy.at, list->at, (size_t)list->n * sizeof *copy.at);
    return copy;
}

int schema_count(schema *s, const json_t *member, const char *keyword, int otherwise)
{
    const json_t *v = json_object_get(member, keyword);
    double x = json_number_value(v);
    if (!v)
        return otherwise;
    if (!json_is_number(v) || x < 0 || x != floor(x))
        build_fail(s->b, "\"%s\" must be a whole number that is not negative", keyword);
    return x > ANY_COUNT ? ANY_COUNT : (int)x;
}

/* References. */

/* Returns the member that a part of a JSON pointer names: of an object by key, of an array by index; NULL: none. */
static const json_t *step_to(schema *s, const json_t *from, const char *name, size_t n)
{
    char *plain = build_text(s->b, name, n);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '~' && i + 1 < n && (name[i + 1] == '0' || name[i + 1] == '1'))
            plain[len++] = name[++i] == '0' ? '~' : '/';
        else if (name[i] == '%' && i + 2 < n)
            plain[len++] = (char)strtol((char[]){name[i + 1], name[i + 2], 0}, NULL, 16), i += 2;
        else
            plain[len++] = name[i];
    }
    plain[len] = 0;
    if (json_is_array(from))
        return json_array_get(from, (size_t)strtoul(plain, NULL, 10));
    return json_object_getn(from, plain, len);
}

static const json_t *find_anchor(schema *s, const json_t *in, const char *name)
{
    const json_t *found = NULL;
    const char *key, *anchor = json_string_value(json_object_get(in, "$anchor")),
                     *id = json_string_value(json_object_get(in, "$id"));
    build_enter(s->b);
    if ((anchor && strcmp(anchor, name) == 0) ||
        (id && (strcmp(id, name) == 0 || (id[0] == '#' && strcmp(id + 1, name) == 0))))
        found = in;
    json_t *child;
    size_t i;
    if (json_is_object(in))
        json_object_foreach((json_t *)in, key, child) found = found ? found : find_anchor(s, child, name);
    if (json_is_array(in))
        json_array_foreach((json_t *)in, i, child) found = found ? found : find_anchor(s, child, name);
    build_leave(s->b);
    return found;
}

const json_t *schema_resolve(schema *s, const json_t *member)
{
    const char *ref = json_string_value(json_object_get(member, "$ref"));
    if (!ref)
        build_fail(s->b, "\"$ref\" must be a string");
    const json_t *at = s->root;
    const char *id = json_string_value(json_object_get(s->root, "$id")), *p = ref;
    if (id && strncmp(ref, id, strlen(id)) == 0)
        p += strlen(id);
    if (*p == 0 && p > ref)
        return s->root;
    if (*p != '#')
        at = find_anchor(s, s->root, p);
    else if (p[1] && p[1] != '/')
        at = find_anchor(s, s->root, p + 1);
    else
        for (p++; *p == '/' && at;) {
            size_t n = strcspn(p + 1, "/");
            at = step_to(s, at, p + 1, n);
            p += 1 + n;
        }
    if (!json_is_object(at) && !json_is_boolean(at))
        build_fail(s->b, "\"$ref\" \"%.100s\" leads to no schema here", ref);
    return at;
}

bool schema_flatten(schema *s, const all_of *list, all_of *out)
{
    bool referred = false;
    *out = copy_list(s, list);
    for (int i = 0; i < out->n; i++) {
        part p = out->at[i];
        build_step(s->b, 1);
        if (json_is_object(p.s) && !p.not_by && !(p.done & DONE_REF) && json_object_get(p.s, "$ref")) {
            out->at[i].done |= DONE_REF;
            referred = true;
            all_of_add(s, out, (part){.s = schema_resolve(s, p.s)});
        }
        const json_t *all = json_object_get(p.s, "allOf");
        if (!all || p.not_by || (p.done & DONE_ALL))
            continue;
        out->at[i].done |= DONE_ALL;
        if (!json_is_array(all))
            build_fail(s->b, "\"allOf\" must be a list of schemas");
        for (size_t k = 0; k < json_array_size(all); k++)
            all_of_add(s, out, (part){.s = json_array_get(all, k)});
    }
    return referred;
}

all_of schema_flatten_one(schema *s, const json_t *member)
{
    all_of one = all_of_one(s, member), flat;
    schema_flatten(s, &one, &flat);
    return flat;
}

/* Keywords. */

static const struct {
    const char *name;
    unsigned types;
    bool served;
} keywords[] = {
    {"type", 0, true},
    {"enum", 0, true},
    {"const", 0, true},
    {"minimum", TYPE_NUMBER, true},
    {"maximum", TYPE_NUMBER, true},
    {"exclusiveMinimum", TYPE_NUMBER, true},
    {"exclusiveMaximum", TYPE_NUMBER, true},
    {"multipleOf", TYPE_NUMBER, true},
    {"minLength", TYPE_STRING, true},
    {"maxLength", TYPE_STRING, true},
    {"pattern", TYPE_STRING, true},
    {"format", TYPE_STRING, true},
    {"items", TYPE_ARRAY, true},
    {"prefixItems", TYPE_ARRAY, true},
    {"additionalItems", TYPE_ARRAY, true},
    {"minItems", TYPE_ARRAY, true},
    {"maxItems", TYPE_ARRAY, true},
    {"uniqueItems", TYPE_ARRAY, true},
    {"properties", TYPE_OBJECT, true},
    {"required", TYPE_OBJECT, true},
    {"additionalProperties", TYPE_OBJECT, true},
    {"patternProperties", TYPE_OBJECT, true},
    {"propertyNames", TYPE_OBJECT, true},
    {"minProperties", TYPE_OBJECT, true},
    {"maxProperties", TYPE_OBJECT, true},
    {"contains", TYPE_ARRAY, false},
    {"minContains", TYPE_ARRAY, false},
    {"maxContains", TYPE_ARRAY, false},
    {"unevaluatedItems", TYPE_ARRAY, false},
    {"dependentRequired", TYPE_OBJECT, false},
    {"dependentSchemas", TYPE_OBJECT, false},
    {"dependencies", TYPE_OBJECT, false},
    {"unevaluatedProperties", TYPE_OBJECT, false},
    {"if", TYPE_ALL, false},
    {"$dynamicRef", TYPE_ALL, false},
    {"$recursiveRef", TYPE_ALL, false},
    {"extends", TYPE_ALL, false},
    {"disallow", TYPE_ALL, false},
};

/* Returns whether a keyword with this value demands nothing. */
static bool is_idle(const char *name, const json_t *v)
{
    if (strcmp(name, "unevaluatedItems") == 0 || strcmp(name, "unevaluatedProperties") == 0)
        return json_is_true(v);
    return strncmp(name, "depend", 6) == 0 && json_is_object(v) && json_object_size(v) == 0;
}

static void refuse_unserved(schema *s, const json_t *member, unsigned types)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const json_t *v = json_object_get(member, keywords[i].name);
        if (v && !keywords[i].served && (keywords[i].types & types) && !is_idle(keywords[i].name, v))
            build_fail(s->b, "\"%s\" is not served", keywords[i].name);
    }
}

/* Returns the types that the schema's keywords apply to, for when "type" is absent. */
static unsigned implied_types(const json_t *member)
{
    unsigned types = 0;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (keywords[i].types != TYPE_ALL && json_object_get(member, keywords[i].name))
            types |= keywords[i].types;
    return types;
}

static unsigned type_named(schema *s, const json_t *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER},
                 {"string", TYPE_STRING}, {"array", TYPE_ARRAY},     {"object", TYPE_OBJECT},   {"any", TYPE_ALL}};
    for (size_t i = 0; json_is_string(name) && i < sizeof types / sizeof *types; i++)
        if (strcmp(json_string_value(name), types[i].name) == 0)
            return types[i].type;
    build_fail(s->b, "\"type\" must be null, boolean, integer, number, string, array, object or a list of these");
}

unsigned schema_types(schema *s, const json_t *member)
{
    const json_t *type = json_object_get(member, "type");
    unsigned types = json_is_array(type) ? 0 : type ? type_named(s, type) : TYPE_ALL;
    build_step(s->b, 1 + (long)json_array_size(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(s, json_array_get(type, i));
    return type && json_is_true(json_object_get(member, "nullable")) ? types | TYPE_NULL : types;
}

unsigned schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return TYPE_BOOLEAN;
    case JSON_INTEGER: return TYPE_INTEGER;
    case JSON_REAL: return json_real_value(v) == floor(json_real_value(v)) ? TYPE_INTEGER : TYPE_FRACTION;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    case JSON_OBJECT: return TYPE_OBJECT;
    }
    return 0;
}

/* Given values: "const" and "enum". */

const expr *schema_text(schema *s, const char *text, size_t n)
{
    return json_rule_string_of(&s->json, dfa_of(s->b, expr_text(s->b, text, n)));
}

static const expr *given_value(schema *s, const json_t *v);

static const expr *given_list(schema *s, const json_t *v)
{
    build *b = s->b;
    bool object = json_is_object(v);
    const expr *x = expr_concat(b, expr_str(b, object ? "{" : "["), json_rule_blank(&s->json)), *comma = expr_empty(b);
    const expr *next = expr_concat(b, expr_str(b, ","), json_rule_blank(&s->json)),
               *colon = expr_concat(b, expr_str(b, ":"), json_rule_blank(&s->json));
    const char *key;
    size_t len, i;
    json_t *member;
    if (object)
        json_object_keylen_foreach((json_t *)v, key, len, member)
        {
            const expr *name = schema_text(s, key, len);
            x = expr_sequence(b, 5, (const expr *[]){x, comma, name, colon, given_value(s, member)});
            comma = next;
        }
    else
        json_array_foreach((json_t *)v, i, member)
        {
            x = expr_sequence(b, 3, (const expr *[]){x, comma, given_value(s, member)});
            comma = next;
        }
    if (comma != next)
        return expr_concat(b, x, expr_str(b, object ? "}" : "]"));
    return expr_sequence(b, 3, (const expr *[]){x, json_rule_blank(&s->json), expr_str(b, object ? "}" : "]")});
}

static const expr *given_value(schema *s, const json_t *v)
{
    char text[NUMBER_TEXT];
    const expr *x;
    build_enter(s->b);
    switch (json_typeof(v)) {
    case JSON_NULL: x = expr_str(s->b, "null"); break;
    case JSON_TRUE: x = expr_str(s->b, "true"); break;
    case JSON_FALSE: x = expr_str(s->b, "false"); break;
    case JSON_STRING: x = schema_text(s, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER:
    case JSON_REAL:
        number_text(v, text);
        x = expr_str(s->b, text);
        break;
    default: x = given_list(s, v); break;
    }
    build_leave(s->b);
    return x;
}

/* Returns whether a value is sure to be valid. Fails the build where it is unsure that what must not hold does not. */
static bool list_is_valid(schema *s, const all_of *list, const json_t *value)
{
    const char *unsure = NULL;
    for (int i = 0; i < list->n; i++) {
        const part *p = &list->at[i];
        verdict is = schema_validates_but(s, p->s, p->done, value);
        if (p->not_by ? is == VERDICT_VALID : is != VERDICT_VALID)
            return false;
        unsure = is == VERDICT_UNSURE ? p->not_by : unsure;
    }
    if (unsure)
        build_fail(s->b, "\"format\" is not served in a schema that must not hold (\"%s\")", unsure);
    return true;
}

/* Returns the values of the first "const" or "enum" in the list that all of the list allows; NULL: it has neither. */
static const expr *given_values(schema *s, const all_of *list)
{
    const json_t *given = NULL;
    bool one = false;
    for (int i = 0; i < list->n && !given; i++) {
        if (list->at[i].not_by)
            continue;
        one = json_object_get(list->at[i].s, "const") != NULL;
        given = json_object_get(list->at[i].s, one ? "const" : "enum");
    }
    if (!given)
        return NULL;
    if (!one && !json_is_array(given))
        build_fail(s->b, "\"enum\" must be a list");
    size_t n = one ? 1 : json_array_size(given);
    const expr **x = BUILD_ARRAY(s->b, const expr *, n);
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = one ? given : json_array_get(given, i);
        if (list_is_valid(s, list, v))
            x[count++] = given_value(s, v);
    }
    return expr_choice(s->b, count, x);
}

/* Combinations. */

static const char *combination(const part *p, unsigned *flag)
{
    if (!(p->done & DONE_ANY) && json_object_get(p->s, "anyOf"))
        return *flag = DONE_ANY, "anyOf";
    if (!(p->done & DONE_ONE) && json_object_get(p->s, "oneOf"))
        return *flag = DONE_ONE, "oneOf";
    return NULL;
}

unsigned schema_types_of_list(schema *s, const all_of *list)
{
    unsigned types = TYPE_ALL;
    for (int i = 0; i < list->n; i++) {
        const json_t *m = list->at[i].s, *one = json_object_get(m, "const"), *some = json_object_get(m, "enum");
        if (list->at[i].not_by)
            continue;
        if (json_is_false(m))
            return 0;
        types &= schema_types(s, m);
        unsigned given = one ? schema_type_of(one) : 0;
        build_step(s->b, (long)json_array_size(some));
        for (size_t k = 0; k < json_array_size(some); k++)
            given |= schema_type_of(json_array_get(some, k));
        types &= one || some ? given : TYPE_ALL;
    }
    return types;
}

/* Returns the types of a list's outputs: where "type" is absent, those that its keywords apply to. */
static unsigned made_types(schema *s, const all_of *list)
{
    unsigned types = schema_types_of_list(s, list), implied = 0;
    bool said = false;
    for (int i = 0; i < list->n; i++) {
        said = said || (!list->at[i].not_by && json_object_get(list->at[i].s, "type"));
        implied |= list->at[i].not_by ? 0 : implied_types(list->at[i].s);
    }
    return !said && implied ? types & implied : types;
}

static const json_t *find_given(const all_of *list, bool *one)
{
    for (int i = 0; i < list->n; i++) {
        const json_t *c = json_object_get(list->at[i].s, "const"), *e = json_object_get(list->at[i].s, "enum");
        *one = c != NULL;
        if (c || e)
            return c ? c : e;
    }
    return NULL;
}

static const json_t *property_of(schema *s, const all_of *list, const char *name, size_t n)
{
    build_step(s->b, list->n);
    for (int i = 0; i < list->n; i++) {
        const json_t *p = json_object_getn(json_object_get(list->at[i].s, "properties"), name, n);
        if (p)
            return p;
    }
    return NULL;
}

static bool requires(schema *s, const all_of *list, const char *name, size_t n)
{
    for (int i = 0; i < list->n; i++) {
        const json_t *names = json_object_get(list->at[i].s, "required");
        build_step(s->b, 1 + (long)json_array_size(names));
        for (size_t k = 0; k < json_array_size(names); k++) {
            const json_t *x = json_array_get(names, k);
            if (json_is_string(x) && json_string_length(x) == n && memcmp(json_string_value(x), name, n) == 0)
                return true;
        }
    }
    return false;
}

/* Returns whether the list's outputs have no properties but declared ones. */
static bool is_closed(const all_of *list, bool complete)
{
    bool names_some = false, open = false;
    for (int i = 0; i < list->n; i++) {
        const json_t *m = list->at[i].s, *more = json_object_get(m, "additionalProperties");
        if (json_is_false(more) && !json_object_get(m, "patternProperties"))
            return true;
        open = open || more || json_object_get(m, "patternProperties") || json_object_get(m, "propertyNames") ||
               json_object_get(m, "minProperties");
        names_some = names_some || json_object_get(m, "properties");
    }
    return complete && names_some && !open;
}

static bool are_disjoint(schema *s, const all_of *m, bool complete, const json_t *other);

/* Returns whether it is certain that no value is valid by both, whatever else it must obey. */
static bool is_disjoint_from(schema *s, const json_t *x, const json_t *y)
{
    all_of flat = schema_flatten_one(s, x);
    return are_disjoint(s, &flat, false, y);
}

/* Returns whether `other` requires a name that no object of the list m has. */
static bool lacks_required(schema *s, const all_of *m, bool complete, const json_t *other)
{
    const json_t *names = json_object_get(other, "required");
    bool closed = is_closed(m, complete), lacks = false;
    build_step(s->b, m->n);
    for (size_t k = 0; k < json_array_size(names) && closed && !lacks; k++) {
        const json_t *x = json_array_get(names, k);
        const char *name = json_string_value(x);
        lacks = name && !property_of(s, m, name, json_string_length(x)) && !requires(s, m, name, json_string_length(x));
    }
    return lacks;
}

/* Returns whether the list m requires a name that `other` does not allow. */
static bool has_undeclared(schema *s, const all_of *m, const json_t *other)
{
    const json_t *properties = json_object_get(other, "properties");
    bool has = false;
    if (!json_is_false(json_object_get(other, "additionalProperties")) || json_object_get(other, "patternProperties"))
        return false;
    for (int q = 0; q < m->n && !has; q++) {
        const json_t *names = json_object_get(m->at[q].s, "required");
        build_step(s->b, 1 + (long)json_array_size(names));
        for (size_t k = 0; k < json_array_size(names) && !has; k++) {
            const json_t *x = json_array_get(names, k);
            has = json_is_string(x) && !json_object_getn(properties, json_string_value(x), json_string_length(x));
        }
    }
    return has;
}

/* Returns whether a member that the list m requires is certain to be invalid by what `other` says of it. */
static bool has_disjoint_member(schema *s, const all_of *m, const json_t *other)
{
    const char *name;
    size_t n;
    json_t *theirs;
    bool has = false;
    json_object_keylen_foreach(json_object_get(other, "properties"), name, n, theirs)
    {
        const json_t *ours = has ? NULL : property_of(s, m, name, n);
        has = has || (ours && requires(s, m, name, n) && is_disjoint_from(s, ours, theirs));
    }
    return has;
}

/* Returns whether it is certain that no output of the flattened list m, of schemas that must hold, is valid by `other`.
 * complete: m is all that the output must obey, without combinations; then what it does not say (types, other
 * properties) is left out of outputs. */
static bool are_disjoint(schema *s, const all_of *m, bool complete, const json_t *other)
{
    build_enter(s->b);
    build_step(s->b, m->n);
    all_of o = schema_flatten_one(s, other);
    bool one;
    const json_t *given = find_given(m, &one);
    complete = complete && !given; /* given values come whatever their types and properties */
    unsigned both = (complete ? made_types(s, m) : schema_types_of_list(s, m)) & schema_types_of_list(s, &o);
    bool disjoint = both == 0;
    if (!disjoint && given) {
        disjoint = true;
        for (size_t i = 0; i < (one ? 1 : json_array_size(given)); i++)
            disjoint =
                disjoint && schema_validates(s, other, one ? given : json_array_get(given, i)) == VERDICT_INVALID;
    }
    for (int i = 0; i < o.n && !disjoint && both == TYPE_OBJECT; i++)
        disjoint = lacks_required(s, m, complete, o.at[i].s) || has_undeclared(s, m, o.at[i].s) ||
                   has_disjoint_member(s, m, o.at[i].s);
    build_leave(s->b);
    return disjoint;
}

/* Returns those of a list that must hold, flattened. *complete: there are no combinations in them. */
static all_of must_hold(schema *s, const all_of *list, bool *complete)
{
    all_of flat;
    unsigned flag;
    int n = 0;
    schema_flatten(s, list, &flat);
    *complete = true;
    for (int i = 0; i < flat.n; i++) {
        if (flat.at[i].not_by)
            continue;
        flat.at[n++] = flat.at[i];
        *complete = *complete && !combination(&flat.at[i], &flag);
    }
    flat.n = n;
    return flat;
}

/* Distributes a combination: one list for each member, with all the rest. Members of "oneOf" that may overlap with this
 * one are added as schemas that must not hold. */
static const expr *distribute(schema *s, const all_of *list, int at, const char *keyword, unsigned flag)
{
    const json_t *members = json_object_get(list->at[at].s, keyword);
    size_t n = json_array_size(members);
    if (n == 0)
        build_fail(s->b, "\"%s\" must be a list of schemas", keyword);
    const expr **x = BUILD_ARRAY(s->b, const expr *, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *member = json_array_get(members, i);
        all_of one = copy_list(s, list);
        one.at[at].done |= flag;
        all_of_add(s, &one, (part){.s = member});
        bool complete;
        all_of made = must_hold(s, &one, &complete);
        for (size_t k = 0; flag == DONE_ONE && k < n; k++)
            if (k != i && !are_disjoint(s, &made, complete, json_array_get(members, k)))
                all_of_add(s, &one, (part){.s = json_array_get(members, k), .not_by = "oneOf"});
        x[i] = schema_value(s, &one);
    }
    return expr_choice(s->b, (int)n, x);
}

/* Adds what each "not" of the list forbids, as a member that must not hold. */
static void expand_nots(schema *s, all_of *list)
{
    for (int i = 0; i < list->n; i++) {
        const json_t *other = json_object_get(list->at[i].s, "not");
        if (!other || list->at[i].not_by || (list->at[i].done & DONE_NOT))
            continue;
        list->at[i].done |= DONE_NOT;
        all_of_add(s, list, (part){.s = other, .not_by = "not"});
    }
}

/* Removes the schemas that must not hold and that no output would be valid by anyway. */
static void drop_disjoint(schema *s, all_of *list)
{
    bool complete;
    all_of made = must_hold(s, list, &complete);
    int n = 0;
    for (int i = 0; i < list->n; i++)
        if (!list->at[i].not_by || !are_disjoint(s, &made, complete, list->at[i].s))
            list->at[n++] = list->at[i];
    list->n = n;
}

/* Returns the types that are left when p must not hold: those of which p does not allow every value. Fails the build
 * where p constrains arrays or objects further, or has combinations. */
static unsigned without_negated(schema *s, const part *p, unsigned types)
{
    const json_t *m = p->s;
    if (json_is_boolean(m))
        return json_is_true(m) ? 0 : types;
    all_of flat = schema_flatten_one(s, m);
    unsigned flag, of = schema_types_of_list(s, &flat) & types, says = 0;
    for (int i = 0; i < flat.n; i++) {
        if (combination(&flat.at[i], &flag) || json_object_get(flat.at[i].s, "not"))
            build_fail(s->b, "\"%s\" is served where it can be told apart, which is not so here", p->not_by);
        says |= json_object_get(flat.at[i].s, "enum") || json_object_get(flat.at[i].s, "const")
                    ? of
                    : implied_types(flat.at[i].s);
    }
    if (says & of & (TYPE_ARRAY | TYPE_OBJECT))
        build_fail(s->b, "\"%s\" is served where it can be told apart, which is not so here", p->not_by);
    return types & ~(of & ~says); /* types that p does not constrain further are excluded entirely */
}

/* Returns the types that a value may have. */
static unsigned allowed_types(schema *s, const all_of *list)
{
    unsigned types = made_types(s, list);
    for (int i = 0; i < list->n; i++)
        if (list->at[i].not_by)
            types = without_negated(s, &list->at[i], types);
    return types;
}

/* Returns those of true and false that the list allows. */
static const expr *booleans(schema *s, const all_of *list)
{
    const expr *x = NULL;
    json_t *values[] = {json_true(), json_false()};
    for (int i = 0; i < 2; i++)
        if (list_is_valid(s, list, values[i]))
            x = expr_either(s->b, x, expr_str(s->b, i == 0 ? "true" : "false"));
    return x ? x : expr_never(s->b);
}

static bool says_nothing(const all_of *list)
{
    unsigned flag;
    for (int i = 0; i < list->n; i++) {
        const json_t *m = list->at[i].s;
        if (json_is_false(m) || list->at[i].not_by || combination(&list->at[i], &flag) || json_object_get(m, "not"))
            return false;
        for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++)
            if (json_object_get(m, keywords[k].name))
                return false;
    }
    return true;
}

static void check_members(schema *s, const all_of *list)
{
    for (int i = 0; i < list->n; i++)
        if (!json_is_object(list->at[i].s) && !json_is_boolean(list->at[i].s))
            build_fail(s->b, "a schema must be an object, true or false");
}

const dfa *schema_names(schema *s, const all_of *list)
{
    all_of flat;
    unsigned flag;
    schema_flatten(s, list, &flat);
    check_members(s, &flat);
    for (int i = 0; i < flat.n; i++) {
        const json_t *m = flat.at[i].s;
        if (combination(&flat.at[i], &flag) || json_object_get(m, "not") || json_object_get(m, "enum") ||
            json_object_get(m, "const"))
            build_fail(s->b, "\"propertyNames\" is served with \"type\", \"pattern\", \"format\", \"minLength\", "
                             "\"maxLength\", \"$ref\" and \"allOf\" only");
        refuse_unserved(s, m, TYPE_STRING);
    }
    return schema_types_of_list(s, &flat) & TYPE_STRING ? schema_texts(s, &flat) : dfa_of(s->b, expr_never(s->b));
}

/* Returns the values of a list without references and combinations. */
static const expr *plain_value(schema *s, all_of *list)
{
    build *b = s->b;
    expand_nots(s, list);
    const expr *given = given_values(s, list), *x = expr_never(b);
    if (given)
        return given;
    drop_disjoint(s, list);
    unsigned types = allowed_types(s, list);
    for (int i = 0; i < list->n; i++)
        if (!list->at[i].not_by)
            refuse_unserved(s, list->at[i].s, types);
    if (types & TYPE_OBJECT)
        x = expr_either(b, x, schema_object(s, list));
    if (types & TYPE_ARRAY)
        x = expr_either(b, x, schema_array(s, list));
    if (types & TYPE_STRING)
        x = expr_either(b, x, schema_string(s, list));
    if (types & TYPE_NUMBER)
        x = expr_either(b, x, schema_number(s, list, types & TYPE_NUMBER));
    if (types & TYPE_BOOLEAN)
        x = expr_either(b, x, booleans(s, list));
    if ((types & TYPE_NULL) && list_is_valid(s, list, json_null()))
        x = expr_either(b, x, expr_str(b, "null"));
    return x;
}

/* Returns the values of a list without references. */
static const expr *flat_value(schema *s, all_of *list)
{
    unsigned flag;
    const char *keyword;
    check_members(s, list);
    if (says_nothing(list))
        return json_rule_value(&s->json);
    for (int i = 0; i < list->n; i++)
        if (!list->at[i].not_by && (keyword = combination(&list->at[i], &flag)))
            return distribute(s, list, i, keyword, flag);
    return plain_value(s, list);
}

static int by_schema(const void *x, const void *y)
{
    const part *a = x, *b = y;
    return a->s != b->s ? (a->s > b->s ? 1 : -1) : (a->not_by > b->not_by) - (a->not_by < b->not_by);
}

static bool same_list(const all_of *x, const all_of *y)
{
    bool same = x->n == y->n;
    for (int i = 0; same && i < x->n; i++)
        same = x->at[i].s == y->at[i].s && x->at[i].done == y->at[i].done && x->at[i].not_by == y->at[i].not_by;
    return same;
}

/* Returns the rule of a flat list, made on first use. It gets its number before its members, which may refer to it, are
 * read. */
static const expr *rule_of(schema *s, all_of *flat)
{
    all_of key = copy_list(s, flat);
    qsort(key.at, (size_t)key.n, sizeof *key.at, by_schema);
    for (int i = 0; i < s->n_known; i++) {
        build_step(s->b, 1);
        if (same_list(&s->known[i].key, &key))
            return expr_rule(s->b, s->known[i].rule);
    }
    int rule = rules_add(s->r, "a schema (\"$ref\")", NULL);
    s->known = build_grow(s->b, s->known, &s->known_cap, s->n_known + 1, sizeof *s->known);
    s->known[s->n_known++] = (known_rule){key, rule};
    const expr *is = flat_value(s, flat);
    s->r->at[rule].body = is;
    return expr_rule(s->b, rule);
}

const expr *schema_value(schema *s, const all_of *list)
{
    all_of flat;
    build_enter(s->b);
    bool referred = schema_flatten(s, list, &flat);
    const expr *x = flat.in_circle ? expr_never(s->b) : referred ? rule_of(s, &flat) : flat_value(s, &flat);
    build_leave(s->b);
    return x;
}

const expr *schema_rule(schema *s, const all_of *list)
{
    const expr *x = schema_value(s, list);
    return x->kind == EXPR_RULE || x->kind == EXPR_NEVER ? x : expr_rule(s->b, rules_add(s->r, "a schema", x));
}

const expr *schema_read(rules *r, const char *text, size_t n)
{
    schema *s = BUILD_NEW(r->b, schema);
    *s = (schema){.b = r->b, .r = r, .json = {.r = r}, .root = build_read_json(r->b, text, n)};
    all_of flat = schema_flatten_one(s, s->root);
    return rule_of(s, &flat);
}

const expr *schema_any_object(rules *r)
{
    json_rules *j = BUILD_NEW(r->b, json_rules);
    j->r = r;
    return json_rule_object(j);
}
