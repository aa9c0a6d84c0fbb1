/* jinja_eval.h - runs the tree: scopes, loops, macros, calls */
#ifndef PUNICA_TEXT_JINJA_EVAL_H
#define PUNICA_TEXT_JINJA_EVAL_H

#include "text/jinja_ast.h"

/* Call a function, a macro or a recursive loop. */
value eval_call(jinja_run *r, value callee, const jinja_arguments *a);
bool value_is_callable(value v);

/* Return loop.NAME and macro.NAME; MISSING: there is none. */
value jinja_loop_attribute(jinja_run *r, jinja_loop *l, const str *name);
value jinja_macro_attribute(jinja_run *r, const jinja_macro *m, const str *name);
int64_t jinja_loop_length(jinja_run *r, jinja_loop *l);

void object_write(text *t, value v); /* repr() of a loop, a macro, a function and the like */

/* Bind the arguments to the parameters in names (separated by spaces), of which the first n_needed must be given.
 * out: [number of names], MISSING for what is not given. Any other argument is an error; its message names `what`.
 * The second takes no keywords, like most of Python's methods; the third no arguments at all. */
void jinja_args_bind(jinja_run *r, const char *what, const jinja_arguments *a, int n_needed, const char *names,
                     value *out);
void jinja_args_bind_positional(jinja_run *r, const char *what, const jinja_arguments *a, int n_needed,
                                const char *names, value *out);
void jinja_args_none(jinja_run *r, const char *what, const jinja_arguments *a);

/* Run the program and append its text to out. own: see jinja_input. */
void eval_program(jinja_run *r, const jinja *p, const json_t *variables, const json_t *own, text *out);

#endif
