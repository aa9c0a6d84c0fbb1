/* jinja_ast.c - see jinja_ast.h */
#include "text/jinja_ast.h"

#include <stdio.h>

static const char *const ops[] = {
    [OP_ADD] = "+", [OP_SUB] = "-",  [OP_MUL] = "*", [OP_DIV] = "/", [OP_FLOORDIV] = "//",
    [OP_MOD] = "%", [OP_POW] = "**", [OP_EQ] = "==", [OP_NE] = "!=", [OP_LT] = "<",
    [OP_LE] = "<=", [OP_GT] = ">",   [OP_GE] = ">=", [OP_IN] = "in", [OP_NOT_IN] = "not in",
};

/* The name of what a call calls, or NULL. */
static const str *name_called(const jinja_node *n)
{
    return n->a && (n->a->kind == EXPR_NAME || n->a->kind == EXPR_ATTRIBUTE) ? n->a->name : NULL;
}

static void describe_named(const char *what, const str *name, char *out, size_t size)
{
    if (name)
        snprintf(out, size, "%s '%.*s'", what, name->n < 60 ? (int)name->n : 60, name->s);
    else
        snprintf(out, size, "%s", what);
}

void jinja_node_describe(const jinja_node *n, char *out, size_t size)
{
    static const char *const words[] = {
        [EXPR_CONST] = "a constant",
        [EXPR_LIST] = "a list",
        [EXPR_TUPLE] = "a tuple",
        [EXPR_DICT] = "a dict",
        [EXPR_COND] = "if ... else",
        [EXPR_OR] = "or",
        [EXPR_AND] = "and",
        [EXPR_NOT] = "not",
        [EXPR_NEGATIVE] = "-",
        [EXPR_POSITIVE] = "+",
        [EXPR_CONCAT] = "~",
        [EXPR_ITEM] = "[...]",
        [EXPR_SLICE] = "[...]",
        [STMT_TEXT] = "text",
        [STMT_PRINT] = "{{ ... }}",
        [STMT_IF] = "{% if %}",
        [STMT_FOR] = "{% for %}",
        [STMT_SET] = "{% set %}",
        [STMT_SET_BLOCK] = "{% set %}",
        [STMT_MACRO] = "{% macro %}",
        [STMT_CALL_BLOCK] = "{% call %}",
        [STMT_FILTER_BLOCK] = "{% filter %}",
        [STMT_WITH] = "{% with %}",
        [STMT_SCOPE] = "a block",
        [STMT_BREAK] = "{% break %}",
        [STMT_CONTINUE] = "{% continue %}",
        [TARGET_ATTRIBUTE] = "{% set %}",
    };
    if (!n) {
        out[0] = '\0';
        return;
    }
    switch (n->kind) {
    case EXPR_NAME: describe_named("variable", n->name, out, size); break;
    case EXPR_ATTRIBUTE: describe_named("attribute", n->name, out, size); break;
    case EXPR_FILTER: describe_named("filter", n->name, out, size); break;
    case EXPR_TEST: describe_named("test", n->name, out, size); break;
    case EXPR_CALL: describe_named("call of", name_called(n), out, size); break;
    case EXPR_BINARY:
    case EXPR_COMPARE: snprintf(out, size, "operator %s", ops[n->op[0]]); break;
    default: snprintf(out, size, "%s", words[n->kind]);
    }
}
