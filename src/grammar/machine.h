/* machine.h - follows a grammar, byte by byte
 *
 * A text's position in its grammar is a set of items. An item is a state of some rule's automaton and the context in
 * which that rule was called; a context is the set of (state, context) pairs to return to. Contexts and sets of items
 * are hash-consed: each has a number, equal ones have the same number, and a step that has been taken is looked up from
 * then on. Calls of a rule at the same byte share one context: this is a graph-structured stack, so ambiguous grammars
 * take polynomial memory, as in an Earley parser.
 *
 * Grammars come from clients, so polynomial is still too much: a machine's work is bounded in steps of about 10 ns, and
 * its memory in bytes. Past a bound it is exhausted: every step that it has not taken before leads to PLACE_NONE.
 *
 * A place is the number that a machine gave to a set of items; it is valid until machine_keep(). One thread. */
#ifndef PUNICA_GRAMMAR_MACHINE_H
#define PUNICA_GRAMMAR_MACHINE_H

#include "grammar/grammar.h"

typedef struct machine machine;

typedef struct { int state, context; } machine_item;

enum { PLACE_NONE = -1 };                   /* no text of the grammar begins like this */
enum { CONTEXT_END = 0, CONTEXT_OPEN = 1 }; /* END: of the root rule, whose end ends the text; OPEN: caller unknown */

machine *machine_new(const grammar *g); /* g is borrowed */
void machine_free(machine *m);
size_t machine_bytes(const machine *m); /* of memory */

/* Sets how many steps the machine may take from now on; until the first call there is no limit. When fewer than 0 are
 * left it is exhausted. */
void machine_allow(machine *m, long steps);
long machine_steps_left(const machine *m);

/* Forgets all places but one and frees their memory. Returns that place's new number; PLACE_NONE: it is too large. */
int machine_keep(machine *m, int place);

int machine_begin(machine *m);               /* the place of the empty text */
int machine_begin_at(machine *m, int state); /* the place of a state in CONTEXT_OPEN */
int machine_after(machine *m, int context);  /* the place behind a rule called in this context, or PLACE_NONE */
int machine_next(machine *m, int place, uint8_t byte); /* the place behind the byte, or PLACE_NONE */

/* Returns machine_next() of a place as a table, [256], for loops over many bytes; PLACE_UNKNOWN: call machine_next().
 * Valid until machine_keep(). */
enum { PLACE_UNKNOWN = -2 };
const int *machine_steps(machine *m, int place);

bool machine_may_end(const machine *m, int place); /* the text may end here */
bool machine_leaves(const machine *m, int place);  /* a rule called in CONTEXT_OPEN may end here */

/* Returns the items of a place, [*n], without those that calls lead to. Valid until the next call. */
const machine_item *machine_items(const machine *m, int place, int *n);

#endif
