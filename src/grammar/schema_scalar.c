/* schema_scalar.c - strings and numbers of a schema: see schema_parts.h */
#include <string.h>

#include "grammar/format.h"
#include "grammar/number.h"
#include "grammar/regex.h"
#include "grammar/schema_parts.h"

static const dfa *both(build *b, const dfa *x, const dfa *y)
{
    return x && y ? dfa_and(b, x, y) : x ? x : y;
}

static const dfa *pattern_of(schema *s, const json_t *v)
{
    if (!json_is_string(v))
        build_fail(s->b, "\"pattern\" must be a string");
    return regex_language(s->b, json_string_value(v), json_string_length(v), REGEX_SOMEWHERE);
}

static const dfa *format_of(schema *s, const json_t *v)
{
    if (!json_is_string(v))
        build_fail(s->b, "\"format\" must be a string");
    return format_language(s->b, json_string_value(v));
}

/* Returns the texts that match all patterns and formats; NULL: the list has neither. */
static const dfa *forms(schema *s, const all_of *list)
{
    const dfa *x = NULL;
    for (int i = 0; i < list->n; i++) {
        const json_t *pattern = json_object_get(list->at[i].s, "pattern"),
                     *format = json_object_get(list->at[i].s, "format");
        if (list->at[i].not_by)
            continue;
        x = pattern ? both(s->b, x, pattern_of(s, pattern)) : x;
        x = format ? both(s->b, x, format_of(s, format)) : x;
    }
    return x;
}

static void lengths(schema *s, const all_of *list, int *min, int *max)
{
    *min = 0;
    *max = ANY_COUNT;
    for (int i = 0; i < list->n; i++) {
        if (list->at[i].not_by)
            continue;
        int lo = schema_count(s, list->at[i].s, "minLength", 0),
            hi = schema_count(s, list->at[i].s, "maxLength", ANY_COUNT);
        *min = lo > *min ? lo : *min;
        *max = hi < *max ? hi : *max;
    }
}

/* Returns `one`, min to max times. Fails the build for bounds too large to count: ignoring them would allow invalid
 * outputs. */
static const expr *times(schema *s, const expr *one, int min, int max)
{
    if (min > 20000 || (max > 20000 && max != ANY_COUNT))
        build_fail(s->b, "\"minLength\" and \"maxLength\" are served up to 20000");
    return max < min ? expr_never(s->b) : expr_repeat(s->b, one, min, max == ANY_COUNT ? REPEAT_ANY : max);
}

/* Returns the strings among the given values of a schema; NULL: it gives none. */
static const dfa *given_texts(schema *s, const json_t *m)
{
    const json_t *one = json_object_get(m, "const"), *some = json_object_get(m, "enum");
    const expr *x = expr_never(s->b);
    for (size_t i = 0; i < (one ? 1 : json_array_size(some)); i++) {
        const json_t *v = one ? one : json_array_get(some, i);
        if (json_is_string(v))
            x = expr_either(s->b, x, expr_text(s->b, json_string_value(v), json_string_length(v)));
    }
    return one || some ? dfa_of(s->b, x) : NULL;
}

/* Returns the texts that m allows, a schema that must not hold and constrains only scalars. NULL: it allows none. */
static const dfa *negated_texts(schema *s, const json_t *m)
{
    all_of list = schema_flatten_one(s, m);
    if (!(schema_types_of_list(s, &list) & TYPE_STRING))
        return NULL;
    const dfa *x = json_rule_all_texts(s->b);
    for (int i = 0; i < list.n; i++) {
        if (json_object_get(list.at[i].s, "format")) /* our languages are subsets of the formats */
            build_fail(s->b, "\"format\" is not served in a schema that must not hold (\"not\", \"oneOf\")");
        x = both(s->b, x, given_texts(s, list.at[i].s));
    }
    return both(s->b, x, schema_texts(s, &list));
}

const dfa *schema_texts(schema *s, const all_of *list)
{
    build *b = s->b;
    int min, max;
    lengths(s, list, &min, &max);
    const dfa *x = forms(s, list);
    if (min > 0 || max < ANY_COUNT)
        x = both(b, x, dfa_of(b, times(s, expr_any_char(b), min, max)));
    for (int i = 0; i < list->n; i++) {
        const dfa *other = list->at[i].not_by ? negated_texts(s, list->at[i].s) : NULL;
        if (other)
            x = dfa_minus(b, x ? x : json_rule_all_texts(b), other);
    }
    return x;
}

static bool has_negated(const all_of *list)
{
    for (int i = 0; i < list->n; i++)
        if (list->at[i].not_by)
            return true;
    return false;
}

