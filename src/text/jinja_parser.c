/* jinja_parser.c - see jinja_parser.h */
#include "text/jinja_parser.h"

#include <string.h>

#include "text/jinja_str.h"

/* A token as the source has it, for messages. */
static const char *describe(const token *t, char out[64])
{
    static const char *const words[] = {
        [TOKEN_END] = "the end of the template",
        [TOKEN_DATA] = "text",
        [TOKEN_PRINT_BEGIN] = "{{",
        [TOKEN_PRINT_END] = "}}",
        [TOKEN_BLOCK_BEGIN] = "{%",
        [TOKEN_BLOCK_END] = "%}",
        [TOKEN_STRING] = "a string",
        [TOKEN_INT] = "a number",
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

_Noreturn void parser_fail_expected(parser *p, const char *what)
{
    char got[64];
    p->r->line = p->t->line;
    jinja_run_fail(p->r, "expected %s, got %s", what, describe(p->t, got));
}

const token *parser_next(parser *p)
{
    const token *t = p->t;
    if (t->kind != TOKEN_END)
        p->t++;
    p->r->line = t->line;
    return t;
}

bool token_is(const token *t, token_kind kind, const char *s)
{
    return t->kind == kind && t->n == strlen(s) && memcmp(t->s, s, t->n) == 0;
}

bool parser_at_op(const parser *p, const char *op)
{
    return token_is(p->t, TOKEN_OPERATOR, op);
}

bool parser_at_name(const parser *p, const char *name)
{
    return token_is(p->t, TOKEN_NAME, name);
}

bool parser_skip_op(parser *p, const char *op)
{
    bool is = parser_at_op(p, op);
    if (is)
        parser_next(p);
    return is;
}

bool parser_skip_name(parser *p, const char *name)
{
    bool is = parser_at_name(p, name);
    if (is)
        parser_next(p);
    return is;
}

void parser_expect_op(parser *p, const char *op)
{
    char quoted[8];
    snprintf(quoted, sizeof quoted, "'%s'", op);
    if (!parser_skip_op(p, op))
        parser_fail_expected(p, quoted);
}

const token *parser_expect(parser *p, token_kind kind, const char *what)
{
    if (p->t->kind != kind)
        parser_fail_expected(p, what);
    return parser_next(p);
}

/* Nodes. */

jinja_node *jinja_node_new(parser *p, node_kind kind, int line)
{
    jinja_node *n = JINJA_NEW(p->r, jinja_node);
    *n = (jinja_node){.kind = kind, .line = line};
    return n;
}

jinja_node *node_new2(parser *p, node_kind kind, int line, jinja_node *a, jinja_node *b)
{
    jinja_node *n = jinja_node_new(p, kind, line);
    n->a = a;
    n->b = b;
    return n;
}

/* Appends to a list, whose array has room for a power of two. */
void jinja_node_list_add(parser *p, node_list *l, jinja_node *n)
{
    if ((l->n & (l->n - 1)) == 0) {
        jinja_node **more = JINJA_NEW_ARRAY(p->r, jinja_node *, l->n ? 2 * (size_t)l->n : 1);
        if (l->n)
            memcpy(more, l->at, (size_t)l->n * sizeof *more);
        l->at = more;
    }
    l->at[l->n++] = n;
}

int parser_symbol(parser *p, const str *name)
{
    value found;
    if (dict_get(p->r, p->symbols, value_str(name), &found))
        return (int)found.i;
    int symbol = p->p->n_symbols;
    p->p->symbol = jinja_run_grow(p->r, p->p->symbol, (size_t)symbol, &p->cap_symbols, 64, sizeof *p->p->symbol);
    p->p->symbol[p->p->n_symbols++] = name;
    dict_put(p->r, p->symbols, value_str(name), value_int(symbol));
    return symbol;
}

int parser_symbol_named(parser *p, const char *name)
{
    return parser_symbol(p, str_of(p->r, name));
}

const str *parser_name(parser *p, const token *t)
{
    const str *s = str_new(p->r, t->s, t->n);
    str_chars(s);
    return s;
}
