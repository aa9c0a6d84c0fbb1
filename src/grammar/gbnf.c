/* gbnf.c - see gbnf.h */
#include "grammar/gbnf.h"

#include <ctype.h>
#include <string.h>

typedef struct {
    rules *to;
    build *b;
    const char *at, *end, *start;
    int first; /* number of the first rule of this text */
} reader;

static _Noreturn void fail(const reader *r, const char *what)
{
    int line = 1;
    for (const char *p = r->start; p < r->at && p < r->end; p++)
        line += *p == '\n';
    build_fail(r->b, "grammar, line %d: %s", line, what);
}

static bool is_at(const reader *r, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

static bool skip_text(reader *r, const char *text)
{
    bool there = is_at(r, text);
    r->at += there ? strlen(text) : 0;
    return there;
}

/* Skips blanks and comments; ends of lines too if `lines`. */
static void skip_blanks(reader *r, bool lines)
{
    for (; r->at < r->end; r->at++) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n' && *r->at != '\r')
                r->at++;
        if (r->at >= r->end || !(*r->at == ' ' || *r->at == '\t' || (lines && (*r->at == '\n' || *r->at == '\r'))))
            return;
    }
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

/* Reads a name and returns the number of its rule, which is added if it is new. */
static int read_name(reader *r)
{
    const char *from = r->at;
    while (r->at < r->end && in_name(*r->at))
        r->at++;
    size_t n = (size_t)(r->at - from);
    if (n == 0)
        fail(r, "a name is expected");
    for (int i = r->first; i < r->to->n; i++) {
        build_step(r->b, 1);
        if (strlen(r->to->at[i].name) == n && memcmp(r->to->at[i].name, from, n) == 0)
            return i;
    }
    return rules_add(r->to, build_text(r->b, from, n), NULL);
}

static uint32_t read_hex(reader *r, int n)
{
    uint32_t x = 0;
    for (int i = 0; i < n; i++, r->at++) {
        char c = r->at < r->end ? *r->at : 0;
        if (!isxdigit((unsigned char)c))
            fail(r, "a hexadecimal digit is missing");
        x = x << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (x > 0x10ffff)
        fail(r, "there is no such character");
    return x;
}

static uint32_t read_char(reader *r)
{
    if (!skip_text(r, "\\")) {
        long c = char_next(&r->at, r->end);
        if (c < 0)
            fail(r, "it ends too early, or is no UTF-8");
        return (uint32_t)c;
    }
    char c = r->at < r->end ? *r->at++ : 0;
    switch (c) {
    case 'x': return read_hex(r, 2);
    case 'u': return read_hex(r, 4);
    case 'U': return read_hex(r, 8);
    case 't': return '\t';
    case 'r': return '\r';
    case 'n': return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^': return (uint32_t)c;
    default: fail(r, "this escape is not known");
    }
}

static const expr *chars_of(build *b, uint32_t lo, uint32_t hi)
{
    char_set s = {0};
    char_set_add(b, &s, lo, hi);
    return expr_chars(b, &s);
}

static const expr *read_text(reader *r)
{
    const expr **part = NULL;
    int n = 0, cap = 0;
    while (!is_at(r, "\"")) {
        uint32_t c = read_char(r);
        part = build_grow(r->b, part, &cap, n + 1, sizeof *part);
        part[n++] = chars_of(r->b, c, c);
    }
    r->at++;
    return expr_sequence(r->b, n, part);
}

static const expr *read_set(reader *r)
{
    char_set s = {0};
    bool inverted = skip_text(r, "^");
    while (!is_at(r, "]")) {
        uint32_t lo = read_char(r), hi = lo;
        if (is_at(r, "-") && !is_at(r, "-]")) {
            r->at++;
            hi = read_char(r);
        }
        if (hi < lo)
            fail(r, "a range is the wrong way round");
        char_set_add(r->b, &s, lo, hi);
    }
    r->at++;
    if (inverted)
        char_set_invert(r->b, &s);
    return expr_chars(r->b, &s);
}

static const expr *read_choice(reader *r, bool nested);

/* Reads an atom; returns NULL when there is none here. */
static const expr *read_atom(reader *r)
{
    if (skip_text(r, "\""))
        return read_text(r);
    if (skip_text(r, "["))
        return read_set(r);
    if (skip_text(r, "."))
        return expr_any_char(r->b);
    if (skip_text(r, "(")) {
        skip_blanks(r, true);
        const expr *x = read_choice(r, true);
        if (!skip_text(r, ")"))
            fail(r, "a group is not closed");
        return x;
    }
    if (r->at < r->end && in_name(*r->at))
        return expr_rule(r->b, read_name(r));
    return NULL;
}

static int read_count(reader *r)
{
    if (r->at >= r->end || !isdigit((unsigned char)*r->at))
        fail(r, "a number is expected");
    int n = 0;
    for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++)
        if ((n = 10 * n + *r->at - '0') > REPEAT_MOST)
            fail(r, REPEAT_TOO_MANY);
    return n;
}

static void read_braces(reader *r, int *min, int *max)
{
    skip_blanks(r, true);
    *min = is_at(r, ",") ? 0 : read_count(r);
    *max = *min;
    skip_blanks(r, true);
    if (skip_text(r, ",")) {
        skip_blanks(r, true);
        *max = is_at(r, "}") ? REPEAT_ANY : read_count(r);
        skip_blanks(r, true);
    }
    if (!skip_text(r, "}"))
        fail(r, "a repetition is not closed");
    if (*max != REPEAT_ANY && *max < *min)
        fail(r, "a repetition is the wrong way round");
}

static const expr *read_repeated(reader *r, const expr *x)
{
    for (;;) {
        int min, max;
        if (skip_text(r, "*"))
            min = 0, max = REPEAT_ANY;
        else if (skip_text(r, "+"))
            min = 1, max = REPEAT_ANY;
        else if (skip_text(r, "?"))
            min = 0, max = 1;
        else if (skip_text(r, "{"))
            read_braces(r, &min, &max);
        else
            return x;
        x = expr_repeat(r->b, x, min, max);
    }
}

static const expr *read_sequence(reader *r, bool nested)
{
    const expr **part = NULL;
    int n = 0, cap = 0;
    for (const expr *x; (x = read_atom(r));) {
        x = read_repeated(r, x);
        part = build_grow(r->b, part, &cap, n + 1, sizeof *part);
        part[n++] = x;
        skip_blanks(r, nested);
    }
    return expr_sequence(r->b, n, part);
}

static const expr *read_choice(reader *r, bool nested)
{
    const expr **part = NULL;
    int n = 0, cap = 0;
    build_enter(r->b);
    do {
        skip_blanks(r, true);
        part = build_grow(r->b, part, &cap, n + 1, sizeof *part);
        part[n++] = read_sequence(r, nested);
    } while (skip_text(r, "|"));
    build_leave(r->b);
    return expr_choice(r->b, n, part);
}

static void read_rule(reader *r)
{
    int number = read_name(r);
    skip_blanks(r, false);
    if (!skip_text(r, "::="))
        fail(r, "::= is expected");
    skip_blanks(r, true);
    const expr *body = read_choice(r, false);
    if (r->to->at[number].body)
        build_fail(r->b, "grammar: there are two rules \"%s\"", r->to->at[number].name);
    r->to->at[number].body = body;
    if (r->at < r->end && *r->at != '\n' && *r->at != '\r')
        fail(r, "the end of the rule is expected");
    skip_blanks(r, true);
}

const expr *gbnf_read(rules *to, const char *text, size_t n)
{
    reader r = {.to = to, .b = to->b, .at = text, .end = text + n, .start = text, .first = to->n};
    for (skip_blanks(&r, true); r.at < r.end;)
        read_rule(&r);
    int root = -1;
    for (int i = r.first; i < to->n; i++) {
        if (!to->at[i].body)
            build_fail(r.b, "grammar: there is no rule \"%s\"", to->at[i].name);
        root = strcmp(to->at[i].name, "root") == 0 ? i : root;
    }
    if (root < 0)
        build_fail(r.b, "grammar: there is no rule \"root\"");
    return expr_rule(r.b, root);
}
