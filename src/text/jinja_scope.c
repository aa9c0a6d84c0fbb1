/* jinja_scope.c - see jinja_scope.h */
#include "text/jinja_scope.h"

#include <string.h>

/* A scope while its names are resolved. */
typedef struct level level;
struct level {
    jinja_run *r;
    const jinja *p;
    const level *around;
    bool *mentions; /* [n_symbols] read or set here */
    symbol_list *unset;
    bool soft;         /* inside of an if; Jinja calls it a soft frame */
    macro_code *macro; /* whose body this is part of; or NULL */
};

static bool is_known(const level *l, int symbol)
{
    for (; l; l = l->around)
        if (l->mentions[symbol])
            return true;
    return false;
}

static void add_unset(level *l, int symbol)
{
    symbol_list *u = l->unset;
    if ((u->n & (u->n - 1)) == 0) {
        int *more = JINJA_NEW_ARRAY(l->r, int, u->n ? 2 * (size_t)u->n : 1);
        if (u->n)
            memcpy(more, u->at, (size_t)u->n * sizeof *more);
        u->at = more;
    }
    u->at[u->n++] = symbol;
}

static void mention(level *l, int symbol, bool sets)
{
    if (sets && !l->soft && !is_known(l, symbol))
        add_unset(l, symbol);
    l->mentions[symbol] = true;
}

static void visit(level *l, const jinja_node *n);

static void visit_all(level *l, const node_list *nodes)
{
    for (int i = 0; i < nodes->n; i++)
        visit(l, nodes->at[i]);
}

static void visit_target(level *l, const jinja_node *n)
{
    if (n->kind == EXPR_TUPLE)
        for (int i = 0; i < n->list.n; i++)
            visit_target(l, n->list.at[i]);
    else
        mention(l, n->symbol, n->kind == EXPR_NAME);
}

/* Marks as mentioned what a scope binds itself: the targets of a for or a with. */
static void declare(level *l, const jinja_node *target)
{
    if (target->kind == EXPR_TUPLE)
        for (int i = 0; i < target->list.n; i++)
            declare(l, target->list.at[i]);
    else
        l->mentions[target->symbol] = true;
}

static level inside(const level *around, symbol_list *unset)
{
    level l = {.r = around->r, .p = around->p, .around = around, .unset = unset, .macro = around->macro};
    l.mentions = JINJA_NEW_ARRAY(l.r, bool, (size_t)l.p->n_symbols);
    memset(l.mentions, 0, (size_t)l.p->n_symbols);
    return l;
}

static void visit_args(level *l, const call_args *a)
{
    visit_all(l, &a->at);
    for (int i = 0; i < a->n_named; i++)
        visit(l, a->named[i].value);
    if (a->star)
        visit(l, a->star);
    if (a->star_star)
        visit(l, a->star_star);
}

static void check_exists(level *l, const jinja_node *n)
{
    bool exists = n->kind == EXPR_FILTER ? n->filter != NULL : n->test != NULL;
    if (exists || l->soft)
        return;
    l->r->line = n->line;
    jinja_run_fail(l->r, "there is no %s '%.*s'", n->kind == EXPR_FILTER ? "filter" : "test", (int)n->name->n,
                   n->name->s);
}

static void visit_soft(level *l, const jinja_node *a, const jinja_node *b, const jinja_node *c)
{
    bool soft = l->soft;
    l->soft = true;
    visit(l, a);
    visit(l, b);
    if (c)
        visit(l, c);
    l->soft = soft;
}

static void visit_name(level *l, const jinja_node *n)
{
    macro_code *m = l->macro;
    mention(l, n->symbol, false);
    if (!m)
        return;
    m->uses_caller |= n->symbol == m->caller;
    m->uses_kwargs |= n->symbol == m->kwargs;
    m->uses_varargs |= n->symbol == m->varargs;
}

