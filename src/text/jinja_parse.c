/* jinja_parse.c - see jinja_parse.h */
#include "text/jinja_parse.h"

#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_str.h"
#include "text/jinja_tests.h"

typedef struct {
    run *r;
    jinja *p;
    const token *t;             /* the current one */
    dict *symbols;              /* names to numbers */
    size_t cap_symbols;
    int loops;                  /* {% for %} around this place, in the same macro */
} parser;

/* ---- tokens ---- */

/* A token as the source has it, for messages. */
static const char *describe(const token *t, char out[64])
{
    static const char *const words[] = {
        [TOKEN_END] = "the end of the template", [TOKEN_DATA] = "text", [TOKEN_PRINT_BEGIN] = "{{", [TOKEN_PRINT_END] = "}}",
        [TOKEN_BLOCK_BEGIN] = "{%", [TOKEN_BLOCK_END] = "%}", [TOKEN_STRING] = "a string", [TOKEN_INT] = "a number",
        [TOKEN_FLOAT] = "a number",
    };
    if (t->kind != TOKEN_NAME && t->kind != TOKEN_OPERATOR)
        return words[t->kind];
    size_t n = t->n < 40 ? t->n : 40;
    out[0] = '\'';
    memcpy(out + 1, t->s, n);
    memcpy(out + 1 + n, "'", 2);
    return out;
}

_Noreturn static void fail_expected(parser *p, const char *what)
{
    char got[64];
    p->r->line = p->t->line;
    run_fail(p->r, "expected %s, got %s", what, describe(p->t, got));
}

static const token *next(parser *p)
{
    const token *t = p->t;
    if (t->kind != TOKEN_END)
        p->t++;
    p->r->line = t->line;
    return t;
}

static bool token_is(const token *t, token_kind kind, const char *s)
{
    return t->kind == kind && t->n == strlen(s) && memcmp(t->s, s, t->n) == 0;
}

static bool at_op(const parser *p, const char *op)
{
    return token_is(p->t, TOKEN_OPERATOR, op);
}

static bool at_name(const parser *p, const char *name)
{
    return token_is(p->t, TOKEN_NAME, name);
}

static bool skip_op(parser *p, const char *op)
{
    bool is = at_op(p, op);
    if (is)
        next(p);
    return is;
}

static bool skip_name(parser *p, const char *name)
{
    bool is = at_name(p, name);
    if (is)
        next(p);
    return is;
}

static void expect_op(parser *p, const char *op)
{
    char quoted[8] = "'";
    memcpy(quoted + 1, op, strlen(op));
    memcpy(quoted + 1 + strlen(op), "'", 2);
    if (!skip_op(p, op))
        fail_expected(p, quoted);
}

static const token *expect(parser *p, token_kind kind, const char *what)
{
    if (p->t->kind != kind)
        fail_expected(p, what);
    return next(p);
}

/* ---- nodes ---- */

static node *make(parser *p, node_kind kind, int line)
{
    node *n = RUN_NEW(p->r, node);
    *n = (node){.kind = kind, .line = line};
    return n;
}

static node *make2(parser *p, node_kind kind, int line, node *a, node *b)
{
    node *n = make(p, kind, line);
    n->a = a;
    n->b = b;
    return n;
}

static node *make_const(parser *p, int line, value v)
{
    node *n = make(p, EXPR_CONST, line);
    n->constant = v;
    if (v.kind == VALUE_STRING)
        str_chars(v.s);                 /* counted now: the program is read by several threads */
    return n;
}

/* A list that grows; its array has room for a power of two. */
static void add_node(parser *p, node_list *l, node *n)
{
    if ((l->n & (l->n - 1)) == 0) {
        node **more = RUN_NEW_ARRAY(p->r, node *, l->n ? 2 * (size_t)l->n : 1);
        if (l->n)
            memcpy(more, l->at, (size_t)l->n * sizeof *more);
        l->at = more;
    }
    l->at[l->n++] = n;
}

