/* expr.h - regular expressions over bytes and calls of rules: what all grammars are translated into
 *
 * Schemas, regular expressions and GBNF are all translated into expressions. A character appears as its UTF-8 bytes, so
 * that every match is valid UTF-8 and a token may begin or end within a character. Expressions are immutable and live
 * in the build's arena. */
#ifndef PUNICA_GRAMMAR_EXPR_H
#define PUNICA_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/build.h"

typedef enum {
    EXPR_NEVER, /* nothing matches */
    EXPR_EMPTY,
    EXPR_BYTES, /* one byte of lo..hi */
    EXPR_SEQUENCE,
    EXPR_CHOICE, /* of part[n] */
    EXPR_REPEAT, /* part[0], min to max times; max REPEAT_ANY: without end */
    EXPR_RULE,   /* what a rule of the grammar matches, by number */
    EXPR_DFA,    /* what an automaton without calls accepts */
    EXPR_GRAPH,  /* a generalised NFA: the labels along any path from node 0 to node 1 */
} expr_kind;

#define REPEAT_ANY (-1)
#define REPEAT_MOST 10000 /* times that a text may ask for */
#define REPEAT_TOO_MANY "a repetition of more than 10000"

typedef struct expr expr;
typedef struct dfa dfa;
typedef struct {
    int from, to;
    const expr *label;
} expr_edge; /* label NULL: matches the empty text */

struct expr {
    expr_kind kind;
    uint8_t lo, hi;
    int min, max, rule;
    int n; /* parts, or edges */
    const expr **part;
    const dfa *automaton;
    int n_nodes;
    expr_edge *edge; /* EXPR_GRAPH: [n] */
};

const expr *expr_never(build *b);
const expr *expr_empty(build *b);
const expr *expr_bytes(build *b, int lo, int hi);
const expr *expr_text(build *b, const char *text, size_t n);
const expr *expr_str(build *b, const char *text);
const expr *expr_sequence(build *b, int n, const expr *const *part);
const expr *expr_choice(build *b, int n, const expr *const *part);
const expr *expr_repeat(build *b, const expr *x, int min, int max);
const expr *expr_rule(build *b, int rule);
const expr *expr_dfa(build *b, const dfa *a);
const expr *expr_concat(build *b, const expr *x, const expr *y); /* x, then y */
const expr *expr_either(build *b, const expr *x, const expr *y); /* NULL counts as never */

/* An EXPR_GRAPH that is built edge by edge. */
typedef struct {
    build *b;
    int n_nodes, n, cap;
    expr_edge *edge;
} graph;
graph graph_new(build *b); /* with nodes 0 (entry) and 1 (exit) */
int graph_node(graph *g);
void graph_edge(graph *g, int from, int to, const expr *label);
const expr *graph_done(graph *g);

/* A set of characters. */
typedef struct { uint32_t lo, hi; } char_range;
typedef struct {
    char_range *range;
    int n, cap;
} char_set;
void char_set_add(build *b, char_set *s, uint32_t lo, uint32_t hi);
void char_set_invert(build *b, char_set *s);         /* the complement; surrogates are not characters */
const expr *expr_chars(build *b, const char_set *s); /* one character of the set, as UTF-8 */
const expr *expr_any_char(build *b);

/* Reads the character at *s and moves *s past it. Returns -1 at `end` and for invalid UTF-8. */
long char_next(const char **s, const char *end);

#endif
