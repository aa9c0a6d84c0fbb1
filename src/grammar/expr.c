/* expr.c - see expr.h */
#include "grammar/expr.h"

#include <stdlib.h>
#include <string.h>

static expr *make(build *b, expr_kind kind)
{
    build_step(b, 1);
    expr *x = BUILD_NEW(b, expr);
    x->kind = kind;
    return x;
}

const expr *expr_never(build *b)
{
    return make(b, EXPR_NEVER);
}

const expr *expr_empty(build *b)
{
    return make(b, EXPR_EMPTY);
}

const expr *expr_bytes(build *b, int lo, int hi)
{
    expr *x = make(b, EXPR_BYTES);
    x->lo = (uint8_t)lo;
    x->hi = (uint8_t)hi;
    return x;
}

static const expr *many(build *b, expr_kind kind, int n, const expr *const *part)
{
    if (n == 1)
        return part[0];
    expr *x = make(b, kind);
    x->n = n;
    x->part = BUILD_ARRAY(b, const expr *, n);
    if (n)
        memcpy(x->part, part, (size_t)n * sizeof *part);
    return x;
}

const expr *expr_sequence(build *b, int n, const expr *const *part)
{
    return n ? many(b, EXPR_SEQUENCE, n, part) : expr_empty(b);
}

const expr *expr_choice(build *b, int n, const expr *const *part)
{
    return n ? many(b, EXPR_CHOICE, n, part) : expr_never(b);
}

const expr *expr_text(build *b, const char *text, size_t n)
{
    const expr **part = BUILD_ARRAY(b, const expr *, n);
    for (size_t i = 0; i < n; i++)
        part[i] = expr_bytes(b, (unsigned char)text[i], (unsigned char)text[i]);
    return expr_sequence(b, (int)n, part);
}

const expr *expr_str(build *b, const char *text)
{
    return expr_text(b, text, strlen(text));
}

const expr *expr_repeat(build *b, const expr *x, int min, int max)
{
    expr *r = make(b, EXPR_REPEAT);
    r->n = 1;
    r->part = BUILD_ARRAY(b, const expr *, 1);
    r->part[0] = x;
    r->min = min;
    r->max = max;
    return r;
}

const expr *expr_rule(build *b, int rule)
{
    expr *x = make(b, EXPR_RULE);
    x->rule = rule;
    return x;
}

const expr *expr_dfa(build *b, const dfa *a)
{
    expr *x = make(b, EXPR_DFA);
    x->automaton = a;
    return x;
}

const expr *expr_concat(build *b, const expr *x, const expr *y)
{
    return expr_sequence(b, 2, (const expr *[]){x, y});
}

const expr *expr_either(build *b, const expr *x, const expr *y)
{
    if (!x || x->kind == EXPR_NEVER)
        return y ? y : expr_never(b);
    if (!y || y->kind == EXPR_NEVER)
        return x;
    return expr_choice(b, 2, (const expr *[]){x, y});
}

graph graph_new(build *b)
{
    return (graph){.b = b, .n_nodes = 2};
}

int graph_node(graph *g)
{
    return g->n_nodes++;
}

void graph_edge(graph *g, int from, int to, const expr *label)
{
    build_step(g->b, 1);
    g->edge = build_grow(g->b, g->edge, &g->cap, g->n + 1, sizeof *g->edge);
    g->edge[g->n++] = (expr_edge){from, to, label};
}

const expr *graph_done(graph *g)
{
    expr *x = make(g->b, EXPR_GRAPH);
    x->n_nodes = g->n_nodes;
    x->n = g->n;
    x->edge = g->edge;
    return x;
}

/* Characters. */

void char_set_add(build *b, char_set *s, uint32_t lo, uint32_t hi)
{
    build_step(b, 1);
    s->range = build_grow(b, s->range, &s->cap, s->n + 1, sizeof *s->range);
    s->range[s->n++] = (char_range){lo, hi};
}

static int by_start(const void *x, const void *y)
{
    uint32_t a = ((const char_range *)x)->lo, b = ((const char_range *)y)->lo;
    return (a > b) - (a < b);
}

void char_set_invert(build *b, char_set *s)
{
    if (s->n)
        qsort(s->range, (size_t)s->n, sizeof *s->range, by_start);
    char_set out = {0};
    uint32_t from = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->range[i].lo > from)
            char_set_add(b, &out, from, s->range[i].lo - 1);
        from = s->range[i].hi + 1 > from ? s->range[i].hi + 1 : from;
    }
    if (from <= 0x10ffff)
        char_set_add(b, &out, from, 0x10ffff);
    *s = out;
}

static int encode(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

typedef struct {
    const expr **part;
    int n, cap;
} parts;

/* Adds lo..hi, whose encodings have the same length, share a prefix, and take all values behind the byte in which they
 * differ. */
static void add_same_length(build *b, parts *out, uint32_t lo, uint32_t hi)
{
    uint8_t first[4], last[4];
    const expr *bytes[4];
    int n = encode(lo, first);
    encode(hi, last);
    for (int i = 0; i < n; i++)
        bytes[i] = expr_bytes(b, first[i], last[i]);
    out->part = build_grow(b, out->part, &out->cap, out->n + 1, sizeof *out->part);
    out->part[out->n++] = expr_sequence(b, n, bytes);
}

/* Cuts a range of characters until each piece is a product of byte ranges, and adds the pieces. */
static void add_range(build *b, parts *out, uint32_t lo, uint32_t hi)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xffff};
    build_step(b, 1);
    if (lo >= 0xd800 && lo <= 0xdfff)
        lo = 0xe000;
    if (lo > hi)
        return;
    for (int i = 0; i < 4; i++)
        if (lo <= ends[i] && hi > ends[i]) {
            add_range(b, out, lo, ends[i]);
            add_range(b, out, ends[i] + 1, hi);
            return;
        }
    for (int i = 1; i < 4 && hi > 0x7f; i++) {
        uint32_t rest = (1u << 6 * i) - 1;
        if ((lo & ~rest) == (hi & ~rest))
            continue;
        if ((lo & rest) != 0) {
            add_range(b, out, lo, lo | rest);
            add_range(b, out, (lo | rest) + 1, hi);
            return;
        }
        if ((hi & rest) != rest) {
            add_range(b, out, lo, (hi & ~rest) - 1);
            add_range(b, out, hi & ~rest, hi);
            return;
        }
    }
    add_same_length(b, out, lo, hi);
}

const expr *expr_chars(build *b, const char_set *s)
{
    parts out = {0};
    for (int i = 0; i < s->n; i++)
        add_range(b, &out, s->range[i].lo, s->range[i].hi < 0x10ffff ? s->range[i].hi : 0x10ffff);
    return expr_choice(b, out.n, out.part);
}

const expr *expr_any_char(build *b)
{
    char_set all = {0};
    char_set_add(b, &all, 0, 0x10ffff);
    return expr_chars(b, &all);
}

long char_next(const char **s, const char *end)
{
    const unsigned char *p = (const unsigned char *)*s;
    if (*s >= end)
        return -1;
    int n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > end - *s)
        return -1;
    long c = n == 1 ? p[0] : p[0] & (0x7f >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    *s += n;
    bool overlong = (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
    return overlong || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? -1 : c;
}
