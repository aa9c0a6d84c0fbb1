/* jinja_parse.c - see jinja_parse.h */
#include "text/jinja_parse.h"

#include <string.h>

#include "text/jinja_parser.h"

/* Targets of assignments. */

static jinja_node *parse_target_name(parser *p)
{
    const token *t = p->t;
    jinja_node *n = parse_word(p);
    if (n->kind != EXPR_NAME)
        jinja_run_fail(p->r, "can't assign to a constant");
    if (p->loops && token_is(t, TOKEN_NAME, "loop"))
        jinja_run_fail(p->r, "\"loop\" cannot be set inside of a loop");
    return n;
}

static jinja_node *parse_target(parser *p, bool with_namespace);

static jinja_node *parse_one_target(parser *p, bool with_namespace)
{
    if (parser_skip_op(p, "(")) {
        jinja_run_enter(p->r);
        jinja_node *n = parse_target(p, with_namespace);
        jinja_run_leave(p->r);
        parser_expect_op(p, ")");
        return n;
    }
    if (p->t->kind != TOKEN_NAME)
        parser_fail_expected(p, "a name to assign to");
    jinja_node *n = parse_target_name(p);
    if (!with_namespace || !parser_skip_op(p, "."))
        return n;
    n->kind = TARGET_ATTRIBUTE;
    n->name = parser_name(p, parser_expect(p, TOKEN_NAME, "a name"));
    return n;
}

/* Parses a name, ns.name, or several with commas. */
static jinja_node *parse_target(parser *p, bool with_namespace)
{
    jinja_node *first = parse_one_target(p, with_namespace);
    if (!parser_at_op(p, ","))
        return first;
    jinja_node *n = jinja_node_new(p, EXPR_TUPLE, first->line);
    jinja_node_list_add(p, &n->list, first);
    while (parser_skip_op(p, ",") && !parser_at_op(p, "=") && !parser_at_op(p, ")") && !parser_at_name(p, "in"))
        jinja_node_list_add(p, &n->list, parse_one_target(p, with_namespace));
    return n;
}

/* Statements. */

/* Parses up to one of the tags (separated by spaces), which is the current token then; NULL: to the end. */
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
        parser_fail_expected(p, "'%}'");
    parser_next(p);
}

/* Parses the end of an opening tag, and its body up to one of the tags, which is the current token then. */
static node_list parse_body(parser *p, const char *tags)
{
    parser_skip_op(p, ":");
    end_block_tag(p);
    int line = p->r->line;
    node_list body = parse_until(p, tags);
    if (p->t->kind == TOKEN_END) {
        p->r->line = line;
        jinja_run_fail(p->r, "the template ends inside of a block; looking for: %s", tags);
    }
    return body;
}

/* Parses like parse_body() up to one tag, and skips the tag. */
static node_list parse_whole_body(parser *p, const char *tag)
{
    node_list body = parse_body(p, tag);
    parser_next(p);
    return body;
}

static jinja_node *parse_if(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_IF, parser_next(p)->line);
    n->a = parse_tuple(p, false, false);
    n->body = parse_body(p, "elif else endif");
    if (parser_at_name(p, "elif")) {
        jinja_run_enter(p->r);
        jinja_node_list_add(p, &n->other, parse_if(p));
        jinja_run_leave(p->r);
        return n;
    }
    if (token_is(parser_next(p), TOKEN_NAME, "else"))
        n->other = parse_whole_body(p, "endif");
    return n;
}

static jinja_node *parse_for(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_FOR, parser_next(p)->line);
    p->loops++;
    n->target = parse_target(p, false);
    if (!parser_skip_name(p, "in"))
        parser_fail_expected(p, "'in'");
    n->a = parse_tuple(p, false, false);
    if (parser_skip_name(p, "if"))
        n->b = parse_expression(p);
    n->recursive = parser_skip_name(p, "recursive");
    n->loop = parser_symbol_named(p, "loop");
    n->body = parse_body(p, "endfor else");
    int loops = --p->loops;
    if (n->recursive)
        p->loops = 0; /* Jinja compiles it, else branch and all, to a function: break cannot end a loop around it */
    if (token_is(parser_next(p), TOKEN_NAME, "else"))
        n->other = parse_whole_body(p, "endfor");
    p->loops = loops;
    return n;
}

