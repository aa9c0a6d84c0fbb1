/* jinja_expr.c - expressions of a template, by recursive descent; precedence as Jinja's */
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_parser.h"
#include "text/jinja_str.h"
#include "text/jinja_tests.h"

/* Expressions, from the loosest to the tightest. */

static jinja_node *make_const(parser *p, int line, value v)
{
    jinja_node *n = jinja_node_new(p, EXPR_CONST, line);
    n->constant = v;
    if (v.kind == VALUE_STRING)
        str_chars(v.s); /* counted now: the program is read by several threads */
    return n;
}

static jinja_node *make_name(parser *p, const token *t)
{
    jinja_node *n = jinja_node_new(p, EXPR_NAME, t->line);
    n->name = parser_name(p, t);
    n->symbol = parser_symbol(p, n->name);
    return n;
}

static jinja_node *parse_or(parser *p);
static jinja_node *parse_unary(parser *p, bool with_filters);
static jinja_node *parse_primary(parser *p);
static jinja_node *parse_postfix(parser *p, jinja_node *n);

jinja_node *parse_expression(parser *p)
{
    int line = p->t->line;
    jinja_run_enter(p->r);
    jinja_node *n = parse_or(p);
    while (parser_skip_name(p, "if")) {
        jinja_node *cond = node_new2(p, EXPR_COND, line, parse_or(p), n);
        if (parser_skip_name(p, "else"))
            cond->c = parse_expression(p);
        n = cond;
    }
    jinja_run_leave(p->r);
    return n;
}

static jinja_node *parse_not(parser *p);

static jinja_node *parse_and(parser *p)
{
    jinja_node *n = parse_not(p);
    while (parser_at_name(p, "and")) {
        int line = parser_next(p)->line;
        n = node_new2(p, EXPR_AND, line, n, parse_not(p));
    }
    return n;
}

static jinja_node *parse_or(parser *p)
{
    jinja_node *n = parse_and(p);
    while (parser_at_name(p, "or")) {
        int line = parser_next(p)->line;
        n = node_new2(p, EXPR_OR, line, n, parse_and(p));
    }
    return n;
}

typedef struct {
    const char *text;
    op_kind op;
} op_name;

/* Skips an operator of the table and returns it; -1: none of them is here. */
static int skip_operator(parser *p, const op_name *ops, int n)
{
    for (int i = 0; i < n; i++)
        if (parser_skip_op(p, ops[i].text))
            return (int)ops[i].op;
    return -1;
}

