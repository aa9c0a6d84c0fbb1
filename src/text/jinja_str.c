/* jinja_str.c - see jinja_str.h */
#include "text/jinja_str.h"

#include <string.h>

#include "text/jinja_own.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Bytes reserved behind a long string, shared by all strings that were made by appending to it. The one that ends at
 * `used` may grow in place. */
struct str_room { size_t used, cap; };

enum { MIN_ROOM = 256 }; /* bytes; shorter strings get no room */

/* Makes a string that borrows s. While compiling it is text of the program, so all of it is own. */
static str *make(jinja_run *r, const char *s, size_t n)
{
    str *x = JINJA_NEW(r, str);
    *x = (str){.s = s, .n = n, .n_chars = UNCOUNTED, .own = r->render ? NULL : &own_all};
    return x;
}

const str *str_new(jinja_run *r, const char *s, size_t n)
{
    return make(r, s, n);
}

const str *str_copy(jinja_run *r, const char *s, size_t n)
{
    char *copy = jinja_run_alloc(r, n);
    if (n)
        memcpy(copy, s, n);
    return make(r, copy, n);
}

const str *str_like(jinja_run *r, const str *from, const char *s, size_t n)
{
    str *x = make(r, s, n);
    x->markup = from->markup;
    if (from->own == &own_all)
        x->own = from->own;
    else if (s >= from->s && s + n <= from->s + from->n)
        own_part(x, from, (size_t)(s - from->s));
    return x;
}

const str *str_of(jinja_run *r, const char *s)
{
    return make(r, s, strlen(s));
}

static size_t count_chars(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    return chars;
}

/* Strings of the program were counted when it was compiled, so this writes only to strings of one run. */
size_t str_chars(const str *s)
{
    if (s->n_chars == UNCOUNTED)
        ((str *)s)->n_chars = count_chars(s->s, s->n);
    return s->n_chars;
}

size_t str_offset(const str *s, size_t chars)
{
    if (chars >= str_chars(s))
        return s->n;
    if (s->n_chars == s->n)
        return chars;
    const char *p = s->s;
    for (; chars > 0; chars--)
        utf8_next(&p);
    return (size_t)(p - s->s);
}

size_t str_chars_before(const str *s, size_t offset)
{
    return str_chars(s) == s->n ? offset : count_chars(s->s, offset);
}

const str *str_slice(jinja_run *r, const str *s, size_t from, size_t to)
{
    size_t start = str_offset(s, from), end = to > from ? str_offset(s, to) : start;
    if (s->n_chars != s->n)
        jinja_run_spend(r, end / 64);
    return str_like(r, s, s->s + start, end - start);
}

bool str_equal(const str *a, const str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->s, b->s, a->n) == 0);
}

bool str_is(const str *a, const char *b)
{
    return a->n == strlen(b) && memcmp(a->s, b, a->n) == 0;
}

bool str_starts(const str *s, const char *with, size_t n)
{
    return s->n >= n && (n == 0 || memcmp(s->s, with, n) == 0);
}

bool str_ends(const str *s, const char *with, size_t n)
{
    return s->n >= n && (n == 0 || memcmp(s->s + s->n - n, with, n) == 0);
}

size_t str_find(jinja_run *r, const str *s, const str *what, size_t from, size_t to)
{
    if (to > s->n)
        to = s->n;
    if (from > to || what->n > to - from)
        return STR_NOT_FOUND;
    if (what->n == 0)
        return from;
    const char *p = memmem(s->s + from, to - from, what->s, what->n);
    size_t found = p ? (size_t)(p - s->s) : STR_NOT_FOUND;
    jinja_run_spend(r, ((p ? found : to) - from) / 64);
    return found;
}

size_t str_find_last(jinja_run *r, const str *s, const str *what, size_t from, size_t to)
{
    if (to > s->n)
        to = s->n;
    if (from > to || what->n > to - from)
        return STR_NOT_FOUND;
    if (what->n == 0)
        return to;
    for (size_t at = to - what->n + 1; at-- > from;) {
        if (s->s[at] != what->s[0])
            continue;
        jinja_run_spend(r, what->n / 64);
        if (memcmp(s->s + at, what->s, what->n) == 0) {
            jinja_run_spend(r, (to - at) / 16);
            return at;
        }
    }
    jinja_run_spend(r, (to - from) / 16);
    return STR_NOT_FOUND;
}