static jinja_node *parse_set(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_SET, parser_next(p)->line);
    n->target = parse_target(p, true);
    if (parser_skip_op(p, "=")) {
        n->a = parse_tuple(p, true, false);
        return n;
    }
    n->kind = STMT_SET_BLOCK;
    while (parser_skip_op(p, "|"))
        n->a = parse_filter(p, n->a);
    n->body = parse_whole_body(p, "endset");
    return n;
}

static macro_code *new_macro(parser *p, const str *name)
{
    macro_code *m = JINJA_NEW(p->r, macro_code);
    *m = (macro_code){.name = name,
                      .caller = parser_symbol_named(p, "caller"),
                      .kwargs = parser_symbol_named(p, "kwargs"),
                      .varargs = parser_symbol_named(p, "varargs")};
    return m;
}

static void parse_parameters(parser *p, macro_code *m)
{
    enum { MAX_PARAMS = 64 };
    m->param = JINJA_NEW_ARRAY(p->r, int, MAX_PARAMS);
    m->param_name = JINJA_NEW_ARRAY(p->r, const str *, MAX_PARAMS);
    m->default_value = JINJA_NEW_ARRAY(p->r, jinja_node *, MAX_PARAMS);
    parser_expect_op(p, "(");
    while (!parser_at_op(p, ")")) {
        if (m->n_params)
            parser_expect_op(p, ",");
        if (m->n_params == MAX_PARAMS)
            jinja_run_fail(p->r, "more than %d parameters", MAX_PARAMS);
        m->param_name[m->n_params] = parser_name(p, parser_expect(p, TOKEN_NAME, "a parameter's name"));
        m->param[m->n_params] = parser_symbol(p, m->param_name[m->n_params]);
        m->n_params++;
        if (parser_skip_op(p, "="))
            m->default_value[m->n_defaults++] = parse_expression(p);
        else if (m->n_defaults)
            jinja_run_fail(p->r, "a parameter without a default behind one that has one");
    }
    parser_next(p);
}

/* Parses a macro's body. break and continue in it cannot end a loop around the macro. */
static void parse_macro_body(parser *p, macro_code *m, const char *tag)
{
    int loops = p->loops;
    p->loops = 0;
    m->body = parse_whole_body(p, tag);
    p->loops = loops;
}

static jinja_node *parse_macro(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_MACRO, parser_next(p)->line);
    const str *name = parser_name(p, parser_expect(p, TOKEN_NAME, "a macro's name"));
    n->symbol = parser_symbol(p, name);
    n->macro = new_macro(p, name);
    parse_parameters(p, n->macro);
    parse_macro_body(p, n->macro, "endmacro");
    return n;
}

static jinja_node *parse_call_block(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_CALL_BLOCK, parser_next(p)->line);
    n->macro = new_macro(p, NULL);
    if (parser_at_op(p, "("))
        parse_parameters(p, n->macro);
    n->a = parse_expression(p);
    if (n->a->kind != EXPR_CALL)
        jinja_run_fail(p->r, "{%% call %%} needs a call");
    parse_macro_body(p, n->macro, "endcall");
    return n;
}

static jinja_node *parse_filter_block(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_FILTER_BLOCK, parser_next(p)->line);
    n->a = parse_filter(p, NULL);
    while (parser_skip_op(p, "|"))
        n->a = parse_filter(p, n->a);
    n->body = parse_whole_body(p, "endfilter");
    return n;
}

static jinja_node *parse_with(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_WITH, parser_next(p)->line);
    while (p->t->kind != TOKEN_BLOCK_END) {
        if (n->list.n)
            parser_expect_op(p, ",");
        jinja_node_list_add(p, &n->list, parse_target(p, false));
        parser_expect_op(p, "=");
        jinja_node_list_add(p, &n->list, parse_expression(p));
    }
    n->body = parse_whole_body(p, "endwith");
    return n;
}

