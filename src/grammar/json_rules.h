/* json_rules.h - the parts of JSON that schemas are put together from: rules that exist once, when they are needed
 *
 * Blanks may stand where people and models put them: behind an opening bracket, a comma and a colon, and before a
 * closing bracket; one blank, or a new line with its indentation. */
#ifndef PUNICA_GRAMMAR_JSON_RULES_H
#define PUNICA_GRAMMAR_JSON_RULES_H

#include "grammar/dfa.h"
#include "grammar/rules.h"

typedef struct {
    rules *r;
    int made[8]; /* number + 1 of the rule of each kind */
} json_rules;

const expr *json_rule_blank(json_rules *j);
const expr *json_rule_char(json_rules *j); /* one character of a string, as it is or escaped */
const expr *json_rule_string(json_rules *j);
const expr *json_rule_number(json_rules *j);
const expr *json_rule_integer(json_rules *j);
const expr *json_rule_value(json_rules *j);
const expr *json_rule_object(json_rules *j);
const expr *json_rule_array(json_rules *j);

/* A string whose value is in the language, each value in one spelling only: nothing is escaped that need not be. */
const expr *json_rule_string_of(json_rules *j, const dfa *values);

const dfa *json_rule_all_texts(build *b); /* all values of strings */

#endif
