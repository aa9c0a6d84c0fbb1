/* schema_validate.c - validates values that the schema itself gives: enumerations, names of properties */
#include <string.h>

#include "grammar/format.h"
#include "grammar/number.h"
#include "grammar/regex.h"
#include "grammar/schema_parts.h"

static int length_of(const json_t *v)
{
    int n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += ((unsigned char)json_string_value(v)[i] & 0xc0) != 0x80;
    return n;
}

static verdict lesser(verdict x, verdict y)
{
    return x < y ? x : y;
}

static verdict validate_string(schema *s, const json_t *m, const json_t *v)
{
    const json_t *pattern = json_object_get(m, "pattern"), *format = json_object_get(m, "format");
    int n = length_of(v);
    if (n < schema_count(s, m, "minLength", 0) || n > schema_count(s, m, "maxLength", ANY_COUNT))
        return VERDICT_INVALID;
    if (json_is_string(pattern) &&
        !dfa_matches(regex_language(s->b, json_string_value(pattern), json_string_length(pattern), REGEX_SOMEWHERE),
                     json_string_value(v), json_string_length(v)))
        return VERDICT_INVALID;
    const dfa *known = json_is_string(format) ? format_language(s->b, json_string_value(format)) : NULL;
    return !known || dfa_matches(known, json_string_value(v), json_string_length(v)) ? VERDICT_VALID : VERDICT_UNSURE;
}

static bool number_is_valid(schema *s, const json_t *m, const json_t *v)
{
    const json_t *min = json_object_get(m, "minimum"), *max = json_object_get(m, "maximum"),
                 *of = json_object_get(m, "multipleOf");
    const json_t *above = json_object_get(m, "exclusiveMinimum"), *below = json_object_get(m, "exclusiveMaximum");
    if (json_is_number(min) && number_compare(v, min) < json_is_true(above))
        return false;
    if (json_is_number(max) && number_compare(v, max) > -json_is_true(below))
        return false;
    if ((json_is_number(above) && number_compare(v, above) <= 0) ||
        (json_is_number(below) && number_compare(v, below) >= 0))
        return false;
    return !json_is_number(of) || number_is_multiple(s->b, v, of);
}

static bool same_value(schema *s, const json_t *x, const json_t *y);

static bool same_members(schema *s, const json_t *x, const json_t *y)
{
    bool same = json_object_size(x) == json_object_size(y);
    build_step(s->b, (long)json_object_size(x));
    const char *name;
    size_t n;
    json_t *member;
    json_object_keylen_foreach((json_t *)x, name, n, member)
    {
        const json_t *other = json_object_getn(y, name, n);
        same = same && other && same_value(s, member, other);
    }
    return same;
}

/* Returns whether two values are equal; numbers are, however they are written. */
static bool same_value(schema *s, const json_t *x, const json_t *y)
{
    if (json_is_number(x) && json_is_number(y))
        return number_compare(x, y) == 0;
    if (json_typeof(x) != json_typeof(y))
        return false;
    if (json_is_object(x))
        return same_members(s, x, y);
    if (!json_is_array(x))
        return json_equal(x, y);
    bool same = json_array_size(x) == json_array_size(y);
    build_step(s->b, (long)json_array_size(x));
    for (size_t i = 0; i < json_array_size(x) && same; i++)
        same = same_value(s, json_array_get(x, i), json_array_get(y, i));
    return same;
}

static verdict validate_array(schema *s, const json_t *m, const json_t *v)
{
    const json_t *items = json_object_get(m, "items"), *first = json_object_get(m, "prefixItems");
    int n = (int)json_array_size(v);
    verdict all = VERDICT_VALID;
    if (n < schema_count(s, m, "minItems", 0) || n > schema_count(s, m, "maxItems", ANY_COUNT))
        return VERDICT_INVALID;
    if (json_is_array(items)) {
        first = items;
        items = json_object_get(m, "additionalItems");
    }
    for (int i = 0; i < n; i++) {
        const json_t *is = i < (int)json_array_size(first) ? json_array_get(first, (size_t)i) : items;
        all = is ? lesser(all, schema_validates(s, is, json_array_get(v, (size_t)i))) : all;
        build_step(s->b, json_is_true(json_object_get(m, "uniqueItems")) ? i + 1 : 1);
        for (int k = 0; k < i && json_is_true(json_object_get(m, "uniqueItems")); k++)
            if (same_value(s, json_array_get(v, (size_t)i), json_array_get(v, (size_t)k)))
                return VERDICT_INVALID;
    }
    return all;
}

