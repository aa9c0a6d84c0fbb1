/* pattern.c - see pattern.h
 *
 * The translation walks the expression once. Most of it is copied; the comments beside each case
 * say where the engines differ. */
#include "text/pattern.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/clock.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define MAX_PATTERN 65536
#define MATCH_LIMIT 10000000      /* backtracking steps of one search */
#define HEAP_LIMIT_KB (64 * 1024) /* of one search by the interpreter */
#define CALLS_PER_CLOCK 64        /* searches per reading of the clock */
#define SHORT_LITERAL 4           /* bytes */

struct pattern {
    char *literal; /* [n], or NULL for a regular expression */
    size_t n;
    pcre2_code *code;
    bool jit;
};

struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    double deadline;
    unsigned n_calls;
};

/* The translation in progress. */
typedef struct {
    const char *at, *start, *end;
    buf out;
    bool in_class;
    err *e;
} translation;

/* Refuses the expression; `what` names the construct at t->at. */
static int refuse(const translation *t, const char *what)
{
    return err_set(t->e, "%s at character %td is not supported", what, t->at - t->start);
}

static int refuse_escape(const translation *t, const char *escape)
{
    char what[32];
    snprintf(what, sizeof what, "\\%.4s%s", escape, t->in_class ? " in a class" : "");
    return refuse(t, what);
}

/* Properties that are neither a category nor a script. */
static bool is_binary_property(const char *name, size_t n)
{
    static const char *const known[] = {"Alphabetic", "Uppercase", "Lowercase", "White_Space", "Any"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0)
            return true;
    return false;
}

/* \p{...}: categories (of one or two letters) are the same. Scripts get "sc:", since PCRE2 would
 * take a bare name for Script_Extensions, which has more characters. */
static int translate_property(translation *t)
{
    const char *name = t->at + 3, *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    if (name > t->end || t->at[2] != '{' || !close || close == name)
        return refuse_escape(t, "p without {name}");
    bool negated = *name == '^';
    if (negated)
        name++;
    for (const char *c = name; c < close; c++)
        if (!isalpha((unsigned char)*c) && *c != '_')
            return refuse(t, "this \\p{...}");
    size_t n = (size_t)(close - name);
    bool outside = (t->at[1] == 'P') != negated, script = n > 2 && !is_binary_property(name, n);
    buf_printf(&t->out, "\\%c{%s%.*s}", outside ? 'P' : 'p', script ? "sc:" : "", (int)n, name);
    t->at = close + 1;
    return 0;
}

/* \x{...}, \uHHHH, and \xHH below 80, where a byte is a character. */
static int translate_hex(translation *t)
{
    const char *p = t->at + 2;
    size_t left = (size_t)(t->end - p), n = 0;
    bool braces = t->at[1] == 'x' && left > 0 && *p == '{';
    p += braces;
    left -= braces;
    size_t most = braces ? 6 : t->at[1] == 'u' ? 4 : 2;
    while (n < most && n < left && isxdigit((unsigned char)p[n]))
        n++;
    if (n == 0 || (!braces && n != most) || (braces && (n == left || p[n] != '}')))
        return refuse_escape(t, "x");
    if (!braces && most == 2 && p[0] >= '8')
        return refuse_escape(t, "x of a byte above 7F");
    buf_printf(&t->out, "\\x{%.*s}", (int)n, p);
    t->at = p + n + braces;
    return 0;
}

static int translate_escape(translation *t)
{
    if (t->end - t->at < 2)
        return refuse(t, "a lone backslash");
    char c = t->at[1];
    if (c == 'p' || c == 'P')
        return translate_property(t);
    if (c == 'x' || c == 'u')
        return translate_hex(t);
    /* Letters that mean the same in both engines; anchors make no sense in a class. */
    const char *same = t->in_class ? "sSdDnrtfae" : "sSdDnrtfaeAzZ";
    if (c == 'v') /* PCRE2: any vertical space */
        buf_add_str(&t->out, "\\x{0b}");
    else if (c == 'b' && t->in_class)
        buf_add_str(&t->out, "\\x{08}");
    else if (c == 'w') /* PCRE2: letters, numbers, underscore */
        buf_printf(&t->out, "%s\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}%s",
                   t->in_class ? "" : "[", t->in_class ? "" : "]");
    else if (isalnum((unsigned char)c) ? strchr(same, c) != NULL : (unsigned char)c < 0x80 && c != 0)
        buf_add(&t->out, t->at, 2);
    else
        return refuse_escape(t, (char[]){c, 0});
    t->at += 2;
    return 0;
}