static int symbol_of(parser *p, const str *name)
{
    value found;
    if (dict_get(p->r, p->symbols, value_str(name), &found))
        return (int)found.i;
    int symbol = p->p->n_symbols;
    if ((size_t)symbol == p->cap_symbols) {
        size_t cap = p->cap_symbols ? 2 * p->cap_symbols : 64;
        const str **more = RUN_NEW_ARRAY(p->r, const str *, cap);
        if (symbol)
            memcpy(more, p->p->symbol, (size_t)symbol * sizeof *more);
        p->p->symbol = more;
        p->cap_symbols = cap;
    }
    p->p->symbol[p->p->n_symbols++] = name;
    dict_put(p->r, p->symbols, value_str(name), value_int(symbol));
    return symbol;
}

static int symbol_named(parser *p, const char *name)
{
    return symbol_of(p, str_of(p->r, name));
}

static const str *name_of(parser *p, const token *t)
{
    const str *s = str_new(p->r, t->s, t->n);
    str_chars(s);
    return s;
}

static node *make_name(parser *p, const token *t)
{
    node *n = make(p, EXPR_NAME, t->line);
    n->name = name_of(p, t);
    n->symbol = symbol_of(p, n->name);
    return n;
}

/* ---- expressions, from the loosest to the tightest ---- */

static node *parse_or(parser *p);
static node *parse_unary(parser *p, bool with_filters);
static node *parse_primary(parser *p);
static node *parse_postfix(parser *p, node *n);
static node *parse_tuple(parser *p, bool with_cond, bool in_parentheses);

static node *parse_expression(parser *p)
{
    int line = p->t->line;
    run_enter(p->r);
    node *n = parse_or(p);
    while (skip_name(p, "if")) {
        node *cond = make2(p, EXPR_COND, line, parse_or(p), n);
        if (skip_name(p, "else"))
            cond->c = parse_expression(p);
        n = cond;
    }
    run_leave(p->r);
    return n;
}

static node *parse_not(parser *p);

static node *parse_and(parser *p)
{
    node *n = parse_not(p);
    while (at_name(p, "and")) {
        int line = next(p)->line;
        n = make2(p, EXPR_AND, line, n, parse_not(p));
    }
    return n;
}

static node *parse_or(parser *p)
{
    node *n = parse_and(p);
    while (at_name(p, "or")) {
        int line = next(p)->line;
        n = make2(p, EXPR_OR, line, n, parse_and(p));
    }
    return n;
}

typedef struct { const char *text; op_kind op; } op_name;

/* The operator of the table that stands here, and goes; -1. */
static int take_op(parser *p, const op_name *ops, int n)
{
    for (int i = 0; i < n; i++)
        if (skip_op(p, ops[i].text))
            return (int)ops[i].op;
    return -1;
}

static int take_comparison(parser *p)
{
    static const op_name ops[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT}, {">=", OP_GE}};
    if (skip_name(p, "in"))
        return OP_IN;
    if (at_name(p, "not") && token_is(p->t + 1, TOKEN_NAME, "in")) {
        next(p);
        next(p);
        return OP_NOT_IN;
    }
    return take_op(p, ops, 6);
}

static node *parse_binary(parser *p, int level);

static node *parse_compare(parser *p)
{
    enum { MAX_CHAIN = 32 };
    op_kind ops[MAX_CHAIN];
    int line = p->t->line;
    node *first = parse_binary(p, 0);
    node *n = NULL;
    for (int op; (op = take_comparison(p)) >= 0;) {
        if (!n)
            n = make2(p, EXPR_COMPARE, line, first, NULL);
        if (n->list.n == MAX_CHAIN)
            run_fail(p->r, "too many comparisons in one");
        ops[n->list.n] = (op_kind)op;
        add_node(p, &n->list, parse_binary(p, 0));
    }
    if (!n)
        return first;
    n->op = RUN_NEW_ARRAY(p->r, op_kind, (size_t)n->list.n);
    memcpy(n->op, ops, (size_t)n->list.n * sizeof *ops);
    return n;
}

