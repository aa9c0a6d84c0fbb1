/* json_rules.h - the parts of JSON that schemas are built from: rules, each made on first use
 *
 * Whitespace is allowed where people and models put it: behind an opening bracket, a comma and a colon, and before a
 * closing bracket; one blank, or a newline with indentation. */
#ifndef PUNICA_GRAMMAR_JSON_RULES_H
#define PUNICA_GRAMMAR_JSON_RULES_H

#include "grammar/dfa.h"
#include "grammar/rules.h"

typedef struct {
    rules *r;
    int made[8]; /* by kind: the number of its rule + 1, or 0 */
} json_rules;

const expr *json_rule_blank(json_rules *j);
const expr *json_rule_char(json_rules *j); /* one character of a string, as it is or escaped */
const expr *json_rule_string(json_rules *j);
const expr *json_rule_number(json_rules *j);
const expr *json_rule_integer(json_rules *j);
const expr *json_rule_value(json_rules *j);
const expr *json_rule_object(json_rules *j);

/* Returns the strings whose value is in the language. Each has one spelling: only what must be escaped is escaped. */
const expr *json_rule_string_of(json_rules *j, const dfa *values);

const dfa *json_rule_all_texts(build *b); /* all values that a string may have */

#endif