static jinja_node *parse_scope(parser *p, const char *end)
{
    jinja_node *n = jinja_node_new(p, STMT_SCOPE, parser_next(p)->line);
    int loops = p->loops;
    p->loops = 0;
    n->body = parse_whole_body(p, end);
    p->loops = loops;
    return n;
}

static jinja_node *parse_autoescape(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_SCOPE, parser_next(p)->line);
    jinja_node *on = parse_expression(p);
    if (on->kind != EXPR_CONST || on->constant.kind != VALUE_BOOL || on->constant.b)
        jinja_run_fail(p->r, "autoescape other than false is not served here");
    n->body = parse_whole_body(p, "endautoescape");
    return n;
}

static jinja_node *parse_print(parser *p)
{
    jinja_node *n = jinja_node_new(p, STMT_PRINT, parser_next(p)->line);
    jinja_node *all = jinja_node_new(p, EXPR_CONCAT, n->line);
    while (p->t->kind != TOKEN_BLOCK_END) {
        if (all->list.n)
            parser_expect_op(p, ",");
        jinja_node_list_add(p, &all->list, parse_expression(p));
    }
    n->a = all;
    return n;
}

static jinja_node *parse_loop_control(parser *p, node_kind kind)
{
    jinja_node *n = jinja_node_new(p, kind, parser_next(p)->line);
    if (!p->loops)
        jinja_run_fail(p->r, "'%s' outside of a loop", kind == STMT_BREAK ? "break" : "continue");
    return n;
}

static jinja_node *parse_statement(parser *p)
{
    if (p->t->kind != TOKEN_NAME)
        parser_fail_expected(p, "a tag's name");
    if (parser_at_name(p, "if"))
        return parse_if(p);
    if (parser_at_name(p, "for"))
        return parse_for(p);
    if (parser_at_name(p, "set"))
        return parse_set(p);
    if (parser_at_name(p, "macro"))
        return parse_macro(p);
    if (parser_at_name(p, "call"))
        return parse_call_block(p);
    if (parser_at_name(p, "filter"))
        return parse_filter_block(p);
    if (parser_at_name(p, "with"))
        return parse_with(p);
    if (parser_at_name(p, "print"))
        return parse_print(p);
    if (parser_at_name(p, "generation"))
        return parse_scope(p, "endgeneration");
    if (parser_at_name(p, "autoescape"))
        return parse_autoescape(p);
    if (parser_at_name(p, "break"))
        return parse_loop_control(p, STMT_BREAK);
    if (parser_at_name(p, "continue"))
        return parse_loop_control(p, STMT_CONTINUE);
    p->r->line = p->t->line;
    if (is_one_of(p->t, "include import from extends block"))
        jinja_run_fail(p->r, "{%% %.*s %%} is not served here: a chat template is one file", (int)p->t->n, p->t->s);
    jinja_run_fail(p->r, "there is no tag '%.*s'", p->t->n < 40 ? (int)p->t->n : 40, p->t->s);
}

static node_list parse_until(parser *p, const char *tags)
{
    node_list body = {0};
    jinja_run_enter(p->r);
    while (p->t->kind != TOKEN_END) {
        const token *t = parser_next(p);
        if (t->kind == TOKEN_DATA) {
            jinja_node *n = jinja_node_new(p, STMT_TEXT, t->line);
            n->constant = t->constant;
            jinja_node_list_add(p, &body, n);
        } else if (t->kind == TOKEN_PRINT_BEGIN) {
            jinja_node *n = jinja_node_new(p, STMT_PRINT, t->line);
            n->a = parse_tuple(p, true, false);
            jinja_node_list_add(p, &body, n);
            parser_expect(p, TOKEN_PRINT_END, "'}}'");
        } else {
            if (tags && is_one_of(p->t, tags))
                break;
            jinja_node_list_add(p, &body, parse_statement(p));
            end_block_tag(p);
        }
    }
    jinja_run_leave(p->r);
    return body;
}

void jinja_parse(jinja_run *r, const token *tokens, jinja *p)
{
    parser x = {.r = r, .p = p, .t = tokens, .symbols = dict_new(r, 64)};
    p->body = parse_until(&x, NULL);
}
