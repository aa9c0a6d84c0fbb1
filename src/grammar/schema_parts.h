/* schema_parts.h - what the files of the schema compiler share
 *
 * A value often has to obey several schemas at once: those of "allOf", of a "$ref" and what stands beside it, of a
 * property named in two of them. So what is compiled is always a list of schemas, of which all must hold (`all_of`).
 * "anyOf" and "oneOf" are distributed: one list for each member, with the rest. What is left then constrains types,
 * numbers, strings, arrays and objects, and each of these is compiled from all schemas of the list.
 *
 *   schema.c        references, combinations, types, enumerations       schema_validate.c   whether a value is valid
 *   schema_object.c, schema_array.c, schema_scalar.c                    one kind of value each */
#ifndef PUNICA_GRAMMAR_SCHEMA_PARTS_H
#define PUNICA_GRAMMAR_SCHEMA_PARTS_H

#include "grammar/json_rules.h"

/* Keywords of a schema that have been dealt with. */
enum { DONE_REF = 1, DONE_ALL = 2, DONE_ANY = 4, DONE_ONE = 8, DONE_NOT = 16 };

typedef struct {
    const json_t *s; /* an object, true or false */
    unsigned done;
    const char *not_by; /* NULL, or the keyword that forbids it: s must not hold */
} part;
typedef struct {
    part *at;
    int n, cap;
    bool in_circle; /* circular: a member of a combination refers back to the combination, and so allows nothing more */
} all_of;

/* Types of values; a number without a fraction is an integer. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ALL = 127,
};

typedef struct {
    all_of key;
    int rule;
} known_rule;

typedef struct {
    build *b;
    rules *r;
    json_rules json;
    const json_t *root;
    known_rule *known; /* lists that references lead to, and the rules they became */
    int n_known, known_cap;
} schema;

void all_of_add(schema *s, all_of *list, part p);
all_of all_of_one(schema *s, const json_t *member);

/* Copies the list to *out and adds all that its members lead to by "$ref" and "allOf". Returns whether a "$ref" was
 * followed. */
bool schema_flatten(schema *s, const all_of *list, all_of *out);

/* Returns the flattened list of one schema. */
all_of schema_flatten_one(schema *s, const json_t *member);

/* Returns the values that obey all of the list. */
const expr *schema_value(schema *s, const all_of *list);
const expr *schema_rule(schema *s, const all_of *list); /* the same as a call of a rule, for what is used many times */

/* Return the values of one type that obey all of the list, which has no combinations. */
const expr *schema_object(schema *s, const all_of *list);
const expr *schema_array(schema *s, const all_of *list);
const expr *schema_string(schema *s, const all_of *list);
const expr *schema_number(schema *s, const all_of *list, unsigned types); /* of TYPE_NUMBER */

/* Returns the unescaped values of the strings that obey all of the list; NULL: any string does. */
const dfa *schema_texts(schema *s, const all_of *list);

/* Returns the names of properties that obey all of the list, schemas of "propertyNames"; NULL: any name does. */
const dfa *schema_names(schema *s, const all_of *list);

/* Whether a value is valid. In this order, so that the lesser of two is their conjunction (Kleene's logic). Unsure is a
 * text outside a format's language, which is a subset of the format; moreover, validators need not check formats. */
typedef enum { VERDICT_INVALID, VERDICT_UNSURE, VERDICT_VALID } verdict;

/* Returns whether a value is valid by a schema, apart from the keywords in `done` (DONE_...) and unknown formats. */
verdict schema_validates_but(schema *s, const json_t *member, unsigned done, const json_t *value);
static inline verdict schema_validates(schema *s, const json_t *member, const json_t *value)
{
    return schema_validates_but(s, member, 0, value);
}

unsigned schema_types(schema *s, const json_t *member); /* that "type" allows; TYPE_ALL without it */
unsigned schema_type_of(const json_t *value);
unsigned schema_types_of_list(schema *s, const all_of *flat); /* as far as "type", "const" and "enum" tell */
const json_t *schema_resolve(schema *s,
                             const json_t *member); /* what its "$ref" leads to; fails the build if nothing */

/* Counts of a schema are at most this; as a maximum it means that there is none. */
enum { ANY_COUNT = 1000000000 };

/* Returns a keyword's value as a count, or `otherwise` when it is absent. */
int schema_count(schema *s, const json_t *member, const char *keyword, int otherwise);

/* Returns a text as a JSON string, in its quotes. */
const expr *schema_text(schema *s, const char *text, size_t n);

#endif
