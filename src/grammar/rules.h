/* rules.h - the rules of a grammar while it is compiled
 *
 * A rule gets its number when it is first named and its expression later, so that rules can call each other. */
#ifndef PUNICA_GRAMMAR_RULES_H
#define PUNICA_GRAMMAR_RULES_H

#include "grammar/expr.h"

typedef struct {
    const char *name;
    const expr *body; /* NULL: not known yet */
} grammar_rule;
typedef struct {
    build *b;
    grammar_rule *at;
    int n, cap;
} rules;

/* Adds a rule and returns its number. body may be NULL until it is known. */
static inline int rules_add(rules *r, const char *name, const expr *body)
{
    r->at = build_grow(r->b, r->at, &r->cap, r->n + 1, sizeof *r->at);
    r->at[r->n] = (grammar_rule){name, body};
    return r->n++;
}

#endif
