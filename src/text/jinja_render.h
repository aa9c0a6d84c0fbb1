/* jinja_render.h - the state of a render, for the files that walk the tree: jinja_eval, jinja_loop, jinja_macro */
#ifndef PUNICA_TEXT_JINJA_RENDER_H
#define PUNICA_TEXT_JINJA_RENDER_H

#include "text/jinja_ast.h"

typedef struct {
    int symbol;
    value value;
} binding;

/* Names set in one scope: the program, a macro's call, a loop's body, ... */
typedef struct scope scope;
struct scope {
    scope *around;
    binding *at; /* [n] */
    int n, cap;
};

typedef struct render {
    const jinja *p;
    value *variable; /* [n_symbols] what is outside of all scopes: variables, global functions; MISSING: neither */
    scope *scope;    /* the innermost */
    text *out;       /* where output goes: the prompt, or what a macro or block is collecting */
} render;

typedef enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

struct jinja_macro {
    const macro_code *code;
    scope *around;
};

void scope_set(jinja_run *r, scope *s, int symbol, value v);
scope *scope_enter(jinja_run *r, scope *around, const symbol_list *unset); /* makes a new innermost one */
void scope_restart(jinja_run *r, scope *s, const symbol_list *unset);      /* empties it */

/* Makes errors from here on name this node and its line. */
static inline void eval_at(jinja_run *r, const jinja_node *n)
{
    r->at = n;
    r->line = n->line;
}

value eval_node(jinja_run *r, const jinja_node *n);
flow eval_body(jinja_run *r, const node_list *body);
void eval_assign(jinja_run *r, const jinja_node *target, value v); /* in the innermost scope */

/* Redirects output to t, which it makes empty. Returns where output went before, for eval_collect_end(). */
text *eval_collect(jinja_run *r, text *t);
void eval_collect_end(jinja_run *r, text *before);

/* Evaluates the arguments of a call and adds the keyword extra, if it has a name. */
jinja_arguments eval_args(jinja_run *r, const call_args *a, keyword extra);

value jinja_macro_new(jinja_run *r, const macro_code *code);
value jinja_macro_call(jinja_run *r, const jinja_macro *m, const jinja_arguments *a);

/* Runs a {% for %}; runs loop(...) inside of a recursive one and returns its output. */
flow jinja_loop_run(jinja_run *r, const jinja_node *code);
value jinja_loop_recurse(jinja_run *r, jinja_loop *l, const jinja_arguments *a);

#endif