/* Visits an expression, or those parts of a statement that belong to the scope around it. */
static void visit(level *l, const jinja_node *n)
{
    jinja_run_enter(l->r);
    switch (n->kind) {
    case EXPR_NAME: visit_name(l, n); break;
    case EXPR_COND: visit_soft(l, n->a, n->b, n->c); break;
    case STMT_IF: {
        bool soft = l->soft;
        l->soft = true;
        visit(l, n->a);
        visit_all(l, &n->body);
        visit_all(l, &n->other);
        l->soft = soft;
        break;
    }
    case STMT_FOR: visit(l, n->a); break;
    case STMT_SET:
        visit(l, n->a);
        visit_target(l, n->target);
        break;
    case STMT_SET_BLOCK: visit_target(l, n->target); break;
    case STMT_MACRO: mention(l, n->symbol, true); break;
    case STMT_WITH:
        for (int i = 1; i < n->list.n; i += 2)
            visit(l, n->list.at[i]);
        break;
    case EXPR_FILTER:
    case EXPR_TEST:
        check_exists(l, n);
        if (n->a)
            visit(l, n->a);
        visit_args(l, n->args);
        break;
    default:
        for (int i = 0; i < 3; i++) {
            const jinja_node *child[] = {n->a, n->b, n->c};
            if (child[i])
                visit(l, child[i]);
        }
        visit_all(l, &n->list);
        if (n->args)
            visit_args(l, n->args);
    }
    jinja_run_leave(l->r);
}

static void enter_all(level *l, const node_list *nodes);

static void resolve(level *l, const node_list *body)
{
    visit_all(l, body);
    enter_all(l, body);
}

static void enter_for(level *around, jinja_node *n)
{
    symbol_list none = {0};
    level l = inside(around, &none);
    if (n->b) {
        declare(&l, n->target);
        visit(&l, n->b);
    }
    l = inside(around, &n->unset);
    declare(&l, n->target);
    l.mentions[n->loop] = true;
    resolve(&l, &n->body);
    l = inside(around, &n->other_unset);
    resolve(&l, &n->other);
}

static void enter_macro(level *around, macro_code *m)
{
    level l = inside(around, &m->unset);
    l.macro = m;
    for (int i = 0; i < m->n_params; i++)
        l.mentions[m->param[i]] = true;
    l.mentions[m->caller] = l.mentions[m->kwargs] = l.mentions[m->varargs] = true;
    for (int i = 0; i < m->n_defaults; i++)
        visit(&l, m->default_value[i]);
    resolve(&l, &m->body);
    if (around->macro) {
        around->macro->uses_caller |= m->uses_caller;
        around->macro->uses_kwargs |= m->uses_kwargs;
        around->macro->uses_varargs |= m->uses_varargs;
    }
    for (int i = 0; i < m->n_params; i++) { /* a parameter of that name is an ordinary one */
        m->uses_kwargs &= m->param[i] != m->kwargs;
        m->uses_varargs &= m->param[i] != m->varargs;
    }
}

static void enter_block(level *around, jinja_node *n)
{
    level l = inside(around, &n->unset);
    for (int i = 0; n->kind == STMT_WITH && i < n->list.n; i += 2)
        declare(&l, n->list.at[i]);
    resolve(&l, &n->body);
    if (n->kind == STMT_SET_BLOCK && n->a)
        visit(&l, n->a);
}

/* Resolves the names in these statements; all mentions in the scopes around them must be known. */
static void enter_all(level *l, const node_list *nodes)
{
    jinja_run_enter(l->r);
    for (int i = 0; i < nodes->n; i++) {
        jinja_node *n = nodes->at[i];
        switch (n->kind) {
        case STMT_IF:
            enter_all(l, &n->body);
            enter_all(l, &n->other);
            break;
        case STMT_FOR: enter_for(l, n); break;
        case STMT_MACRO:
        case STMT_CALL_BLOCK: enter_macro(l, n->macro); break;
        case STMT_SET_BLOCK:
        case STMT_FILTER_BLOCK:
        case STMT_WITH:
        case STMT_SCOPE: enter_block(l, n); break;
        default: break;
        }
    }
    jinja_run_leave(l->r);
}

void jinja_scope(jinja_run *r, jinja *p)
{
    level l = {.r = r, .p = p, .unset = &p->unset, .mentions = JINJA_NEW_ARRAY(r, bool, (size_t)p->n_symbols)};
    memset(l.mentions, 0, (size_t)p->n_symbols);
    resolve(&l, &p->body);
}
