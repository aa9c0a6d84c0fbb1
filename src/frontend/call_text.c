/* call_text.c - see call_text.h */
#include "frontend/call_text.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/utf8.h"

void call_text_free(call_text *c)
{
    buf_free(&c->name);
    buf_free(&c->arguments);
    *c = (call_text){0};
}

/* JSON, scanned only for where values end: by strings and brackets. */

typedef struct { const char *at, *end; } scan;

static void skip_blanks(scan *s)
{
    while (s->at < s->end && isspace((unsigned char)*s->at))
        s->at++;
}

static call_status take_char(scan *s, char c)
{
    skip_blanks(s);
    if (s->at == s->end)
        return CALL_MORE;
    if (*s->at != c)
        return CALL_BAD;
    s->at++;
    return CALL_DONE;
}

static call_status scan_string(scan *s)
{
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++)
        if (*s->at == '\\' && s->at + 1 < s->end)
            s->at++;
    if (s->at == s->end)
        return CALL_MORE;
    s->at++;
    return CALL_DONE;
}

static call_status scan_brackets(scan *s)
{
    int depth = 0;
    while (s->at < s->end) {
        if (*s->at == '"') {
            if (scan_string(s) == CALL_MORE)
                return CALL_MORE;
            continue;
        }
        depth += *s->at == '{' || *s->at == '[' ? 1 : *s->at == '}' || *s->at == ']' ? -1 : 0;
        s->at++;
        if (depth == 0)
            return CALL_DONE;
    }
    return CALL_MORE;
}

/* Scans a number or a word: only what follows shows its end. */
static call_status scan_word(scan *s)
{
    const char *from = s->at;
    while (s->at < s->end && (isalnum((unsigned char)*s->at) || strchr("+-._", *s->at)))
        s->at++;
    return s->at == s->end ? CALL_MORE : s->at == from ? CALL_BAD : CALL_DONE;
}

static call_status scan_value(scan *s)
{
    skip_blanks(s);
    if (s->at == s->end)
        return CALL_MORE;
    return *s->at == '"' ? scan_string(s) : *s->at == '{' || *s->at == '[' ? scan_brackets(s) : scan_word(s);
}