/* Returns a copy of a in a buffer of twice the bytes that a and `more` bytes take. */
static str *with_room(jinja_run *r, const str *a, size_t more)
{
    struct str_room *room = JINJA_NEW(r, struct str_room);
    *room = (struct str_room){.used = a->n, .cap = 2 * (a->n + more)};
    char *data = jinja_run_alloc(r, room->cap);
    memcpy(data, a->s, a->n);
    str *x = make(r, data, a->n);
    x->room = room;
    return x;
}

static const str *append(jinja_run *r, const str *a, const str *b)
{
    if (a->n + b->n < MIN_ROOM) {
        char *data = jinja_run_alloc(r, a->n + b->n);
        memcpy(data, a->s, a->n);
        memcpy(data + a->n, b->s, b->n);
        str *x = make(r, data, a->n + b->n);
        own_concat(r, x, a, b);
        return x;
    }
    const str *whose = a;
    if (!a->room || a->room->used != a->n || a->room->cap - a->n < b->n)
        a = with_room(r, a, b->n);
    jinja_run_spend(r, b->n / 64);
    memcpy((char *)a->s + a->n, b->s, b->n);
    a->room->used += b->n;
    str *x = make(r, a->s, a->n + b->n);
    x->room = a->room;
    own_concat(r, x, whose, b);
    return x;
}

const str *str_concat(jinja_run *r, const str *a, const str *b)
{
    bool markup = a->markup || b->markup;
    if (markup) {
        a = str_escape(r, a);
        b = str_escape(r, b);
    }
    const str *x = b->n == 0 ? a : a->n == 0 ? b : append(r, a, b);
    return markup ? str_mark(r, x) : x;
}

const str *str_repeat(jinja_run *r, const str *s, int64_t n)
{
    if (n <= 0 || s->n == 0)
        return str_like(r, s, "", 0);
    if ((uint64_t)n > r->mem.limit / s->n)
        jinja_run_fail(r, "a string of %lld times %zu bytes is too long", (long long)n, s->n);
    char *data = jinja_run_alloc(r, (size_t)n * s->n);
    for (int64_t i = 0; i < n; i++)
        memcpy(data + (size_t)i * s->n, s->s, s->n);
    return str_like(r, s, data, (size_t)n * s->n);
}

static const char *entity_of(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '\'': return "&#39;";
    case '"': return "&#34;";
    default: return NULL;
    }
}

const str *str_escape(jinja_run *r, const str *s)
{
    if (s->markup)
        return s;
    text out = {.r = r};
    for (size_t i = 0; i < s->n; i++) {
        const char *entity = entity_of(s->s[i]);
        if (entity)
            text_add_cstr(&out, entity);
        else
            text_add_part(&out, s, i, 1);
    }
    return str_mark(r, text_value(&out).s);
}

static const str *with_mark(jinja_run *r, const str *s, bool markup)
{
    if (s->markup == markup)
        return s;
    str *x = JINJA_NEW(r, str);
    *x = *s;
    x->markup = markup;
    return x;
}

const str *str_plain(jinja_run *r, const str *s)
{
    return with_mark(r, s, false);
}

const str *str_mark(jinja_run *r, const str *s)
{
    return with_mark(r, s, true);
}

