/* jinja_ast.h - a compiled template: a tree of nodes in the program's arena, immutable once it is made */
#ifndef PUNICA_TEXT_JINJA_AST_H
#define PUNICA_TEXT_JINJA_AST_H

#include "text/jinja.h"
#include "text/jinja_value.h"

typedef struct jinja_node jinja_node;
typedef struct {
    jinja_node **at;
    int n;
} node_list;

/* The kinds of nodes, and which fields of a node each of them uses. */
typedef enum {
    EXPR_CONST, /* constant */
    EXPR_NAME,  /* symbol */
    EXPR_LIST,
    EXPR_TUPLE, /* list */
    EXPR_DICT,  /* list: keys and values in turn */
    EXPR_COND,  /* b if a else c (or NULL) */
    EXPR_OR,
    EXPR_AND, /* a, b */
    EXPR_NOT,
    EXPR_NEGATIVE,
    EXPR_POSITIVE,     /* a */
    EXPR_COMPARE,      /* a, list: the other operands, op: the operator before each */
    EXPR_BINARY,       /* a, op[0], b */
    EXPR_CONCAT,       /* list */
    EXPR_ATTRIBUTE,    /* a, name */
    EXPR_ITEM,         /* a[b] */
    EXPR_SLICE,        /* only as b of an item: a:b:c, NULL where one is left out */
    EXPR_CALL,         /* a, args */
    EXPR_FILTER,       /* a (NULL: the text of a block), name, filter, args */
    EXPR_TEST,         /* a, name, test, args */
    TARGET_ATTRIBUTE,  /* symbol, name: of a namespace */
    STMT_TEXT,         /* constant */
    STMT_PRINT,        /* a */
    STMT_IF,           /* a, body, other: an elif is an if inside of it */
    STMT_FOR,          /* target, a, b (its condition, or NULL), body, other, recursive */
    STMT_SET,          /* target, a */
    STMT_SET_BLOCK,    /* target, a (filters, or NULL), body */
    STMT_MACRO,        /* symbol, macro */
    STMT_CALL_BLOCK,   /* a (the call), macro: the body, which the macro called gets as `caller` */
    STMT_FILTER_BLOCK, /* a, body */
    STMT_WITH,         /* list: targets and values in turn, body */
    STMT_SCOPE,        /* body: of {% generation %} and {% autoescape false %} */
    STMT_BREAK,
    STMT_CONTINUE,
} node_kind;

typedef enum {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
} op_kind;

/* A filter or a test; in: the value before the bar or the "is". */
typedef value filter_body(jinja_run *r, value in, const jinja_arguments *a);
typedef bool test_body(jinja_run *r, value in, const jinja_arguments *a);

typedef struct {
    const str *name;
    jinja_node *value;
} named_node;

typedef struct {
    node_list at;
    named_node *named; /* [n_named] */
    int n_named;
    jinja_node *star, *star_star; /* *args, **kwargs; or NULL */
} call_args;

/* Names that are local to a scope (jinja_scope.h): unset when the scope is entered, even if a variable of the render
 * has the name. */
typedef struct {
    int *at;
    int n;
} symbol_list;

typedef struct {
    const str *name; /* NULL: a call block's */
    int *param;      /* [n_params] symbols */
    const str **param_name;
    int n_params;
    jinja_node **default_value; /* [n_defaults] the default values of the last parameters */
    int n_defaults;
    bool uses_caller, uses_kwargs, uses_varargs;
    int caller, kwargs, varargs; /* symbols of these names */
    node_list body;
    symbol_list unset;
} macro_code;

struct jinja_node {
    node_kind kind;
    int line;
    value constant;
    int symbol; /* index of a name in the program's table */
    const str *name;
    jinja_node *a, *b, *c, *target;
    node_list list, body, other;
    op_kind *op; /* [list.n], or one */
    call_args *args;
    filter_body *filter; /* NULL: there is none of this name */
    test_body *test;
    macro_code *macro;
    bool recursive;
    int loop;                       /* of a for: the symbol "loop" */
    symbol_list unset, other_unset; /* of body and other, where these are scopes */
};

struct jinja {
    arena mem;
    const str **symbol; /* [n_symbols] names */
    int n_symbols;
    node_list body;
    symbol_list unset;
};

/* Writes how errors call a node, e.g. "filter 'tojson'"; "" for NULL. */
void jinja_node_describe(const jinja_node *n, char *out, size_t size);

#endif
