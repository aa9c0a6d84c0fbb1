/* jinja_lex.c - see jinja_lex.h
 *
 * trim_blocks drops the first newline behind a block or comment; lstrip_blocks drops the blanks before one, if nothing
 * else stands before it in its line. "-" drops all white space on its side, "+" keeps what would be dropped. */
#include "text/jinja_lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/unicode.h"
#include "text/utf8.h"

typedef struct {
    jinja_run *r;
    const char *s; /* [n] the source, newlines as \n */
    size_t n, at;
    int line;
    bool starts_line; /* what was read last ended with a newline, or nothing was read yet */
    char open[256];   /* brackets that are open */
    int n_open;
    token *token;
    size_t n_tokens, cap;
} lexer;

static token *add_token(lexer *x, token_kind kind)
{
    x->token = jinja_run_grow(x->r, x->token, x->n_tokens, &x->cap, 256, sizeof *x->token);
    token *t = &x->token[x->n_tokens++];
    *t = (token){.kind = kind, .line = x->line};
    return t;
}

_Noreturn static void fail_at(lexer *x, const char *what)
{
    x->r->line = x->line;
    jinja_run_fail(x->r, "%s", what);
}

/* Moves to `to`, counting lines. */
static void advance(lexer *x, size_t to)
{
    if (to == x->at)
        return;
    for (; x->at < to; x->at++)
        x->line += x->s[x->at] == '\n';
    x->starts_line = x->s[to - 1] == '\n';
}

static bool looking_at(const lexer *x, size_t at, const char *what)
{
    size_t n = strlen(what);
    return x->n - at >= n && memcmp(x->s + at, what, n) == 0;
}

static size_t skip_space(const lexer *x, size_t at)
{
    while (at < x->n) {
        const char *p = x->s + at;
        if (!unicode_is_blank(utf8_next(&p)))
            break;
        at = (size_t)(p - x->s);
    }
    return at;
}

static size_t find(const lexer *x, size_t at, const char *what)
{
    const char *p = memmem(x->s + at, x->n - at, what, strlen(what));
    return p ? (size_t)(p - x->s) : x->n;
}

