/* machine.h - a grammar being followed, byte by byte
 *
 * Where a text stands in its grammar is a set of items: a state of some rule's automaton, and the context in which that
 * rule was called. A context is the set of places to return to: (state, context) pairs. Contexts and sets of items are
 * hash-consed, so each is a number, equal ones are the same number, and a step is looked up once it has been taken.
 * Where several ways into a rule meet they share one context: this is a graph-structured stack, and ambiguous grammars
 * take polynomial room, as with Earley's parser.
 *
 * Polynomial is more than there is time for where texts come from clients. So the work of a machine is bounded in
 * steps, about 10 ns each, and in memory: past that it is exhausted, and whatever it would have to find out is
 * PLACE_NONE.
 *
 * A place is a number that a machine gave for a set of items; it holds until machine_keep(). One thread. */
#ifndef PUNICA_GRAMMAR_MACHINE_H
#define PUNICA_GRAMMAR_MACHINE_H

#include "grammar/grammar.h"

typedef struct machine machine;

typedef struct { int state, context; } machine_item;

enum { PLACE_NONE = -1 };                   /* no text goes on like this */
enum { CONTEXT_END = 0, CONTEXT_OPEN = 1 }; /* whose rule's end is the end of all; whose end is not known */

machine *machine_new(const grammar *g); /* g is borrowed */
void machine_free(machine *m);
size_t machine_bytes(const machine *m); /* of memory */

/* How many steps it may take from now on; as many as it likes until this is called. Below 0: it is exhausted. */
void machine_allow(machine *m, long steps);
long machine_steps_left(const machine *m);

/* Forgets all places but one, and the memory they took; returns what that one is from now on. */
int machine_keep(machine *m, int place);

int machine_begin(machine *m);               /* where an empty text stands */
int machine_begin_at(machine *m, int state); /* in a state, called from nobody knows where */
int machine_after(machine *m, int context);  /* behind a rule that was called in this context; may be PLACE_NONE */
int machine_next(machine *m, int place, uint8_t byte); /* or PLACE_NONE */

/* [256] The same as a table, for loops over many bytes; PLACE_UNKNOWN: ask machine_next(). Until machine_keep(). */
enum { PLACE_UNKNOWN = -2 };
const int *machine_steps(machine *m, int place);

bool machine_may_end(const machine *m, int place); /* the text may end here */
bool machine_leaves(const machine *m, int place);  /* a rule of CONTEXT_OPEN may end here */

/* The items of a place, before calls are followed. Valid until the next call. */
const machine_item *machine_items(const machine *m, int place, int *n);

#endif
