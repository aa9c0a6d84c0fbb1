/* jinja_lex.h - the text of a template as tokens, with white space control already applied */
#ifndef PUNICA_TEXT_JINJA_LEX_H
#define PUNICA_TEXT_JINJA_LEX_H

#include "text/jinja_value.h"

typedef enum {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
} token_kind;

typedef struct {
    token_kind kind;
    int line;
    value constant; /* DATA, STRING, INT, FLOAT */
    const char *s;  /* [n] a name, or an operator; borrowed: from the source */
    size_t n;
} token;

/* Returns all tokens, the last of which is TOKEN_END. They and what they borrow lie in r's arena. */
token *jinja_lex(jinja_run *r, const char *source, size_t n);

#endif