/* Groups: the plain ones, lookaround, and (?i: . Of bare options only a leading (?i) is taken: further on, their scope
 * differs between the engines. */
static int translate_group(translation *t)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"};
    size_t left = (size_t)(t->end - t->at), n = 0;
    if (left < 2 || (t->at[1] != '?' && t->at[1] != '*'))
        n = 1;
    else if (t->at == t->start && left >= 4 && memcmp(t->at, "(?i)", 4) == 0)
        n = 4;
    for (size_t i = 0; n == 0 && i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) <= left && memcmp(t->at, known[i], strlen(known[i])) == 0)
            n = strlen(known[i]);
    if (n == 0)
        return refuse(t, "this kind of group");
    buf_add(&t->out, t->at, n);
    t->at += n;
    return 0;
}

/* {n,m}. Only PCRE2 reads a + behind it as possessive and a ? behind {n} as lazy, and it has no {,m}. */
static int translate_interval(translation *t)
{
    const char *p = t->at + 1;
    if (p < t->end && *p == ',')
        return refuse(t, "{,");
    bool comma = false;
    while (p < t->end && (isdigit((unsigned char)*p) || (*p == ',' && !comma)))
        comma |= *p++ == ',';
    if (p < t->end && *p == '}' && p > t->at + 1) {
        if (p + 1 < t->end && (p[1] == '+' || p[1] == '*' || (p[1] == '?' && !comma)))
            return refuse(t, "a second quantifier behind {...}");
        p++;
    }
    buf_add(&t->out, t->at, (size_t)(p - t->at));
    t->at = p;
    return 0;
}

static int open_class(translation *t)
{
    size_t n = t->end - t->at > 1 && t->at[1] == '^' ? 2 : 1;
    if ((size_t)(t->end - t->at) > n && t->at[n] == ']')
        return refuse(t, "an empty class");
    buf_add(&t->out, t->at, n);
    t->at += n;
    t->in_class = true;
    return 0;
}

static int translate_one(translation *t)
{
    char c = *t->at;
    if (c == 0)
        return refuse(t, "a NUL character");
    if (c == '\\')
        return translate_escape(t);
    if (t->in_class && c == '[') /* a set in a set, or [:name:] */
        return refuse(t, "[ inside a class");
    if (t->in_class && c == '&' && t->end - t->at > 1 && t->at[1] == '&')
        return refuse(t, "&& inside a class");
    if (!t->in_class && c == '[')
        return open_class(t);
    if (!t->in_class && c == '(')
        return translate_group(t);
    if (!t->in_class && c == '{')
        return translate_interval(t);
    if (c == ']')
        t->in_class = false;
    buf_add_char(&t->out, c);
    t->at++;
    return 0;
}

static int translate(buf *out, const char *text, size_t n, err *e)
{
    translation t = {.at = text, .start = text, .end = text + n, .e = e};
    int rc = n > MAX_PATTERN ? err_set(e, "it is longer than %d bytes", MAX_PATTERN) : 0;
    while (rc == 0 && t.at < t.end)
        rc = translate_one(&t);
    *out = t.out;
    return rc;
}

static pcre2_code *compile(const buf *expression, err *e)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* Multi-line: in Oniguruma ^ and $ always match at the ends of lines. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)expression->data, expression->len, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!c) {
        PCRE2_UCHAR what[128];
        pcre2_get_error_message(code, what, sizeof what);
        err_set(e, "%s", (char *)what);
    }
    return c;
}

pattern *pattern_new_regex(const char *text, size_t n, err *e)
{
    if (n == 0 || !utf8_is_valid(text, n)) {
        err_set(e, n ? "the regex is not UTF-8" : "the regex is empty");
        return NULL;
    }
    buf expression = {0};
    pattern *p = NULL;
    pcre2_code *code = NULL;
    if (translate(&expression, text, n, e) == 0 && (code = compile(&expression, e))) {
        p = XNEW(pattern);
        p->code = code;
        p->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0; /* without JIT it is slower */
    } else {
        err_wrap(e, "regex \"%.*s%s\"", n > 80 ? 80 : (int)n, text, n > 80 ? "..." : "");
    }
    buf_free(&expression);
    return p;
}

