/* jinja_parse.h - tokens to a tree; jinja_scope.h then resolves its names */
#ifndef PUNICA_TEXT_JINJA_PARSE_H
#define PUNICA_TEXT_JINJA_PARSE_H

#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

/* Fills in body and symbols of p. Everything lies in r's arena. */
void jinja_parse(jinja_run *r, const token *tokens, jinja *p);

#endif