/* Turns newlines of any kind into \n and drops one at the very end. */
static void normalize(lexer *x, const char *source, size_t n)
{
    char *s = jinja_run_alloc(x->r, n + 1);
    for (size_t i = 0; i < n; i++) {
        bool crlf = source[i] == '\r' && i + 1 < n && source[i + 1] == '\n';
        if (!crlf)
            s[x->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (x->n > 0 && s[x->n - 1] == '\n')
        x->n--;
    s[x->n] = '\0';
    x->s = s;
}

/* Returns where the text from..to ends when the white space before a tag with this sign is dropped. strips_line:
 * lstrip_blocks applies to the tag. */
static size_t trimmed_end(const lexer *x, size_t from, size_t to, char sign, bool strips_line)
{
    if (sign == '-') {
        while (to > from) {
            const char *last = utf8_back(x->s + to), *p = last;
            if (!unicode_is_blank(utf8_next(&p)))
                break;
            to = (size_t)(last - x->s);
        }
        return to;
    }
    if (sign == '+' || !strips_line)
        return to;
    size_t line = to;
    while (line > from && x->s[line - 1] != '\n')
        line--;
    bool from_start = line > from || x->starts_line;
    return from_start && skip_space(x, line) >= to ? line : to;
}

static void add_data(lexer *x, size_t from, size_t to)
{
    if (to == from)
        return;
    token *t = add_token(x, TOKEN_DATA);
    t->constant = value_text(x->r, x->s + from, to - from);
}

static char sign_at(const lexer *x, size_t at)
{
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : 0;
}

/* Returns the offset behind the close ("%}", "#}" or "}}") at `at`, which may have a sign before it, and behind the
 * white space it drops. 0: no close is there. trims: trim_blocks applies. */
static size_t end_of_tag(const lexer *x, size_t at, const char *close, bool trims)
{
    char sign = sign_at(x, at);
    size_t here = at + (sign ? 1 : 0);
    if (!looking_at(x, here, close) || (sign == '+' && !trims))
        return 0;
    here += 2;
    if (sign == '-')
        return skip_space(x, here);
    return !sign && trims && here < x->n && x->s[here] == '\n' ? here + 1 : here;
}

static void skip_comment(lexer *x, size_t at)
{
    size_t end = find(x, at, "#}");
    if (end == x->n && at == x->n) { /* a "{#" that ends the source is no error in Jinja */
        advance(x, at);
        return;
    }
    if (end == x->n)
        fail_at(x, "{# does not end");
    if (end > at && sign_at(x, end - 1))
        end--;
    advance(x, end_of_tag(x, end, "#}", true));
}

/* Returns the offset behind the name of the block tag at `at`, if it is this name, else 0. */
static size_t after_name(const lexer *x, size_t at, const char *name)
{
    size_t here = at + 2;
    if (sign_at(x, here))
        here++;
    here = skip_space(x, here);
    return looking_at(x, here, name) ? skip_space(x, here + strlen(name)) : 0;
}

/* Reads {% raw %} at x->at, its text verbatim. False: there is no raw tag. */
static bool read_raw(lexer *x)
{
    size_t end = after_name(x, x->at, "raw");
    if (!end)
        return false;
    if (looking_at(x, end, "-%}"))
        end = skip_space(x, end + 3);
    else if (looking_at(x, end, "%}"))
        end += 2;
    else
        return false;
    advance(x, end);
    for (size_t tag = find(x, x->at, "{%"); tag < x->n; tag = find(x, tag + 2, "{%")) {
        size_t close = after_name(x, tag, "endraw"), past = close ? end_of_tag(x, close, "%}", true) : 0;
        if (!past)
            continue;
        add_data(x, x->at, trimmed_end(x, x->at, tag, sign_at(x, tag + 2), true));
        advance(x, past);
        return true;
    }
    if (x->at < x->n)
        fail_at(x, "{% raw %} does not end");
    return true;
}

/* Inside of a tag. */

static bool is_word(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9') || cp == '_';
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO) || c == UTF8PROC_CATEGORY_PC;
}

static bool is_digit(char c, int base)
{
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    return digit < base;
}

/* Returns the offset behind digits, which may have single underscores between them. */
static size_t skip_digits(const lexer *x, size_t at, int base)
{
    while (at < x->n) {
        if (is_digit(x->s[at], base))
            at++;
        else if (x->s[at] == '_' && at + 1 < x->n && is_digit(x->s[at + 1], base))
            at += 2;
        else
            break;
    }
    return at;
}

static size_t skip_exponent(const lexer *x, size_t at)
{
    if (at >= x->n || (x->s[at] | 32) != 'e')
        return at;
    size_t digits = at + 1;
    if (digits < x->n && (x->s[digits] == '+' || x->s[digits] == '-'))
        digits++;
    return digits < x->n && is_digit(x->s[digits], 10) ? skip_digits(x, digits, 10) : at;
}

/* Returns the text of a number without underscores, NUL-terminated. */
static const char *digits_of(lexer *x, size_t from, size_t to)
{
    char *s = jinja_run_alloc(x->r, to - from + 1), *out = s;
    for (; from < to; from++)
        if (x->s[from] != '_')
            *out++ = x->s[from];
    *out = '\0';
    return s;
}

static void add_int(lexer *x, size_t from, size_t to, int base)
{
    errno = 0;
    long long i = strtoll(digits_of(x, from + (base == 10 ? 0 : 2), to), NULL, base);
    if (errno)
        fail_at(x, "an integer of more than 64 bits");
    add_token(x, TOKEN_INT)->constant = value_int(i);
    advance(x, to);
}

static void read_number(lexer *x)
{
    static const struct {
        char letter;
        int base;
    } bases[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    size_t at = x->at;
    char second = x->s[at] == '0' && at + 1 < x->n ? (char)(x->s[at + 1] | 32) : 0;
    for (int i = 0; i < 3; i++)
        if (second == bases[i].letter) {
            size_t end = skip_digits(x, at + 2 + (at + 2 < x->n && x->s[at + 2] == '_'), bases[i].base);
            if (end > at + 2) {
                add_int(x, at, end, bases[i].base);
                return;
            }
        }
    size_t end = skip_digits(x, at, 10), fraction = end;
    if (end + 1 < x->n && x->s[end] == '.' && is_digit(x->s[end + 1], 10))
        fraction = skip_digits(x, end + 1, 10);
    size_t whole = skip_exponent(x, fraction);
    bool behind_dot = at > 0 && x->s[at - 1] == '.'; /* a.0.1 is two subscripts */
    if (whole > end && !behind_dot) {
        add_token(x, TOKEN_FLOAT)->constant = value_float(strtod(digits_of(x, at, whole), NULL));
        advance(x, whole);
        return;
    }
    if (x->s[at] == '0') /* 0, 00, but not 01 */
        for (end = at + 1; end < x->n && x->s[end] == '0';)
            end++;
    add_int(x, at, end, 10);
}

static uint32_t read_hex(lexer *x, size_t *at, int n)
{
    uint32_t cp = 0;
    for (int i = 0; i < n; i++, ++*at) {
        if (*at >= x->n || !is_digit(x->s[*at], 16))
            fail_at(x, "a string has an escape with too few digits");
        char c = x->s[*at];
        cp = cp * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        fail_at(x, "a string has an escape for what is no character");
    return cp;
}

/* Adds one escape; *at is behind its backslash. */
static void add_escape(lexer *x, text *out, size_t *at)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = x->s[(*at)++];
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        text_add(out, &to[simple - from], 1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        text_add_char(out, read_hex(x, at, c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else if (c >= '0' && c <= '7') {
        uint32_t cp = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && is_digit(x->s[*at], 8); i++)
            cp = cp * 8 + (uint32_t)(x->s[(*at)++] - '0');
        text_add_char(out, cp);
    } else if (c == 'N') {
        fail_at(x, "a string has \\N, which is not served here");
    } else if (c != '\n') { /* a backslash at the end of a line joins lines */
        text_add(out, "\\", 1);
        text_add(out, &c, 1);
    }
}

static void read_string(lexer *x)
{
    char quote = x->s[x->at];
    size_t at = x->at + 1;
    text out = {.r = x->r};
    while (at < x->n && x->s[at] != quote) {
        if (x->s[at] != '\\') {
            text_add(&out, &x->s[at++], 1);
        } else if (++at < x->n) {
            add_escape(x, &out, &at);
        }
    }
    if (at >= x->n)
        fail_at(x, "a string does not end");
    add_token(x, TOKEN_STRING)->constant = text_value(&out);
    advance(x, at + 1);
}

static void read_name(lexer *x)
{
    const char *p = x->s + x->at, *start = p;
    while (p < x->s + x->n) {
        const char *next = p;
        if (!is_word(utf8_next(&next)))
            break;
        p = next;
    }
    token *t = add_token(x, TOKEN_NAME);
    t->s = start;
    t->n = (size_t)(p - start);
    advance(x, (size_t)(p - x->s));
}

static void balance(lexer *x, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open) {
        if (x->n_open == (int)sizeof x->open)
            fail_at(x, "nested too deeply");
        x->open[x->n_open++] = closing[open - opening];
    } else if (close && (x->n_open == 0 || x->open[--x->n_open] != c)) {
        fail_at(x, "a bracket is closed that was not opened");
    }
}

static void read_operator(lexer *x)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t n = 0;
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (looking_at(x, x->at, two[i]))
            n = 2;
    if (n == 0 && x->s[x->at] && strchr("+-/*%~[](){}><=.:|,;", x->s[x->at]))
        n = 1;
    if (n == 0)
        fail_at(x, "a character that means nothing here");
    if (n == 1)
        balance(x, x->s[x->at]);
    token *t = add_token(x, TOKEN_OPERATOR);
    t->s = x->s + x->at;
    t->n = n;
    advance(x, x->at + n);
}

/* Reads the tokens of {{ ... }} or {% ... %}, and its end. */
static void read_tag(lexer *x, bool is_block)
{
    while (x->at < x->n) {
        size_t end = x->n_open ? 0 : end_of_tag(x, x->at, is_block ? "%}" : "}}", is_block);
        if (end) {
            add_token(x, is_block ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
            advance(x, end);
            return;
        }
        const char *p = x->s + x->at;
        uint32_t cp = utf8_next(&p);
        if (unicode_is_blank(cp))
            advance(x, skip_space(x, x->at));
        else if (cp >= '0' && cp <= '9')
            read_number(x);
        else if (cp == '\'' || cp == '"')
            read_string(x);
        else if (is_word(cp))
            read_name(x);
        else
            read_operator(x);
    }
    fail_at(x, is_block ? "{% does not end" : "{{ does not end");
}

static size_t find_tag(const lexer *x, size_t at)
{
    for (; at + 1 < x->n; at++)
        if (x->s[at] == '{' && (x->s[at + 1] == '{' || x->s[at + 1] == '%' || x->s[at + 1] == '#'))
            return at;
    return x->n;
}

/* Reads the text up to the next tag, and the tag. */
static void read_next(lexer *x)
{
    size_t tag = find_tag(x, x->at);
    if (tag == x->n) {
        add_data(x, x->at, x->n);
        advance(x, x->n);
        return;
    }
    char kind = x->s[tag + 1], sign = sign_at(x, tag + 2);
    add_data(x, x->at, trimmed_end(x, x->at, tag, sign, kind != '{'));
    advance(x, tag);
    if (kind == '%' && read_raw(x))
        return;
    size_t inside = tag + 2 + (sign ? 1 : 0);
    if (kind == '#') {
        skip_comment(x, inside);
        return;
    }
    add_token(x, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN);
    advance(x, inside);
    read_tag(x, kind == '%');
}

token *jinja_lex(jinja_run *r, const char *source, size_t n)
{
    lexer x = {.r = r, .line = 1, .starts_line = true};
    normalize(&x, source, n);
    while (x.at < x.n)
        read_next(&x);
    add_token(&x, TOKEN_END);
    return x.token;
}