pattern *pattern_new_literal(const char *text, size_t n, err *e)
{
    if (n == 0) {
        err_set(e, "the pattern is empty");
        return NULL;
    }
    pattern *p = XNEW(pattern);
    p->literal = xstrndup(text, n);
    p->n = n;
    return p;
}

pattern *pattern_from_json(const json_t *spec, err *e)
{
    const json_t *literal = json_object_get(spec, "String"), *regex = json_object_get(spec, "Regex");
    if (json_object_size(spec) == 1 && json_is_string(literal))
        return pattern_new_literal(json_string_value(literal), json_string_length(literal), e);
    if (json_object_size(spec) == 1 && json_is_string(regex))
        return pattern_new_regex(json_string_value(regex), json_string_length(regex), e);
    err_set(e, "\"pattern\" must be {\"String\": text} or {\"Regex\": text}");
    return NULL;
}

void pattern_free(pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p->literal);
    free(p);
}

size_t pattern_literal_length(const pattern *p)
{
    return p->literal ? p->n : 0;
}

bool pattern_is_literal(const pattern *p)
{
    return p->literal != NULL;
}

matcher *matcher_new(size_t text_len)
{
    matcher *m = XNEW(matcher);
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    CHECK(m->data && m->context);
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    pcre2_set_heap_limit(m->context, HEAP_LIMIT_KB);
    m->deadline = clock_now() + 3 + 20e-6 * (double)text_len; /* seconds; ordinary text needs 0.1e-6 a byte */
    return m;
}

void matcher_free(matcher *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    free(m);
}

void pattern_scan_begin(pattern_scan *s, const pattern *p, matcher *m, const char *text, size_t n)
{
    *s = (pattern_scan){.p = p, .m = m, .text = text, .n = n, .last_end = SIZE_MAX};
    s->seen = p->literal ? text : unicode_for_regex(text, n, &s->shadow);
}

void pattern_scan_end(pattern_scan *s)
{
    buf_free(&s->shadow);
}

/* Returns the next occurrence of the literal, or NULL. Mostly it is one character, and near:
 * memmem() would take longer to set up than to search. */
static const char *find_literal(const pattern *p, const char *at, const char *end)
{
    if (p->n > SHORT_LITERAL)
        return memmem(at, (size_t)(end - at), p->literal, p->n);
    while ((size_t)(end - at) >= p->n) {
        at = memchr(at, p->literal[0], (size_t)(end - at) - (p->n - 1));
        if (!at || memcmp(at, p->literal, p->n) == 0)
            return at;
        at++;
    }
    return NULL;
}

static int next_literal(pattern_scan *s, size_t *start, size_t *end)
{
    const char *hit = find_literal(s->p, s->text + s->from, s->text + s->n);
    if (!hit)
        return 0;
    *start = (size_t)(hit - s->text);
    *end = s->from = *start + s->p->n;
    return 1;
}

/* Searches from `from` on. Returns what PCRE2 does: > 0, or an error code. */
static int search(pattern_scan *s, size_t from)
{
    PCRE2_SPTR seen = (PCRE2_SPTR)s->seen;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (s->p->jit)
        rc = pcre2_jit_match(s->p->code, seen, s->n, from, 0, s->m->data, s->m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
        rc = pcre2_match(s->p->code, seen, s->n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->m->data, s->m->context);
    return rc;
}

static int next_regex(pattern_scan *s, size_t *start, size_t *end, err *e)
{
    while (s->from <= s->n) {
        if (s->m->n_calls++ % CALLS_PER_CLOCK == 0 && clock_now() > s->m->deadline)
            return err_set(e, "a regex of this tokenizer takes too long on this text");
        int rc = search(s, s->from);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc < 0)
            return err_set(e, "a regex of this tokenizer fails on this text (PCRE2 error %d)", rc);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->m->data);
        *start = at[0];
        *end = at[1];
        bool empty_again = *start == *end && *end == s->last_end;
        s->from = s->last_end = *end;
        if (!empty_again)
            return 1;
        const char *next = s->text + s->from;
        if (s->from < s->n)
            utf8_next(&next);
        s->from = s->from < s->n ? (size_t)(next - s->text) : s->n + 1;
    }
    return 0;
}

int pattern_scan_next(pattern_scan *s, size_t *start, size_t *end, err *e)
{
    return s->p->literal ? next_literal(s, start, end) : next_regex(s, start, end, e);
}
