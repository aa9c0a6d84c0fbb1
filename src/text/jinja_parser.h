/* jinja_parser.h - what the two halves of the parser share: the current token, and making nodes
 *
 * jinja_parse.c reads statements, jinja_expr.c expressions. */
#ifndef PUNICA_TEXT_JINJA_PARSER_H
#define PUNICA_TEXT_JINJA_PARSER_H

#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

typedef struct {
    jinja_run *r;
    jinja *p;
    const token *t; /* the current one */
    dict *symbols;  /* names to numbers */
    size_t cap_symbols;
    int loops; /* how many {% for %} of the same macro this place lies in */
} parser;

/* Tokens. */

_Noreturn void parser_fail_expected(parser *p, const char *what); /* "expected WHAT, got ..." */
const token *parser_next(parser *p); /* returns the current token and moves on, but not past the last */
bool token_is(const token *t, token_kind kind, const char *s);
bool parser_at_op(const parser *p, const char *op);
bool parser_at_name(const parser *p, const char *name);
bool parser_skip_op(parser *p, const char *op); /* skips op if it is the current token; returns whether it was */
bool parser_skip_name(parser *p, const char *name);
void parser_expect_op(parser *p, const char *op);
const token *parser_expect(parser *p, token_kind kind, const char *what);

/* Nodes. */

jinja_node *jinja_node_new(parser *p, node_kind kind, int line);
jinja_node *node_new2(parser *p, node_kind kind, int line, jinja_node *a, jinja_node *b);
void jinja_node_list_add(parser *p, node_list *l, jinja_node *n);
int parser_symbol(parser *p, const str *name); /* the name's number; a new name gets one */
int parser_symbol_named(parser *p, const char *name);
const str *parser_name(parser *p, const token *t);

/* Expressions. */

jinja_node *parse_expression(parser *p);
jinja_node *parse_tuple(parser *p, bool with_cond, bool in_parentheses); /* an expression, or several with commas */
jinja_node *parse_filter(parser *p, jinja_node *in); /* the filter whose name comes next, applied to `in` */
jinja_node *parse_word(parser *p);                   /* a name, or true, false, none */

#endif