const expr *schema_string(schema *s, const all_of *list)
{
    build *b = s->b;
    int min, max;
    lengths(s, list, &min, &max);
    if (forms(s, list) || has_negated(list)) {
        const dfa *x = schema_texts(s, list);
        return x ? json_rule_string_of(&s->json, x) : json_rule_string(&s->json);
    }
    if (min == 0 && max == ANY_COUNT)
        return json_rule_string(&s->json);
    return expr_sequence(
        b, 3, (const expr *[]){expr_str(b, "\""), times(s, json_rule_char(&s->json), min, max), expr_str(b, "\"")});
}

/* Numbers. */

static const json_t *number_member(schema *s, const json_t *m, const char *keyword)
{
    const json_t *v = json_object_get(m, keyword);
    if (v && !json_is_number(v))
        build_fail(s->b, "\"%s\" must be a number", keyword);
    return v;
}

/* Returns the numbers within a bound and its exclusive form, a number of its own, or true in old drafts; NULL: any. */
static const dfa *bound_of(schema *s, const json_t *m, const char *keyword, const char *exclusive, int sign)
{
    const json_t *flag = json_object_get(m, exclusive);
    const json_t *v = number_member(s, m, keyword),
                 *beyond = json_is_boolean(flag) ? NULL : number_member(s, m, exclusive);
    const dfa *x = v ? number_bounded(s->b, v, sign, json_is_true(flag), keyword) : NULL;
    return both(s->b, x, beyond ? number_bounded(s->b, beyond, sign, true, exclusive) : NULL);
}

static const dfa *numbers_of(schema *s, const json_t *m)
{
    const dfa *x =
        both(s->b, bound_of(s, m, "minimum", "exclusiveMinimum", 1), bound_of(s, m, "maximum", "exclusiveMaximum", -1));
    const json_t *of = number_member(s, m, "multipleOf");
    return both(s->b, x, of ? number_multiples(s->b, of) : NULL);
}

static const dfa *integers_among(build *b, const dfa *x)
{
    const expr *digits = expr_repeat(b, expr_bytes(b, '0', '9'), 1, REPEAT_ANY);
    return dfa_and(b, x, dfa_of(b, expr_concat(b, expr_repeat(b, expr_str(b, "-"), 0, 1), digits)));
}

static const dfa *of_types(schema *s, unsigned types)
{
    build *b = s->b;
    if (types == TYPE_INTEGER)
        return number_integers(b);
    return types == TYPE_FRACTION ? dfa_minus(b, number_all(b), number_integers(b)) : number_all(b);
}

static const dfa *given_numbers(schema *s, const json_t *m)
{
    const json_t *one = json_object_get(m, "const"), *some = json_object_get(m, "enum");
    const expr *x = expr_never(s->b);
    char text[NUMBER_TEXT];
    for (size_t i = 0; i < (one ? 1 : json_array_size(some)); i++) {
        const json_t *v = one ? one : json_array_get(some, i);
        if (!json_is_number(v))
            continue;
        number_text(v, text);
        x = expr_either(s->b, x, expr_str(s->b, text));
    }
    return one || some ? dfa_of(s->b, x) : NULL;
}

/* Returns the numbers that m allows, a schema that must not hold and constrains only scalars. NULL: it allows none. */
static const dfa *negated_numbers(schema *s, const json_t *m)
{
    all_of list = schema_flatten_one(s, m);
    unsigned types = schema_types_of_list(s, &list) & TYPE_NUMBER;
    if (!types)
        return NULL;
    const dfa *x = of_types(s, types);
    for (int i = 0; i < list.n; i++)
        x = both(s->b, both(s->b, x, numbers_of(s, list.at[i].s)), given_numbers(s, list.at[i].s));
    return x;
}

const expr *schema_number(schema *s, const all_of *list, unsigned types)
{
    build *b = s->b;
    const dfa *x = NULL;
    for (int i = 0; i < list->n; i++)
        if (!list->at[i].not_by)
            x = both(b, x, numbers_of(s, list->at[i].s));
    if (!x && !has_negated(list) && types != TYPE_FRACTION)
        return types == TYPE_INTEGER ? json_rule_integer(&s->json) : json_rule_number(&s->json);
    if (!x || types != TYPE_NUMBER)
        x = x && types == TYPE_INTEGER ? integers_among(b, x) : both(b, x, of_types(s, types));
    if (has_negated(list)) /* what must not hold is complete only up to as many digits */
        x = dfa_and(b, x, number_all(b));
    for (int i = 0; i < list->n; i++) {
        const dfa *other = list->at[i].not_by ? negated_numbers(s, list->at[i].s) : NULL;
        x = other ? dfa_minus(b, x, other) : x;
    }
    return expr_dfa(b, x);
}
