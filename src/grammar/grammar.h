/* grammar.h - a formal grammar that constrains an output: written in one of five ways, compiled into automata
 *
 *   JSON Schema ─┐
 *   regex, GBNF ─┼─▶ expressions (expr.h) ─▶ an automaton for each rule (dfa.h) ─▶ grammar ─▶ guide.h: masks over tokens
 *   choice      ─┘
 *
 * A grammar is a recursive transition network: automata over bytes that call each other. It is immutable; any number of
 * threads may read it. */
#ifndef PUNICA_GRAMMAR_GRAMMAR_H
#define PUNICA_GRAMMAR_GRAMMAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The numbers cross the wire. */
typedef enum {
    GRAMMAR_NONE = 0,
    GRAMMAR_JSON = 1,   /* any JSON object; no text */
    GRAMMAR_SCHEMA = 2, /* JSON Schema, as JSON */
    GRAMMAR_REGEX = 3,  /* the whole output matches */
    GRAMMAR_CHOICE = 4, /* a JSON list of strings, one of which is the output */
    GRAMMAR_GBNF = 5,
} grammar_kind;

#define GRAMMAR_MAX_TEXT (1u << 20) /* bytes */

typedef struct {
    uint8_t lo, hi;
    int to;
} grammar_arc;
typedef struct { int rule, to; } grammar_call;

typedef struct {
    int n_states, n_rules, root;
    int *arc_indptr; /* [n_states + 1] */
    grammar_arc *arc;
    int *call_indptr; /* [n_states + 1] */
    grammar_call *call;
    bool *accepts; /* [n_states] the rule may end here */
    int *start;    /* [n_rules] its first state */
    int *rank;     /* [n_rules] topological: below that of any rule that it calls before it reads a byte */
} grammar;

/* Compiles a grammar; free with grammar_free(). Returns NULL with e set when the text is wrong, asks for something that
 * is not served (e names it), matches nothing or is too large, and soon after *stop becomes true (stop may be NULL). */
grammar *grammar_compile(grammar_kind kind, const char *text, size_t n, const atomic_bool *stop, err *e);

/* Compiles a grammar on a thread on which others wait: gives up after a tenth of grammar_compile()'s budget of work,
 * which is more than most grammars take, and then returns NULL with e and *takes_long set. */
grammar *grammar_compile_soon(grammar_kind kind, const char *text, size_t n, bool *takes_long, err *e);

size_t grammar_bytes(const grammar *g); /* of memory */
void grammar_free(grammar *g);

#endif