/* Appends the value of a JSON string. False: it is none. */
static bool add_string(buf *out, const char *from, const char *to)
{
    json_t *v = to > from ? json_loadb(from, (size_t)(to - from), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    bool ok = json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
    if (ok)
        buf_add_str(out, json_string_value(v));
    json_decref(v);
    return ok;
}

/* What the members of an object have shown. */
typedef struct {
    bool named, other;     /* other: members that calls do not have */
    const char *from, *to; /* the arguments; NULL: none yet */
    bool whole;            /* they are complete */
} members;

static call_status scan_member(scan *s, members *m, call_text *out)
{
    buf key = {0};
    skip_blanks(s);
    if (s->at == s->end)
        return CALL_MORE;
    const char *from = s->at;
    call_status state = *s->at == '"' ? scan_string(s) : CALL_BAD;
    if (state == CALL_DONE && !add_string(&key, from, s->at))
        state = CALL_BAD;
    if (state == CALL_DONE)
        state = take_char(s, ':');
    if (state == CALL_DONE) {
        skip_blanks(s);
        from = s->at;
        state = scan_value(s);
        const char *name = key.data;
        if (strcmp(name, "name") == 0) {
            if (state == CALL_DONE && !m->named && !(m->named = add_string(&out->name, from, s->at)))
                state = CALL_BAD;
        } else if (!m->from && (strcmp(name, "arguments") == 0 || strcmp(name, "parameters") == 0)) {
            m->from = from; /* only the first counts: it may have been told */
            m->to = s->at;
            m->whole = state == CALL_DONE;
        } else {
            m->other |= strcmp(name, "type") != 0 && strcmp(name, "id") != 0;
        }
    }
    buf_free(&key);
    return state;
}

static call_status scan_members(scan *s, members *m, call_text *out)
{
    call_status state = take_char(s, '{');
    for (bool first = true; state == CALL_DONE; first = false) {
        if ((state = take_char(s, '}')) != CALL_BAD)
            return state;
        if (!first && (state = take_char(s, ',')) != CALL_DONE)
            return state;
        state = scan_member(s, m, out);
    }
    return state;
}

/* Adds the arguments: an object, as far as it has come, or what a complete string says. False: there is neither. */
static bool add_arguments(const members *m, call_text *out)
{
    if (m->from < m->to && *m->from == '{')
        buf_add(&out->arguments, m->from, (size_t)(m->to - m->from));
    return m->from < m->to && (*m->from == '{' || (m->whole && add_string(&out->arguments, m->from, m->to)));
}

call_status call_read_object(const char *text, size_t n, call_text *out)
{
    scan s = {text, text + n};
    members m = {0};
    call_status state = scan_members(&s, &m, out);
    out->end = (size_t)(s.at - text);
    out->begun = m.named && m.from && add_arguments(&m, out);
    if (state == CALL_BAD && out->begun && m.whole)
        return CALL_DONE; /* a call stays one, whatever stands behind its arguments */
    if (state != CALL_DONE || out->begun)
        return state;
    bool bare = m.named && !m.from && !m.other;
    if (bare)
        buf_add_str(&out->arguments, "{}");
    out->begun = bare;
    return bare ? CALL_DONE : CALL_BAD;
}

call_status call_read_arguments(const char *text, size_t n, call_text *out)
{
    scan s = {text, text + n};
    skip_blanks(&s);
    const char *from = s.at;
    call_status state = scan_value(&s);
    out->begun = s.at > from;
    out->end = (size_t)(s.at - text);
    buf_add(&out->arguments, from, (size_t)(s.at - from));
    return state;
}

/* Python: literals, as far as calls have them, written as JSON. */
typedef struct {
    const char *at, *end;
    buf out;
    bool ok;
    int depth;
} python;

static void skip_space(python *p)
{
    while (p->at < p->end && isspace((unsigned char)*p->at))
        p->at++;
}

static bool take(python *p, char c)
{
    skip_space(p);
    bool there = p->at < p->end && *p->at == c;
    p->at += there;
    return there;
}

static bool take_word(python *p, const char *word, const char *json)
{
    size_t n = strlen(word), left = (size_t)(p->end - p->at);
    if (left < n && memcmp(p->at, word, left) == 0) {
        p->at = p->end; /* the rest may come */
        p->ok = false;
        return true;
    }
    if (left < n || memcmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    buf_add_str(&p->out, json);
    return true;
}

static void add_escaped(buf *out, char c)
{
    if (c == '"' || c == '\\')
        buf_add_char(out, '\\');
    if ((unsigned char)c < 0x20)
        buf_printf(out, "\\u%04x", (unsigned char)c);
    else
        buf_add_char(out, c);
}

/* Reads a character's number, of n hexadecimal digits. Half of a surrogate pair becomes U+FFFD. */
static void read_code(python *p, int n)
{
    uint32_t code = 0;
    for (int i = 0; i < n; i++, p->at++) {
        if (p->at >= p->end || !isxdigit((unsigned char)*p->at)) {
            p->ok = false;
            return;
        }
        code = code * 16 +
               (uint32_t)(isdigit((unsigned char)*p->at) ? *p->at - '0' : tolower((unsigned char)*p->at) - 'a' + 10);
    }
    if (code < 0x80)
        add_escaped(&p->out, (char)code);
    else
        utf8_add(&p->out, code >= 0x110000 || (code >= 0xd800 && code < 0xe000) ? 0xfffd : code);
}

static void read_escape(python *p)
{
    char c = *p->at++;
    if (c == 'x' || c == 'u' || c == 'U') {
        read_code(p, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        return;
    }
    if (!strchr("ntr\\'\"\n", c))
        add_escaped(&p->out, '\\');
    if (c != '\n')
        add_escaped(&p->out, c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
}

static void read_string(python *p)
{
    char quote = *p->at++;
    buf_add_char(&p->out, '"');
    while (p->ok && p->at < p->end && *p->at != quote) {
        char c = *p->at++;
        if (c == '\\' && p->at < p->end)
            read_escape(p);
        else
            add_escaped(&p->out, c);
    }
    p->ok = p->ok && p->at < p->end;
    p->at += p->at < p->end;
    buf_add_char(&p->out, '"');
}

static void read_python(python *p);

/* Reads items up to `close`; pairs: those of a dictionary. */
static void read_items(python *p, char close, bool pairs)
{
    buf_add_char(&p->out, pairs ? '{' : '[');
    for (bool first = true; p->ok && !take(p, close); first = false) {
        if (!first && !take(p, ',')) {
            p->ok = false;
            return;
        }
        if (!first && take(p, close))
            break;
        if (!first)
            buf_add_str(&p->out, ", ");
        read_python(p);
        if (pairs) {
            p->ok = p->ok && take(p, ':');
            buf_add_str(&p->out, ": ");
            read_python(p);
        }
    }
    buf_add_char(&p->out, pairs ? '}' : ']');
}

static void read_number(python *p)
{
    const char *from = p->at;
    while (p->at < p->end && (isdigit((unsigned char)*p->at) || strchr("+-.eE", *p->at)))
        p->at++;
    p->ok = p->ok && p->at > from;
    buf_add(&p->out, from, (size_t)(p->at - from));
}

static void read_python(python *p)
{
    skip_space(p);
    if (!p->ok || p->at >= p->end || ++p->depth > 64) {
        p->ok = false;
        return;
    }
    if (*p->at == '"' || *p->at == '\'')
        read_string(p);
    else if (take(p, '['))
        read_items(p, ']', false);
    else if (take(p, '('))
        read_items(p, ')', false);
    else if (take(p, '{'))
        read_items(p, '}', true);
    else if (!take_word(p, "True", "true") && !take_word(p, "False", "false") && !take_word(p, "None", "null") &&
             !take_word(p, "true", "true") && !take_word(p, "false", "false") && !take_word(p, "null", "null"))
        read_number(p);
    p->depth--;
}

static bool read_name(python *p, const char **name, size_t *n)
{
    skip_space(p);
    *name = p->at;
    while (p->at < p->end && (isalnum((unsigned char)*p->at) || strchr("_.-", *p->at)))
        p->at++;
    *n = (size_t)(p->at - *name);
    return *n > 0;
}

static bool read_call(python *p, call_text *out)
{
    const char *name, *key;
    size_t n, n_key;
    if (!read_name(p, &name, &n) || !take(p, '('))
        return false;
    buf_add_char(&p->out, '{');
    for (bool first = true; !take(p, ')'); first = false) {
        if ((!first && !take(p, ',')) || !read_name(p, &key, &n_key) || !take(p, '='))
            return false;
        buf_printf(&p->out, "%s\"%.*s\": ", first ? "" : ", ", (int)n_key, key);
        read_python(p);
        if (!p->ok)
            return false;
    }
    buf_add_char(&p->out, '}');
    json_t *check = json_loadb(p->out.data, p->out.len, 0, NULL);
    json_decref(check);
    if (check)
        buf_add(&out->name, name, n);
    return check;
}

/* A failure at the end of the text means that more may come; one before it, that this is no call. */
call_status call_read_python(const char *text, size_t n, call_text *out)
{
    python p = {.at = text, .end = text + n, .ok = true};
    out->begun = read_call(&p, out);
    out->end = (size_t)(p.at - text);
    if (out->begun) {
        out->arguments = p.out;
        return CALL_DONE;
    }
    buf_free(&p.out);
    return p.at >= p.end ? CALL_MORE : CALL_BAD;
}
