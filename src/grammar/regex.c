/* regex.c - see regex.h
 *
 * Anchors: the text is put between two sentinel bytes that never occur in UTF-8, and ^ and $ match these. The automaton
 * is built for texts with the sentinels around them; in the end the sentinels are removed from it. */
#include "grammar/regex.h"

#include <string.h>

enum { BEGIN = 0xfe, END = 0xff };

typedef struct {
    build *b;
    const char *at, *end, *start;
} reader;

static _Noreturn void fail(const reader *r, const char *what)
{
    build_fail(r->b, "regular expression: %s (at byte %zu)", what, (size_t)(r->at - r->start));
}

static bool is_at(const reader *r, char c)
{
    return r->at < r->end && *r->at == c;
}

static bool skip_char(reader *r, char c)
{
    bool there = is_at(r, c);
    r->at += there;
    return there;
}

static bool skip_text(reader *r, const char *text)
{
    size_t n = strlen(text);
    bool there = (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
    r->at += there ? n : 0;
    return there;
}

static uint32_t next_char(reader *r)
{
    long c = char_next(&r->at, r->end);
    if (c < 0)
        fail(r, "it ends too early, or is no UTF-8");
    return (uint32_t)c;
}

static uint32_t read_hex(reader *r, int n)
{
    uint32_t x = 0;
    for (int i = 0; i < n; i++) {
        char c = r->at < r->end ? *r->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            fail(r, "a hexadecimal digit is missing");
        x = x << 4 | (uint32_t)digit;
        r->at++;
    }
    return x;
}

/* Reads the character behind \u: four digits, a surrogate pair, or {...}. */
static uint32_t read_unicode(reader *r)
{
    if (skip_char(r, '{')) {
        uint32_t x = 0;
        do
            x = x << 4 | read_hex(r, 1);
        while (x < 0x110000 && !is_at(r, '}'));
        if (!skip_char(r, '}') || x > 0x10ffff)
            fail(r, "there is no such character");
        return x;
    }
    uint32_t x = read_hex(r, 4);
    if (x >= 0xd800 && x <= 0xdbff && skip_text(r, "\\u")) {
        uint32_t low = read_hex(r, 4);
        if (low < 0xdc00 || low > 0xdfff)
            fail(r, "half of a surrogate pair");
        return 0x10000 + ((x - 0xd800) << 10) + (low - 0xdc00);
    }
    return x;
}

static void add_spaces(build *b, char_set *s)
{
    static const char_range spaces[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                        {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        char_set_add(b, s, spaces[i].lo, spaces[i].hi);
}

/* Adds the class \d, \w, \s, \D, \W or \S to s. False: c names none. */
static bool add_class(build *b, char_set *s, char c)
{
    char_set own = {0};
    switch (c | 0x20) {
    case 'd': char_set_add(b, &own, '0', '9'); break;
    case 'w':
        char_set_add(b, &own, '0', '9');
        char_set_add(b, &own, 'A', 'Z');
        char_set_add(b, &own, '_', '_');
        char_set_add(b, &own, 'a', 'z');
        break;
    case 's': add_spaces(b, &own); break;
    default: return false;
    }
    if (!(c & 0x20))
        char_set_invert(b, &own);
    for (int i = 0; i < own.n; i++)
        char_set_add(b, s, own.range[i].lo, own.range[i].hi);
    return true;
}

/* Reads an escape behind its backslash; returns the character it stands for. */
static uint32_t read_escape(reader *r)
{
    uint32_t c = next_char(r);
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'f': return '\f';
    case 'v': return '\v';
    case '0': return 0;
    case 'a': return 7;
    case 'x': return read_hex(r, 2);
    case 'u': return read_unicode(r);
    case 'c': return next_char(r) & 31;
    case 'b':
    case 'B': fail(r, "word borders (\\b) are not served");
    case 'p':
    case 'P': fail(r, "Unicode properties (\\p) are not served");
    case 'k': fail(r, "back references are not served");
    default:
        if (c >= '1' && c <= '9')
            fail(r, "back references are not served");
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
            fail(r, "this escape is not known");
        return c;
    }
}

/* Reads one end of a range in [...]. *is_class: it was a class, which has been added to s. */
static uint32_t read_member(reader *r, char_set *s, bool *is_class)
{
    *is_class = false;
    if (!skip_char(r, '\\'))
        return next_char(r);
    if (r->at < r->end && add_class(r->b, s, *r->at)) {
        r->at++;
        *is_class = true;
        return 0;
    }
    if (skip_char(r, 'b'))
        return '\b';
    return read_escape(r);
}

static const expr *read_set(reader *r)
{
    char_set s = {0};
    bool inverted = skip_char(r, '^'), is_class;
    while (!is_at(r, ']')) {
        uint32_t lo = read_member(r, &s, &is_class), hi = lo;
        if (!is_class && r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            bool class_too;
            hi = read_member(r, &s, &class_too);
            if (class_too) {
                char_set_add(r->b, &s, '-', '-');
                hi = lo;
            }
            if (hi < lo)
                fail(r, "a range is the wrong way round");
        }
        if (!is_class)
            char_set_add(r->b, &s, lo, hi);
    }
    r->at++;
    if (inverted)
        char_set_invert(r->b, &s);
    return expr_chars(r->b, &s);
}

static const expr *read_choice(reader *r);

static const expr *read_group(reader *r)
{
    if (skip_char(r, '?')) {
        if (skip_text(r, "P<") || (is_at(r, '<') && r->end - r->at > 1 && r->at[1] != '=' && r->at[1] != '!')) {
            while (r->at < r->end && *r->at != '>')
                r->at++;
            if (!skip_char(r, '>'))
                fail(r, "a group's name does not end");
        } else if (!skip_char(r, ':')) {
            fail(r, "look-around and flags (?...) are not served");
        }
    }
    const expr *x = read_choice(r);
    if (!skip_char(r, ')'))
        fail(r, "a group is not closed");
    return x;
}

static const expr *read_dot(build *b)
{
    char_set s = {0};
    char_set_add(b, &s, '\n', '\n');
    char_set_add(b, &s, '\r', '\r');
    char_set_add(b, &s, 0x2028, 0x2029);
    char_set_invert(b, &s);
    return expr_chars(b, &s);
}

static const expr *one_char(build *b, uint32_t c)
{
    char_set s = {0};
    char_set_add(b, &s, c, c);
    return expr_chars(b, &s);
}

static const expr *read_atom(reader *r)
{
    char_set s = {0};
    char c = *r->at;
    if (c == '*' || c == '+' || c == '?')
        fail(r, "there is nothing to repeat");
    if (skip_char(r, '('))
        return read_group(r);
    if (skip_char(r, '['))
        return read_set(r);
    if (skip_char(r, '.'))
        return read_dot(r->b);
    if (skip_char(r, '^'))
        return expr_bytes(r->b, BEGIN, BEGIN);
    if (skip_char(r, '$'))
        return expr_bytes(r->b, END, END);
    if (!skip_char(r, '\\'))
        return one_char(r->b, next_char(r));
    if (r->at < r->end && add_class(r->b, &s, *r->at)) {
        r->at++;
        return expr_chars(r->b, &s);
    }
    if (skip_char(r, 'A'))
        return expr_bytes(r->b, BEGIN, BEGIN);
    if (skip_char(r, 'Z') || skip_char(r, 'z'))
        return expr_bytes(r->b, END, END);
    return one_char(r->b, read_escape(r));
}

/* Reads a number; returns -1 when there is none. */
static int read_count(reader *r)
{
    if (r->at >= r->end || *r->at < '0' || *r->at > '9')
        return -1;
    int n = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if ((n = 10 * n + *r->at - '0') > REPEAT_MOST)
            fail(r, REPEAT_TOO_MANY);
    return n;
}

/* Reads {m}, {m,} or {m,n}. False: the brace is ordinary text. */
static bool read_braces(reader *r, int *min, int *max)
{
    const char *from = r->at;
    r->at++;
    *min = *max = read_count(r);
    if (*min >= 0 && skip_char(r, ','))
        *max = is_at(r, '}') ? REPEAT_ANY : read_count(r);
    bool ok = *min >= 0 && skip_char(r, '}');
    if (!ok)
        r->at = from;
    else if (*max != REPEAT_ANY && *max < *min)
        fail(r, "a repetition is the wrong way round");
    return ok;
}

static const expr *read_repeated(reader *r)
{
    const expr *x = read_atom(r);
    for (;;) {
        int min, max;
        if (skip_char(r, '*'))
            min = 0, max = REPEAT_ANY;
        else if (skip_char(r, '+'))
            min = 1, max = REPEAT_ANY;
        else if (skip_char(r, '?'))
            min = 0, max = 1;
        else if (!is_at(r, '{') || !read_braces(r, &min, &max))
            return x;
        x = expr_repeat(r->b, x, min, max);
        if (!skip_char(r, '?') && is_at(r, '+'))
            fail(r, "possessive quantifiers are not served");
    }
}

static const expr *read_sequence(reader *r)
{
    const expr **part = NULL;
    int n = 0, cap = 0;
    while (r->at < r->end && *r->at != '|' && *r->at != ')') {
        part = build_grow(r->b, part, &cap, n + 1, sizeof *part);
        part[n++] = read_repeated(r);
    }
    return expr_sequence(r->b, n, part);
}

static const expr *read_choice(reader *r)
{
    const expr **part = NULL;
    int n = 0, cap = 0;
    build_enter(r->b);
    do {
        part = build_grow(r->b, part, &cap, n + 1, sizeof *part);
        part[n++] = read_sequence(r);
    } while (skip_char(r, '|'));
    build_leave(r->b);
    return expr_choice(r->b, n, part);
}

/* Returns the texts t for which BEGIN t END is in the language. */
static const dfa *without_anchors(build *b, const dfa *x)
{
    int start = dfa_next(x, 0, BEGIN);
    if (start < 0)
        return dfa_of(b, expr_never(b));
    graph g = graph_new(b); /* from state `start` on, without sentinels */
    for (int i = 0; i < x->n; i++)
        graph_node(&g);
    graph_edge(&g, 0, 2 + start, NULL);
    for (int i = 0; i < x->n; i++) {
        for (int k = x->arc_indptr[i]; k < x->arc_indptr[i + 1]; k++)
            if (x->arc[k].lo < BEGIN)
                graph_edge(&g, 2 + i, 2 + x->arc[k].to,
                           expr_bytes(b, x->arc[k].lo, x->arc[k].hi < BEGIN ? x->arc[k].hi : BEGIN - 1));
        int last = dfa_next(x, i, END);
        if (last >= 0 && x->accepts[last])
            graph_edge(&g, 2 + i, 1, NULL);
    }
    return dfa_of(b, graph_done(&g));
}

const dfa *regex_language(build *b, const char *text, size_t n, regex_place place)
{
    reader r = {b, text, text + n, text};
    const expr *x = read_choice(&r);
    if (r.at < r.end)
        fail(&r, "a group is closed that was not opened");
    const expr *begin = expr_bytes(b, BEGIN, BEGIN), *end = expr_bytes(b, END, END), *any = expr_any_char(b);
    const expr *all = expr_repeat(b, any, 0, REPEAT_ANY);
    const expr *before = expr_repeat(b, begin, 0, 1), *after = expr_repeat(b, end, 0, 1);
    if (place == REGEX_SOMEWHERE) {
        before = expr_either(b, expr_empty(b), expr_concat(b, begin, all));
        after = expr_either(b, expr_empty(b), expr_concat(b, all, end));
    }
    const dfa *matching = dfa_of(b, expr_sequence(b, 3, (const expr *[]){before, x, after}));
    const dfa *proper = dfa_of(b, expr_sequence(b, 3, (const expr *[]){begin, all, end}));
    return without_anchors(b, dfa_and(b, matching, proper));
}