static int skip_comparison(parser *p)
{
    static const op_name ops[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                                  {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    if (parser_skip_name(p, "in"))
        return OP_IN;
    if (parser_at_name(p, "not") && token_is(p->t + 1, TOKEN_NAME, "in")) {
        parser_next(p);
        parser_next(p);
        return OP_NOT_IN;
    }
    return skip_operator(p, ops, 6);
}

static jinja_node *parse_binary(parser *p, int level);

static jinja_node *parse_compare(parser *p)
{
    enum { MAX_CHAIN = 32 };
    op_kind ops[MAX_CHAIN];
    int line = p->t->line;
    jinja_node *first = parse_binary(p, 0);
    jinja_node *n = NULL;
    for (int op; (op = skip_comparison(p)) >= 0;) {
        if (!n)
            n = node_new2(p, EXPR_COMPARE, line, first, NULL);
        if (n->list.n == MAX_CHAIN)
            jinja_run_fail(p->r, "too many comparisons in one");
        ops[n->list.n] = (op_kind)op;
        jinja_node_list_add(p, &n->list, parse_binary(p, 0));
    }
    if (!n)
        return first;
    n->op = JINJA_NEW_ARRAY(p->r, op_kind, (size_t)n->list.n);
    memcpy(n->op, ops, (size_t)n->list.n * sizeof *ops);
    return n;
}

static jinja_node *parse_not(parser *p)
{
    if (!parser_at_name(p, "not"))
        return parse_compare(p);
    jinja_run_enter(p->r);
    int line = parser_next(p)->line;
    jinja_node *n = node_new2(p, EXPR_NOT, line, parse_not(p), NULL);
    jinja_run_leave(p->r);
    return n;
}

static jinja_node *parse_concat(parser *p)
{
    int line = p->t->line;
    jinja_node *first = parse_binary(p, 1), *n = NULL;
    while (parser_skip_op(p, "~")) {
        if (!n) {
            n = jinja_node_new(p, EXPR_CONCAT, line);
            jinja_node_list_add(p, &n->list, first);
        }
        jinja_node_list_add(p, &n->list, parse_binary(p, 1));
    }
    return n ? n : first;
}

/* Parses an operand of a level. 0: + and -, whose operands are concatenations; 1: * / // %; 2: ** (from left to right,
 * as in Jinja). */
static jinja_node *parse_operand(parser *p, int level)
{
    return level == 0 ? parse_concat(p) : level == 1 ? parse_binary(p, 2) : parse_unary(p, true);
}

static jinja_node *parse_binary(parser *p, int level)
{
    static const op_name ops[3][4] = {{{"+", OP_ADD}, {"-", OP_SUB}},
                                      {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}},
                                      {{"**", OP_POW}}};
    static const int n_ops[] = {2, 4, 1};
    jinja_node *left = parse_operand(p, level);
    for (int op, line = p->t->line; (op = skip_operator(p, ops[level], n_ops[level])) >= 0; line = p->t->line) {
        left = node_new2(p, EXPR_BINARY, line, left, NULL);
        left->op = JINJA_NEW(p->r, op_kind);
        *left->op = (op_kind)op;
        left->b = parse_operand(p, level);
    }
    return left;
}

/* Calls, filters, tests. */

static void add_named(parser *p, call_args *a, named_node n)
{
    if ((a->n_named & (a->n_named - 1)) == 0) {
        named_node *more = JINJA_NEW_ARRAY(p->r, named_node, a->n_named ? 2 * (size_t)a->n_named : 1);
        if (a->n_named)
            memcpy(more, a->named, (size_t)a->n_named * sizeof *more);
        a->named = more;
    }
    a->named[a->n_named++] = n;
}

static void parse_argument(parser *p, call_args *a)
{
    bool is_named = p->t->kind == TOKEN_NAME && token_is(p->t + 1, TOKEN_OPERATOR, "=");
    bool too_late = is_named ? a->star_star != NULL : a->star_star || (!parser_at_op(p, "**") && a->star);
    if (too_late || (!is_named && !parser_at_op(p, "*") && !parser_at_op(p, "**") && a->n_named))
        jinja_run_fail(p->r, "arguments in an order that cannot be");
    if (parser_skip_op(p, "*")) {
        a->star = parse_expression(p);
    } else if (parser_skip_op(p, "**")) {
        a->star_star = parse_expression(p);
    } else if (is_named) {
        const str *name = parser_name(p, parser_next(p));
        parser_next(p);
        for (int i = 0; i < a->n_named; i++)
            if (str_equal(a->named[i].name, name))
                jinja_run_fail(p->r, "keyword argument '%.*s' is given twice", (int)name->n, name->s);
        add_named(p, a, (named_node){name, parse_expression(p)});
    } else {
        jinja_node_list_add(p, &a->at, parse_expression(p));
    }
}

static call_args *parse_arguments(parser *p)
{
    call_args *a = JINJA_NEW(p->r, call_args);
    *a = (call_args){0};
    parser_expect_op(p, "(");
    for (bool first = true; !parser_at_op(p, ")"); first = false) {
        if (!first) {
            parser_expect_op(p, ",");
            if (parser_at_op(p, ")"))
                break;
        }
        parse_argument(p, a);
    }
    parser_next(p);
    return a;
}

static jinja_node *parse_call(parser *p, jinja_node *callee)
{
    jinja_node *n = node_new2(p, EXPR_CALL, p->t->line, callee, NULL);
    n->args = parse_arguments(p);
    return n;
}

/* Parses a name with dots, as filters and tests may have. */
static const str *parse_dotted(parser *p)
{
    text out = {.r = p->r};
    const token *t = parser_expect(p, TOKEN_NAME, "a name");
    text_add(&out, t->s, t->n);
    while (parser_skip_op(p, ".")) {
        t = parser_expect(p, TOKEN_NAME, "a name");
        text_add(&out, ".", 1);
        text_add(&out, t->s, t->n);
    }
    const str *s = text_value(&out).s;
    str_chars(s);
    return s;
}

static call_args *no_arguments(parser *p)
{
    call_args *a = JINJA_NEW(p->r, call_args);
    *a = (call_args){0};
    return a;
}

/* Parses the filter whose name comes next, applied to `in`. */
jinja_node *parse_filter(parser *p, jinja_node *in)
{
    jinja_node *n = node_new2(p, EXPR_FILTER, p->t->line, in, NULL);
    n->name = parse_dotted(p);
    n->filter = filter_find(n->name);
    n->args = parser_at_op(p, "(") ? parse_arguments(p) : no_arguments(p);
    return n;
}

static bool begins_test_argument(const parser *p)
{
    switch (p->t->kind) {
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT: return true;
    case TOKEN_NAME: return !parser_at_name(p, "else") && !parser_at_name(p, "or") && !parser_at_name(p, "and");
    default: return parser_at_op(p, "[") || parser_at_op(p, "{");
    }
}

static jinja_node *parse_test(parser *p, jinja_node *in)
{
    int line = parser_next(p)->line;
    bool negated = parser_skip_name(p, "not");
    jinja_node *n = node_new2(p, EXPR_TEST, line, in, NULL);
    n->name = parse_dotted(p);
    n->test = test_find(n->name);
    if (parser_at_op(p, "(")) {
        n->args = parse_arguments(p);
    } else {
        n->args = no_arguments(p);
        if (parser_at_name(p, "is"))
            jinja_run_fail(p->r, "a test of a test needs parentheses");
        if (begins_test_argument(p))
            jinja_node_list_add(p, &n->args->at, parse_postfix(p, parse_primary(p)));
    }
    return negated ? node_new2(p, EXPR_NOT, line, n, NULL) : n;
}

static jinja_node *parse_filters(parser *p, jinja_node *n)
{
    for (;;) {
        if (parser_skip_op(p, "|"))
            n = parse_filter(p, n);
        else if (parser_at_name(p, "is"))
            n = parse_test(p, n);
        else if (parser_at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static bool at_subscript_end(const parser *p)
{
    return parser_at_op(p, "]") || parser_at_op(p, ",") || parser_at_op(p, ":");
}

/* Parses an index, or start:stop:step. */
static jinja_node *parse_subscript(parser *p)
{
    int line = p->t->line;
    jinja_node *start = parser_at_op(p, ":") ? NULL : parse_expression(p);
    if (!parser_skip_op(p, ":"))
        return start;
    jinja_node *n = node_new2(p, EXPR_SLICE, line, start, NULL);
    if (!at_subscript_end(p))
        n->b = parse_expression(p);
    if (parser_skip_op(p, ":") && !at_subscript_end(p))
        n->c = parse_expression(p);
    return n;
}

static jinja_node *parse_item(parser *p, jinja_node *of, int line)
{
    node_list keys = {0};
    while (!parser_at_op(p, "]")) {
        if (keys.n)
            parser_expect_op(p, ",");
        jinja_node_list_add(p, &keys, parse_subscript(p));
    }
    parser_next(p);
    jinja_node *key = keys.n == 1 ? keys.at[0] : jinja_node_new(p, EXPR_TUPLE, line);
    if (keys.n != 1)
        key->list = keys;
    for (int i = 0; keys.n > 1 && i < keys.n; i++)
        if (keys.at[i]->kind == EXPR_SLICE)
            jinja_run_fail(p->r, "a slice among several indexes");
    return node_new2(p, EXPR_ITEM, line, of, key);
}

static jinja_node *parse_attribute(parser *p, jinja_node *of, int line)
{
    const token *t = parser_next(p);
    if (t->kind == TOKEN_INT)
        return node_new2(p, EXPR_ITEM, line, of, make_const(p, line, t->constant));
    if (t->kind != TOKEN_NAME)
        jinja_run_fail(p->r, "expected name or number behind the dot");
    jinja_node *n = node_new2(p, EXPR_ATTRIBUTE, line, of, NULL);
    n->name = parser_name(p, t);
    return n;
}

static jinja_node *parse_postfix(parser *p, jinja_node *n)
{
    for (;;) {
        int line = p->t->line;
        if (parser_skip_op(p, "."))
            n = parse_attribute(p, n, line);
        else if (parser_skip_op(p, "["))
            n = parse_item(p, n, line);
        else if (parser_at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static jinja_node *parse_unary(parser *p, bool with_filters)
{
    int line = p->t->line;
    jinja_node *n;
    jinja_run_enter(p->r);
    if (parser_skip_op(p, "-"))
        n = node_new2(p, EXPR_NEGATIVE, line, parse_unary(p, false), NULL);
    else if (parser_skip_op(p, "+"))
        n = node_new2(p, EXPR_POSITIVE, line, parse_unary(p, false), NULL);
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filters(p, n);
    jinja_run_leave(p->r);
    return n;
}

/* Literals. */

jinja_node *parse_word(parser *p)
{
    static const struct {
        const char *name;
        value_kind kind;
        bool b;
    } words[] = {
        {"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true},  {"false", VALUE_BOOL, false},
        {"False", VALUE_BOOL, false}, {"none", VALUE_NONE, false}, {"None", VALUE_NONE, false},
    };
    const token *t = parser_next(p);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (token_is(t, TOKEN_NAME, words[i].name))
            return make_const(p, t->line, (value){.kind = words[i].kind, .b = words[i].b});
    if (t->s[0] >= '0' && t->s[0] <= '9')
        jinja_run_fail(p->r, "a name cannot begin with a digit");
    return make_name(p, t);
}

/* Parses a string. Adjacent strings are concatenated. */
static jinja_node *parse_string(parser *p)
{
    const token *t = parser_next(p);
    const str *s = t->constant.s;
    while (p->t->kind == TOKEN_STRING)
        s = str_concat(p->r, s, parser_next(p)->constant.s);
    return make_const(p, t->line, value_str(str_copy(p->r, s->s, s->n)));
}

static jinja_node *parse_list(parser *p)
{
    jinja_node *n = jinja_node_new(p, EXPR_LIST, parser_next(p)->line);
    while (!parser_at_op(p, "]")) {
        if (n->list.n)
            parser_expect_op(p, ",");
        if (!parser_at_op(p, "]"))
            jinja_node_list_add(p, &n->list, parse_expression(p));
    }
    parser_next(p);
    return n;
}

static jinja_node *parse_dict(parser *p)
{
    jinja_node *n = jinja_node_new(p, EXPR_DICT, parser_next(p)->line);
    while (!parser_at_op(p, "}")) {
        if (n->list.n)
            parser_expect_op(p, ",");
        if (parser_at_op(p, "}"))
            break;
        jinja_node_list_add(p, &n->list, parse_expression(p));
        parser_expect_op(p, ":");
        jinja_node_list_add(p, &n->list, parse_expression(p));
    }
    parser_next(p);
    return n;
}

static jinja_node *parse_primary(parser *p)
{
    switch (p->t->kind) {
    case TOKEN_NAME: return parse_word(p);
    case TOKEN_STRING: return parse_string(p);
    case TOKEN_INT:
    case TOKEN_FLOAT: {
        const token *t = parser_next(p);
        return make_const(p, t->line, t->constant);
    }
    default: break;
    }
    if (parser_at_op(p, "["))
        return parse_list(p);
    if (parser_at_op(p, "{"))
        return parse_dict(p);
    if (!parser_skip_op(p, "("))
        parser_fail_expected(p, "an expression");
    jinja_node *n = parse_tuple(p, true, true);
    parser_expect_op(p, ")");
    return n;
}

static bool at_tuple_end(const parser *p)
{
    return p->t->kind == TOKEN_PRINT_END || p->t->kind == TOKEN_BLOCK_END || parser_at_op(p, ")") ||
           parser_at_name(p, "recursive");
}

/* Parses an expression, or a tuple: several with commas. */
jinja_node *parse_tuple(parser *p, bool with_cond, bool in_parentheses)
{
    jinja_node *n = jinja_node_new(p, EXPR_TUPLE, p->t->line);
    bool is_tuple = false;
    while (!at_tuple_end(p) || (n->list.n == 0 && parser_at_name(p, "recursive"))) {
        jinja_node_list_add(p, &n->list, with_cond ? parse_expression(p) : parse_or(p));
        if (!parser_skip_op(p, ","))
            break;
        is_tuple = true;
    }
    if (!is_tuple && n->list.n)
        return n->list.at[0];
    if (!is_tuple && !in_parentheses)
        parser_fail_expected(p, "an expression");
    return n;
}