static node *parse_not(parser *p)
{
    if (!at_name(p, "not"))
        return parse_compare(p);
    run_enter(p->r);
    int line = next(p)->line;
    node *n = make2(p, EXPR_NOT, line, parse_not(p), NULL);
    run_leave(p->r);
    return n;
}

static node *parse_concat(parser *p)
{
    int line = p->t->line;
    node *first = parse_binary(p, 1), *n = NULL;
    while (skip_op(p, "~")) {
        if (!n) {
            n = make(p, EXPR_CONCAT, line);
            add_node(p, &n->list, first);
        }
        add_node(p, &n->list, parse_binary(p, 1));
    }
    return n ? n : first;
}

/* Level 0: + and -, of concatenations; 1: * / // %; 2: ** (from left to right, as in Jinja). */
static node *parse_operand(parser *p, int level)
{
    return level == 0 ? parse_concat(p) : level == 1 ? parse_binary(p, 2) : parse_unary(p, true);
}

static node *parse_binary(parser *p, int level)
{
    static const op_name ops[3][4] = {{{"+", OP_ADD}, {"-", OP_SUB}},
                                      {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}},
                                      {{"**", OP_POW}}};
    static const int n_ops[] = {2, 4, 1};
    node *left = parse_operand(p, level);
    for (int op, line = p->t->line; (op = take_op(p, ops[level], n_ops[level])) >= 0; line = p->t->line) {
        left = make2(p, EXPR_BINARY, line, left, NULL);
        left->op = RUN_NEW(p->r, op_kind);
        *left->op = (op_kind)op;
        left->b = parse_operand(p, level);
    }
    return left;
}

/* ---- calls, filters, tests ---- */

static void add_named(parser *p, call_args *a, named_node n)
{
    if ((a->n_named & (a->n_named - 1)) == 0) {
        named_node *more = RUN_NEW_ARRAY(p->r, named_node, a->n_named ? 2 * (size_t)a->n_named : 1);
        if (a->n_named)
            memcpy(more, a->named, (size_t)a->n_named * sizeof *more);
        a->named = more;
    }
    a->named[a->n_named++] = n;
}

static void parse_argument(parser *p, call_args *a)
{
    bool is_named = p->t->kind == TOKEN_NAME && token_is(p->t + 1, TOKEN_OPERATOR, "=");
    bool too_late = is_named ? a->star_star != NULL : a->star_star || (!at_op(p, "**") && a->star);
    if (too_late || (!is_named && !at_op(p, "*") && !at_op(p, "**") && a->n_named))
        run_fail(p->r, "invalid syntax for function call expression");
    if (skip_op(p, "*")) {
        a->star = parse_expression(p);
    } else if (skip_op(p, "**")) {
        a->star_star = parse_expression(p);
    } else if (is_named) {
        const str *name = name_of(p, next(p));
        next(p);
        for (int i = 0; i < a->n_named; i++)
            if (str_equal(a->named[i].name, name))
                run_fail(p->r, "keyword argument '%.*s' is given twice", (int)name->n, name->s);
        add_named(p, a, (named_node){name, parse_expression(p)});
    } else {
        add_node(p, &a->at, parse_expression(p));
    }
}

static call_args *parse_arguments(parser *p)
{
    call_args *a = RUN_NEW(p->r, call_args);
    *a = (call_args){0};
    expect_op(p, "(");
    for (bool first = true; !at_op(p, ")"); first = false) {
        if (!first) {
            expect_op(p, ",");
            if (at_op(p, ")"))
                break;
        }
        parse_argument(p, a);
    }
    next(p);
    return a;
}

static node *parse_call(parser *p, node *callee)
{
    node *n = make2(p, EXPR_CALL, p->t->line, callee, NULL);
    n->args = parse_arguments(p);
    return n;
}

