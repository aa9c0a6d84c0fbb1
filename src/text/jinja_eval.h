/* jinja_eval.h - runs the tree: scopes, loops, macros, calls */
#ifndef PUNICA_TEXT_JINJA_EVAL_H
#define PUNICA_TEXT_JINJA_EVAL_H

#include "text/jinja_ast.h"

/* Calls a function, a macro or a recursive loop. */
value eval_call(jinja_run *r, value callee, const jinja_arguments *a);
bool value_is_callable(value v);

/* loop.NAME, macro.NAME; MISSING: there is none. */
value jinja_loop_attribute(jinja_run *r, jinja_loop *l, const str *name);
value jinja_macro_attribute(jinja_run *r, const jinja_macro *m, const str *name);
int64_t jinja_loop_length(jinja_run *r, jinja_loop *l);

void object_write(text *t, value v); /* repr() of what is no plain data */

/* Binds the arguments to parameters: names is a list with blanks between, of which the first n_needed must be given;
 * out: [as many as names], MISSING for what is not given. Fails, naming what, for anything else. The second takes no
 * keywords, as most of Python's methods. */
void jinja_args_bind(jinja_run *r, const char *what, const jinja_arguments *a, int n_needed, const char *names,
                     value *out);
void jinja_args_bind_positional(jinja_run *r, const char *what, const jinja_arguments *a, int n_needed,
                                const char *names, value *out);
void jinja_args_none(jinja_run *r, const char *what, const jinja_arguments *a);

/* Runs the program and appends its text to out. own: see jinja_input. */
void eval_program(jinja_run *r, const jinja *p, const json_t *variables, const json_t *own, text *out);

#endif