bool char_is_line_end(uint32_t cp)
{
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

static bool is_one_of(uint32_t cp, const str *chars)
{
    if (!chars)
        return unicode_is_blank(cp);
    for (const char *p = chars->s; p < chars->s + chars->n;)
        if (utf8_next(&p) == cp)
            return true;
    return false;
}

const str *str_strip(jinja_run *r, const str *s, const str *chars, side where)
{
    const char *start = s->s, *end = s->s + s->n;
    while ((where & SIDE_LEFT) && start < end) {
        const char *next = start;
        if (!is_one_of(utf8_next(&next), chars))
            break;
        start = next;
    }
    while ((where & SIDE_RIGHT) && end > start) {
        const char *last = utf8_back(end), *p = last;
        if (!is_one_of(utf8_next(&p), chars))
            break;
        end = last;
    }
    jinja_run_spend(r, (s->n - (size_t)(end - start)) * (chars ? chars->n + 1 : 1) / 16);
    return start == s->s && end == s->s + s->n ? s : str_like(r, s, start, (size_t)(end - start));
}

/* Replace, split. */

const str *str_replace(jinja_run *r, const str *s, const str *what, const str *by, int64_t count)
{
    text out = {.r = r};
    size_t at = 0;
    if (s->markup)
        by = str_escape(r, by);
    for (; count != 0; count -= count > 0) {
        size_t found = str_find(r, s, what, at, s->n);
        if (found == STR_NOT_FOUND)
            break;
        jinja_run_spend(r, 1);
        if (what->n > 0) {
            text_add_part(&out, s, at, found - at);
            text_add_str(&out, by);
            at = found + what->n;
            continue;
        }
        text_add_str(&out, by); /* the empty string is found before every character, and at the end */
        if (at == s->n)
            break;
        const char *next = s->s + at;
        utf8_next(&next);
        text_add_part(&out, s, at, (size_t)(next - s->s) - at);
        at = (size_t)(next - s->s);
    }
    if (at == 0 && out.n == 0)
        return s;
    text_add_part(&out, s, at, s->n - at);
    value v = text_value(&out);
    return s->markup ? str_mark(r, v.s) : v.s;
}

typedef struct {
    value *at;
    size_t n, cap;
} parts;

static void add_part(jinja_run *r, parts *p, const str *s, size_t from, size_t to)
{
    p->at = jinja_run_grow(r, p->at, p->n, &p->cap, 8, sizeof *p->at);
    jinja_run_spend(r, 1);
    p->at[p->n++] = value_str(str_like(r, s, s->s + from, to - from));
}

static void reverse(parts *p)
{
    for (size_t i = 0; i < p->n / 2; i++) {
        value v = p->at[i];
        p->at[i] = p->at[p->n - 1 - i];
        p->at[p->n - 1 - i] = v;
    }
}

static size_t skip(const str *s, size_t at, bool space)
{
    for (const char *p = s->s + at; p < s->s + s->n;) {
        const char *here = p;
        if (unicode_is_blank(utf8_next(&p)) != space)
            return (size_t)(here - s->s);
    }
    return s->n;
}

static size_t skip_back(const str *s, size_t end, bool space)
{
    while (end > 0) {
        const char *last = utf8_back(s->s + end), *p = last;
        if (unicode_is_blank(utf8_next(&p)) != space)
            return end;
        end = (size_t)(last - s->s);
    }
    return 0;
}

static void split_words(jinja_run *r, const str *s, int64_t count, parts *out)
{
    for (size_t at = skip(s, 0, true); at < s->n; count -= count > 0) {
        size_t end = count == 0 ? s->n : skip(s, at, false);
        add_part(r, out, s, at, end);
        at = skip(s, end, true);
    }
}

static void split_words_back(jinja_run *r, const str *s, int64_t count, parts *out)
{
    for (size_t end = skip_back(s, s->n, true); end > 0; count -= count > 0) {
        size_t start = count == 0 ? 0 : skip_back(s, end, false);
        add_part(r, out, s, start, end);
        end = skip_back(s, start, true);
    }
    reverse(out);
}

value str_split(jinja_run *r, const str *s, const str *by, int64_t count, bool from_right)
{
    parts out = {0};
    jinja_run_spend(r, s->n / 16);
    if (by && by->n == 0)
        jinja_run_fail(r, "the separator is empty");
    if (!by && from_right)
        split_words_back(r, s, count, &out);
    else if (!by)
        split_words(r, s, count, &out);
    if (by && !from_right) {
        size_t at = 0, found;
        for (; count != 0 && (found = str_find(r, s, by, at, s->n)) != STR_NOT_FOUND; count -= count > 0) {
            add_part(r, &out, s, at, found);
            at = found + by->n;
        }
        add_part(r, &out, s, at, s->n);
    } else if (by) {
        size_t end = s->n, found;
        for (; count != 0 && (found = str_find_last(r, s, by, 0, end)) != STR_NOT_FOUND; count -= count > 0) {
            add_part(r, &out, s, found + by->n, end);
            end = found;
        }
        add_part(r, &out, s, 0, end);
        reverse(&out);
    }
    return value_list(r, VALUE_LIST, out.at, out.n);
}

value str_lines(jinja_run *r, const str *s, bool keep_ends)
{
    parts out = {0};
    size_t start = 0;
    jinja_run_spend(r, s->n / 16);
    for (const char *p = s->s; p < s->s + s->n;) {
        size_t at = (size_t)(p - s->s);
        uint32_t cp = utf8_next(&p);
        if (!char_is_line_end(cp))
            continue;
        if (cp == '\r' && p < s->s + s->n && *p == '\n')
            p++;
        add_part(r, &out, s, start, keep_ends ? (size_t)(p - s->s) : at);
        start = (size_t)(p - s->s);
    }
    if (start < s->n)
        add_part(r, &out, s, start, s->n);
    return value_list(r, VALUE_LIST, out.at, out.n);
}