/* A name with dots, as filters and tests may have. */
static const str *parse_dotted(parser *p)
{
    text out = {.r = p->r};
    const token *t = expect(p, TOKEN_NAME, "a name");
    text_add(&out, t->s, t->n);
    while (skip_op(p, ".")) {
        t = expect(p, TOKEN_NAME, "a name");
        text_add(&out, ".", 1);
        text_add(&out, t->s, t->n);
    }
    const str *s = text_value(&out).s;
    str_chars(s);
    return s;
}

static call_args *no_arguments(parser *p)
{
    call_args *a = RUN_NEW(p->r, call_args);
    *a = (call_args){0};
    return a;
}

/* The filter whose name comes next, on `in`. */
static node *parse_filter(parser *p, node *in)
{
    node *n = make2(p, EXPR_FILTER, p->t->line, in, NULL);
    n->name = parse_dotted(p);
    n->filter = filter_find(n->name);
    n->args = at_op(p, "(") ? parse_arguments(p) : no_arguments(p);
    return n;
}

static bool begins_test_argument(const parser *p)
{
    switch (p->t->kind) {
    case TOKEN_STRING: case TOKEN_INT: case TOKEN_FLOAT:
        return true;
    case TOKEN_NAME:
        return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and");
    default:
        return at_op(p, "[") || at_op(p, "{");
    }
}

static node *parse_test(parser *p, node *in)
{
    int line = next(p)->line;
    bool negated = skip_name(p, "not");
    node *n = make2(p, EXPR_TEST, line, in, NULL);
    n->name = parse_dotted(p);
    n->test = test_find(n->name);
    if (at_op(p, "(")) {
        n->args = parse_arguments(p);
    } else {
        n->args = no_arguments(p);
        if (at_name(p, "is"))
            run_fail(p->r, "You cannot chain multiple tests with is");
        if (begins_test_argument(p))
            add_node(p, &n->args->at, parse_postfix(p, parse_primary(p)));
    }
    return negated ? make2(p, EXPR_NOT, line, n, NULL) : n;
}

