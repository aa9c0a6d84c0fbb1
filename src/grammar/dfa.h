/* dfa.h - deterministic automata over bytes, and over calls of rules
 *
 * An expression becomes an NFA (Thompson), then a DFA (subset construction). A rule of a grammar may call others: a
 * call is an arc with the rule's number on it. An automaton without calls is a regular language, and languages can be
 * intersected and subtracted: that is how a pattern, a length and a list of forbidden names become one automaton. */
#ifndef PUNICA_GRAMMAR_DFA_H
#define PUNICA_GRAMMAR_DFA_H

#include "grammar/expr.h"

typedef struct {
    uint8_t lo, hi;
    int to;
} dfa_arc;
typedef struct { int rule, to; } dfa_call;

/* State 0 is the start. A byte without an arc is refused. */
struct dfa {
    int n;            /* states */
    int *arc_indptr;  /* [n + 1] */
    dfa_arc *arc;     /* each state's are sorted by lo and disjoint */
    int *call_indptr; /* [n + 1] */
    dfa_call *call;   /* each state has at most one for each rule */
    bool *accepts;    /* [n] */
};

/* dfa_of() in two parts, for rules that call each other: which of them are nullable, that is, match the empty text, has
 * to be known before the second part. nullable is indexed by rule; NULL: none is. */
typedef struct nfa nfa;
nfa *nfa_of(build *b, const expr *x);
bool nfa_is_nullable(build *b, const nfa *a, const bool *nullable);
/* Makes the DFA, in which a call of a nullable rule can be skipped. */
const dfa *nfa_determinise(build *b, const nfa *a, const bool *nullable);

/* Returns the language of an expression without rules. */
const dfa *dfa_of(build *b, const expr *x);

const dfa *dfa_and(build *b, const dfa *x, const dfa *y);
const dfa *dfa_minus(build *b, const dfa *x, const dfa *y);
const dfa *dfa_or(build *b, const dfa *x, const dfa *y);
bool dfa_is_empty(build *b, const dfa *x);
bool dfa_matches(const dfa *x, const char *text, size_t n);

/* Returns the state after a byte, or -1 when it is refused. */
int dfa_next(const dfa *x, int state, uint8_t byte);

#endif