static verdict validate_property(schema *s, const json_t *m, const char *name, size_t n, const json_t *value)
{
    const json_t *own = json_object_getn(json_object_get(m, "properties"), name, n),
                 *patterns = json_object_get(m, "patternProperties");
    const json_t *others = json_object_get(m, "additionalProperties");
    bool named = own != NULL;
    verdict all = own ? schema_validates(s, own, value) : VERDICT_VALID;
    const char *text;
    size_t len;
    json_t *is;
    json_object_keylen_foreach((json_t *)patterns, text, len,
                               is) if (dfa_matches(regex_language(s->b, text, len, REGEX_SOMEWHERE), name, n))
    {
        named = true;
        all = lesser(all, schema_validates(s, is, value));
    }
    return named || !others ? all : schema_validates(s, others, value);
}

static verdict validate_object(schema *s, const json_t *m, const json_t *v)
{
    int count = (int)json_object_size(v);
    verdict all = VERDICT_VALID;
    const json_t *required = json_object_get(m, "required");
    if (count < schema_count(s, m, "minProperties", 0) || count > schema_count(s, m, "maxProperties", ANY_COUNT))
        return VERDICT_INVALID;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (json_is_string(name) && !json_object_getn(v, json_string_value(name), json_string_length(name)))
            return VERDICT_INVALID;
    }
    const char *name;
    size_t n;
    json_t *member;
    json_object_keylen_foreach((json_t *)v, name, n, member) all =
        lesser(all, validate_property(s, m, name, n, member));
    return all;
}

/* Returns how many members a value is valid by, at least; *most: at most. */
static int count_valid(schema *s, const json_t *members, const json_t *v, int *most)
{
    int n = 0;
    *most = 0;
    for (size_t i = 0; i < json_array_size(members); i++) {
        verdict is = schema_validates(s, json_array_get(members, i), v);
        n += is == VERDICT_VALID;
        *most += is != VERDICT_INVALID;
    }
    return n;
}

/* Returns whether the number of members that a value is valid by is within the bounds. */
static verdict validate_members(schema *s, const json_t *members, const json_t *v, int lo, int hi)
{
    int most, least = count_valid(s, members, v, &most);
    if (most < lo || least > hi)
        return VERDICT_INVALID;
    return least >= lo && most <= hi ? VERDICT_VALID : VERDICT_UNSURE;
}

static const json_t *unless(bool done, const json_t *m, const char *keyword)
{
    return done ? NULL : json_object_get(m, keyword);
}

static verdict validate_combinations(schema *s, const json_t *m, unsigned done, const json_t *v)
{
    const json_t *all = unless(done & DONE_ALL, m, "allOf"), *any = unless(done & DONE_ANY, m, "anyOf");
    const json_t *one = unless(done & DONE_ONE, m, "oneOf"), *other = unless(done & DONE_NOT, m, "not");
    verdict x = VERDICT_VALID;
    if (unless(done & DONE_REF, m, "$ref"))
        x = lesser(x, schema_validates(s, schema_resolve(s, m), v));
    if (all)
        x = lesser(x, validate_members(s, all, v, (int)json_array_size(all), ANY_COUNT));
    if (any)
        x = lesser(x, validate_members(s, any, v, 1, ANY_COUNT));
    if (one)
        x = lesser(x, validate_members(s, one, v, 1, 1));
    if (other)
        x = lesser(x, VERDICT_VALID - schema_validates(s, other, v));
    return x;
}

static bool given_is_valid(schema *s, const json_t *m, const json_t *v)
{
    const json_t *one = json_object_get(m, "const"), *some = json_object_get(m, "enum");
    bool among = !some;
    build_step(s->b, 1 + (long)json_array_size(some));
    for (size_t i = 0; i < json_array_size(some) && !among; i++)
        among = same_value(s, json_array_get(some, i), v);
    return among && (!one || same_value(s, one, v));
}

static void refuse(schema *s, const json_t *m)
{
    static const char *const names[] = {"if",           "contains",         "dependentRequired",     "dependentSchemas",
                                        "dependencies", "unevaluatedItems", "unevaluatedProperties", "propertyNames",
                                        "$dynamicRef",  "$recursiveRef"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(m, names[i]))
            build_fail(s->b, "\"%s\" is not served together with values that are given", names[i]);
}

verdict schema_validates_but(schema *s, const json_t *m, unsigned done, const json_t *v)
{
    if (json_is_boolean(m))
        return json_is_true(m) ? VERDICT_VALID : VERDICT_INVALID;
    if (!json_is_object(m))
        build_fail(s->b, "a schema must be an object, true or false");
    build_enter(s->b);
    refuse(s, m);
    verdict x = VERDICT_INVALID;
    if ((schema_types(s, m) & schema_type_of(v)) && given_is_valid(s, m, v))
        x = validate_combinations(s, m, done, v);
    if (x && json_is_string(v))
        x = lesser(x, validate_string(s, m, v));
    if (x && json_is_number(v) && !number_is_valid(s, m, v))
        x = VERDICT_INVALID;
    if (x && json_is_array(v))
        x = lesser(x, validate_array(s, m, v));
    if (x && json_is_object(v))
        x = lesser(x, validate_object(s, m, v));
    build_leave(s->b);
    return x;
}