static node *parse_filters(parser *p, node *n)
{
    for (;;) {
        if (skip_op(p, "|"))
            n = parse_filter(p, n);
        else if (at_name(p, "is"))
            n = parse_test(p, n);
        else if (at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static bool at_subscript_end(const parser *p)
{
    return at_op(p, "]") || at_op(p, ",") || at_op(p, ":");
}

/* An index, or start:stop:step. */
static node *parse_subscript(parser *p)
{
    int line = p->t->line;
    node *start = at_op(p, ":") ? NULL : parse_expression(p);
    if (!skip_op(p, ":"))
        return start;
    node *n = make2(p, EXPR_SLICE, line, start, NULL);
    if (!at_subscript_end(p))
        n->b = parse_expression(p);
    if (skip_op(p, ":") && !at_subscript_end(p))
        n->c = parse_expression(p);
    return n;
}

static node *parse_item(parser *p, node *of, int line)
{
    node_list keys = {0};
    while (!at_op(p, "]")) {
        if (keys.n)
            expect_op(p, ",");
        add_node(p, &keys, parse_subscript(p));
    }
    next(p);
    node *key = keys.n == 1 ? keys.at[0] : make(p, EXPR_TUPLE, line);
    if (keys.n != 1)
        key->list = keys;
    for (int i = 0; keys.n > 1 && i < keys.n; i++)
        if (keys.at[i]->kind == EXPR_SLICE)
            run_fail(p->r, "a slice among several indexes");
    return make2(p, EXPR_ITEM, line, of, key);
}

static node *parse_attribute(parser *p, node *of, int line)
{
    const token *t = next(p);
    if (t->kind == TOKEN_INT)
        return make2(p, EXPR_ITEM, line, of, make_const(p, line, t->constant));
    if (t->kind != TOKEN_NAME)
        run_fail(p->r, "expected name or number behind the dot");
    node *n = make2(p, EXPR_ATTRIBUTE, line, of, NULL);
    n->name = name_of(p, t);
    return n;
}

static node *parse_postfix(parser *p, node *n)
{
    for (;;) {
        int line = p->t->line;
        if (skip_op(p, "."))
            n = parse_attribute(p, n, line);
        else if (skip_op(p, "["))
            n = parse_item(p, n, line);
        else if (at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static node *parse_unary(parser *p, bool with_filters)
{
    int line = p->t->line;
    node *n;
    run_enter(p->r);
    if (skip_op(p, "-"))
        n = make2(p, EXPR_NEGATIVE, line, parse_unary(p, false), NULL);
    else if (skip_op(p, "+"))
        n = make2(p, EXPR_POSITIVE, line, parse_unary(p, false), NULL);
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filters(p, n);
    run_leave(p->r);
    return n;
}

/* ---- literals ---- */

static node *parse_word(parser *p)
{
    static const struct { const char *name; value_kind kind; bool b; } words[] = {
        {"true", VALUE_BOOL, true}, {"True", VALUE_BOOL, true}, {"false", VALUE_BOOL, false}, {"False", VALUE_BOOL, false},
        {"none", VALUE_NONE, false}, {"None", VALUE_NONE, false},
    };
    const token *t = next(p);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (token_is(t, TOKEN_NAME, words[i].name))
            return make_const(p, t->line, (value){.kind = words[i].kind, .b = words[i].b});
    if (t->s[0] >= '0' && t->s[0] <= '9')
        run_fail(p->r, "Invalid character in identifier");
    return make_name(p, t);
}

/* Strings side by side are one. */
static node *parse_string(parser *p)
{
    const token *t = next(p);
    const str *s = t->constant.s;
    while (p->t->kind == TOKEN_STRING)
        s = str_concat(p->r, s, next(p)->constant.s);
    return make_const(p, t->line, value_str(str_copy(p->r, s->s, s->n)));
}

static node *parse_list(parser *p)
{
    node *n = make(p, EXPR_LIST, next(p)->line);
    while (!at_op(p, "]")) {
        if (n->list.n)
            expect_op(p, ",");
        if (!at_op(p, "]"))
            add_node(p, &n->list, parse_expression(p));
    }
    next(p);
    return n;
}

static node *parse_dict(parser *p)
{
    node *n = make(p, EXPR_DICT, next(p)->line);
    while (!at_op(p, "}")) {
        if (n->list.n)
            expect_op(p, ",");
        if (at_op(p, "}"))
            break;
        add_node(p, &n->list, parse_expression(p));
        expect_op(p, ":");
        add_node(p, &n->list, parse_expression(p));
    }
    next(p);
    return n;
}

static node *parse_primary(parser *p)
{
    switch (p->t->kind) {
    case TOKEN_NAME:
        return parse_word(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INT: case TOKEN_FLOAT: {
        const token *t = next(p);
        return make_const(p, t->line, t->constant);
    }
    default:
        break;
    }
    if (at_op(p, "["))
        return parse_list(p);
    if (at_op(p, "{"))
        return parse_dict(p);
    if (!skip_op(p, "("))
        fail_expected(p, "an expression");
    node *n = parse_tuple(p, true, true);
    expect_op(p, ")");
    return n;
}

static bool at_tuple_end(const parser *p)
{
    return p->t->kind == TOKEN_PRINT_END || p->t->kind == TOKEN_BLOCK_END || at_op(p, ")") || at_name(p, "recursive");
}

/* An expression, or several with commas. */
static node *parse_tuple(parser *p, bool with_cond, bool in_parentheses)
{
    node *n = make(p, EXPR_TUPLE, p->t->line);
    bool is_tuple = false;
    while (!at_tuple_end(p) || (n->list.n == 0 && at_name(p, "recursive"))) {
        add_node(p, &n->list, with_cond ? parse_expression(p) : parse_or(p));
        if (!skip_op(p, ","))
            break;
        is_tuple = true;
    }
    if (!is_tuple && n->list.n)
        return n->list.at[0];
    if (!is_tuple && !in_parentheses)
        fail_expected(p, "an expression");
    return n;
}

/* ---- targets of assignments ---- */

static node *parse_target_name(parser *p)
{
    const token *t = p->t;
    node *n = parse_word(p);
    if (n->kind != EXPR_NAME)
        run_fail(p->r, "can't assign to a constant");
    if (p->loops && token_is(t, TOKEN_NAME, "loop"))
        run_fail(p->r, "Can't assign to special loop variable in for-loop");
    return n;
}

static node *parse_target(parser *p, bool with_namespace);

static node *parse_one_target(parser *p, bool with_namespace)
{
    if (skip_op(p, "(")) {
        run_enter(p->r);
        node *n = parse_target(p, with_namespace);
        run_leave(p->r);
        expect_op(p, ")");
        return n;
    }
    if (p->t->kind != TOKEN_NAME)
        fail_expected(p, "a name to assign to");
    node *n = parse_target_name(p);
    if (!with_namespace || !skip_op(p, "."))
        return n;
    n->kind = TARGET_ATTRIBUTE;
    n->name = name_of(p, expect(p, TOKEN_NAME, "a name"));
    return n;
}

/* A name, ns.name, or several with commas. */
static node *parse_target(parser *p, bool with_namespace)
{
    node *first = parse_one_target(p, with_namespace);
    if (!at_op(p, ","))
        return first;
    node *n = make(p, EXPR_TUPLE, first->line);
    add_node(p, &n->list, first);
    while (skip_op(p, ",") && !at_op(p, "=") && !at_op(p, ")") && !at_name(p, "in"))
        add_node(p, &n->list, parse_one_target(p, with_namespace));
    return n;
}

/* ---- statements ---- */

/* Up to one of the tags (a list with blanks between), which is the current token then; NULL: to the end. */
static node_list parse_until(parser *p, const char *tags);

static bool is_one_of(const token *t, const char *tags)
{
    for (const char *tag = tags; t->kind == TOKEN_NAME && *tag;) {
        size_t n = strcspn(tag, " ");
        if (n == t->n && memcmp(tag, t->s, n) == 0)
            return true;
        tag += n + strspn(tag + n, " ");
    }
    return false;
}

static void end_block_tag(parser *p)
{
    if (p->t->kind != TOKEN_BLOCK_END)
        fail_expected(p, "'%}'");
    next(p);
}

/* The body of a tag whose own end is next. */
static node_list parse_body(parser *p, const char *tags)
{
    skip_op(p, ":");
    end_block_tag(p);
    int line = p->r->line;
    node_list body = parse_until(p, tags);
    if (p->t->kind == TOKEN_END) {
        p->r->line = line;
        run_fail(p->r, "Unexpected end of template; looking for: %s", tags);
    }
    return body;
}

/* The same, and the one tag that ends it. */
static node_list parse_whole_body(parser *p, const char *tag)
{
    node_list body = parse_body(p, tag);
    next(p);
    return body;
}

static node *parse_if(parser *p)
{
    node *n = make(p, STMT_IF, next(p)->line);
    n->a = parse_tuple(p, false, false);
    n->body = parse_body(p, "elif else endif");
    if (at_name(p, "elif")) {
        run_enter(p->r);
        add_node(p, &n->other, parse_if(p));
        run_leave(p->r);
        return n;
    }
    if (token_is(next(p), TOKEN_NAME, "else"))
        n->other = parse_whole_body(p, "endif");
    return n;
}

static node *parse_for(parser *p)
{
    node *n = make(p, STMT_FOR, next(p)->line);
    p->loops++;
    n->target = parse_target(p, false);
    if (!skip_name(p, "in"))
        fail_expected(p, "'in'");
    n->a = parse_tuple(p, false, false);
    if (skip_name(p, "if"))
        n->b = parse_expression(p);
    n->recursive = skip_name(p, "recursive");
    n->loop = symbol_named(p, "loop");
    n->body = parse_body(p, "endfor else");
    p->loops--;
    if (token_is(next(p), TOKEN_NAME, "else"))
        n->other = parse_whole_body(p, "endfor");
    return n;
}

static node *parse_set(parser *p)
{
    node *n = make(p, STMT_SET, next(p)->line);
    n->target = parse_target(p, true);
    if (skip_op(p, "=")) {
        n->a = parse_tuple(p, true, false);
        return n;
    }
    n->kind = STMT_SET_BLOCK;
    while (skip_op(p, "|"))
        n->a = parse_filter(p, n->a);
    n->body = parse_whole_body(p, "endset");
    return n;
}

static macro_code *new_macro(parser *p, const str *name)
{
    macro_code *m = RUN_NEW(p->r, macro_code);
    *m = (macro_code){.name = name, .caller = symbol_named(p, "caller"), .kwargs = symbol_named(p, "kwargs"),
                      .varargs = symbol_named(p, "varargs")};
    return m;
}

static void parse_parameters(parser *p, macro_code *m)
{
    enum { MAX_PARAMS = 64 };
    m->param = RUN_NEW_ARRAY(p->r, int, MAX_PARAMS);
    m->param_name = RUN_NEW_ARRAY(p->r, const str *, MAX_PARAMS);
    m->preset = RUN_NEW_ARRAY(p->r, node *, MAX_PARAMS);
    expect_op(p, "(");
    while (!at_op(p, ")")) {
        if (m->n_params)
            expect_op(p, ",");
        if (m->n_params == MAX_PARAMS)
            run_fail(p->r, "more than %d parameters", MAX_PARAMS);
        m->param_name[m->n_params] = name_of(p, expect(p, TOKEN_NAME, "a parameter's name"));
        m->param[m->n_params] = symbol_of(p, m->param_name[m->n_params]);
        m->n_params++;
        if (skip_op(p, "="))
            m->preset[m->n_presets++] = parse_expression(p);
        else if (m->n_presets)
            run_fail(p->r, "non-default argument follows default argument");
    }
    next(p);
}

/* Its body: what is around it is another function. */
static void parse_macro_body(parser *p, macro_code *m, const char *tag)
{
    int loops = p->loops;
    p->loops = 0;
    m->body = parse_whole_body(p, tag);
    p->loops = loops;
}

static node *parse_macro(parser *p)
{
    node *n = make(p, STMT_MACRO, next(p)->line);
    const str *name = name_of(p, expect(p, TOKEN_NAME, "a macro's name"));
    n->symbol = symbol_of(p, name);
    n->macro = new_macro(p, name);
    parse_parameters(p, n->macro);
    parse_macro_body(p, n->macro, "endmacro");
    return n;
}

static node *parse_call_block(parser *p)
{
    node *n = make(p, STMT_CALL_BLOCK, next(p)->line);
    n->macro = new_macro(p, NULL);
    if (at_op(p, "("))
        parse_parameters(p, n->macro);
    n->a = parse_expression(p);
    if (n->a->kind != EXPR_CALL)
        run_fail(p->r, "expected call");
    parse_macro_body(p, n->macro, "endcall");
    return n;
}

static node *parse_filter_block(parser *p)
{
    node *n = make(p, STMT_FILTER_BLOCK, next(p)->line);
    n->a = parse_filter(p, NULL);
    while (skip_op(p, "|"))
        n->a = parse_filter(p, n->a);
    n->body = parse_whole_body(p, "endfilter");
    return n;
}

static node *parse_with(parser *p)
{
    node *n = make(p, STMT_WITH, next(p)->line);
    while (p->t->kind != TOKEN_BLOCK_END) {
        if (n->list.n)
            expect_op(p, ",");
        add_node(p, &n->list, parse_target(p, false));
        expect_op(p, "=");
        add_node(p, &n->list, parse_expression(p));
    }
    n->body = parse_whole_body(p, "endwith");
    return n;
}

static node *parse_scope(parser *p, const char *end)
{
    node *n = make(p, STMT_SCOPE, next(p)->line);
    int loops = p->loops;
    p->loops = 0;
    n->body = parse_whole_body(p, end);
    p->loops = loops;
    return n;
}

static node *parse_autoescape(parser *p)
{
    node *n = make(p, STMT_SCOPE, next(p)->line);
    node *on = parse_expression(p);
    if (on->kind != EXPR_CONST || on->constant.kind != VALUE_BOOL || on->constant.b)
        run_fail(p->r, "autoescape other than false is not served here");
    n->body = parse_whole_body(p, "endautoescape");
    return n;
}

static node *parse_print(parser *p)
{
    node *n = make(p, STMT_PRINT, next(p)->line);
    node *all = make(p, EXPR_CONCAT, n->line);
    while (p->t->kind != TOKEN_BLOCK_END) {
        if (all->list.n)
            expect_op(p, ",");
        add_node(p, &all->list, parse_expression(p));
    }
    n->a = all;
    return n;
}

static node *parse_loop_control(parser *p, node_kind kind)
{
    node *n = make(p, kind, next(p)->line);
    if (!p->loops)
        run_fail(p->r, "'%s' outside of a loop", kind == STMT_BREAK ? "break" : "continue");
    return n;
}

static node *parse_statement(parser *p)
{
    if (p->t->kind != TOKEN_NAME)
        fail_expected(p, "a tag's name");
    if (at_name(p, "if")) return parse_if(p);
    if (at_name(p, "for")) return parse_for(p);
    if (at_name(p, "set")) return parse_set(p);
    if (at_name(p, "macro")) return parse_macro(p);
    if (at_name(p, "call")) return parse_call_block(p);
    if (at_name(p, "filter")) return parse_filter_block(p);
    if (at_name(p, "with")) return parse_with(p);
    if (at_name(p, "print")) return parse_print(p);
    if (at_name(p, "generation")) return parse_scope(p, "endgeneration");
    if (at_name(p, "autoescape")) return parse_autoescape(p);
    if (at_name(p, "break")) return parse_loop_control(p, STMT_BREAK);
    if (at_name(p, "continue")) return parse_loop_control(p, STMT_CONTINUE);
    p->r->line = p->t->line;
    if (is_one_of(p->t, "include import from extends block"))
        run_fail(p->r, "{%% %.*s %%} is not served here: a chat template is one file", (int)p->t->n, p->t->s);
    run_fail(p->r, "Encountered unknown tag '%.*s'", p->t->n < 40 ? (int)p->t->n : 40, p->t->s);
}

static node_list parse_until(parser *p, const char *tags)
{
    node_list body = {0};
    run_enter(p->r);
    while (p->t->kind != TOKEN_END) {
        const token *t = next(p);
        if (t->kind == TOKEN_DATA) {
            node *n = make(p, STMT_TEXT, t->line);
            n->constant = t->constant;
            add_node(p, &body, n);
        } else if (t->kind == TOKEN_PRINT_BEGIN) {
            node *n = make(p, STMT_PRINT, t->line);
            n->a = parse_tuple(p, true, false);
            add_node(p, &body, n);
            expect(p, TOKEN_PRINT_END, "'}}'");
        } else {
            if (tags && is_one_of(p->t, tags))
                break;
            add_node(p, &body, parse_statement(p));
            end_block_tag(p);
        }
    }
    run_leave(p->r);
    return body;
}

void jinja_parse(run *r, const token *tokens, jinja *p)
{
    parser x = {.r = r, .p = p, .t = tokens, .symbols = dict_new(r, 64)};
    p->body = parse_until(&x, NULL);
}
