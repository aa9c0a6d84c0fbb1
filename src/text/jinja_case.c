/* jinja_case.c - upper and lower case of jinja_str.h, as Python's str has them */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_chars.h"
#include "text/jinja_own.h"
#include "text/jinja_str.h"
#include "text/utf8.h"

/* Characters whose upper case is several characters. For U+1F80 to U+1FAF, Greek letters with an iota subscript, see
 * upper_of(): the capital without it, and a capital iota. */
static const struct {
    uint32_t cp, upper[3];
} long_upper[] = {
    {0xdf, {0x53, 0x53}},
    {0x149, {0x2bc, 0x4e}},
    {0x1f0, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3b0, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1e96, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}},
    {0x1fb2, {0x1fba, 0x399}},
    {0x1fb3, {0x391, 0x399}},
    {0x1fb4, {0x386, 0x399}},
    {0x1fb6, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}},
    {0x1fbc, {0x391, 0x399}},
    {0x1fc2, {0x1fca, 0x399}},
    {0x1fc3, {0x397, 0x399}},
    {0x1fc4, {0x389, 0x399}},
    {0x1fc6, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}},
    {0x1fcc, {0x397, 0x399}},
    {0x1fd2, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}},
    {0x1ff3, {0x3a9, 0x399}},
    {0x1ff4, {0x38f, 0x399}},
    {0x1ff6, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}},
    {0x1ffc, {0x3a9, 0x399}},
    {0xfb00, {0x46, 0x46}},
    {0xfb01, {0x46, 0x49}},
    {0xfb02, {0x46, 0x4c}},
    {0xfb03, {0x46, 0x46, 0x49}},
    {0xfb04, {0x46, 0x46, 0x4c}},
    {0xfb05, {0x53, 0x54}},
    {0xfb06, {0x53, 0x54}},
    {0xfb13, {0x544, 0x546}},
    {0xfb14, {0x544, 0x535}},
    {0xfb15, {0x544, 0x53b}},
    {0xfb16, {0x54e, 0x546}},
    {0xfb17, {0x544, 0x53d}},
};

static int upper_of(uint32_t cp, uint32_t out[3])
{
    static const uint32_t with_iota[] = {0x1f08, 0x1f28, 0x1f68};
    if (cp >= 0x1f80 && cp <= 0x1faf) {
        out[0] = with_iota[(cp - 0x1f80) / 16] + (cp & 7);
        out[1] = 0x399;
        return 2;
    }
    for (size_t i = 0; cp >= 0xdf && i < sizeof long_upper / sizeof long_upper[0]; i++)
        if (long_upper[i].cp == cp) {
            memcpy(out, long_upper[i].upper, sizeof long_upper[i].upper);
            return out[2] ? 3 : 2;
        }
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}

static void add_upper(text *t, uint32_t cp)
{
    uint32_t upper[3];
    int n = cp < 0x80 ? 0 : upper_of(cp, upper);
    if (cp < 0x80)
        text_add_char(t, cp >= 'a' && cp <= 'z' ? cp - 32 : cp);
    for (int i = 0; i < n; i++)
        text_add_char(t, upper[i]);
}

static void add_title(text *t, uint32_t cp)
{
    uint32_t upper[3], one = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
    int n = upper_of(cp, upper);
    if (n == 1 || char_is_title(cp) ||
        (one != cp && cp != 0xdf)) { /* utf8proc has a capital sharp s, which Python does not use */
        text_add_char(t, one);
        return;
    }
    text_add_char(t, upper[0]);
    bool is_first = !char_is_cased(upper[0]); /* the apostrophe of U+0149 */
    for (int i = 1; i < n; i++) {             /* behind the first letter, an iota becomes a subscript */
        uint32_t lower = upper[i] == 0x399 ? 0x345 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)upper[i]);
        text_add_char(t, is_first ? upper[i] : lower);
        is_first = false;
    }
}

/* A sigma is final if a cased letter comes before it and none follows. */
static bool is_final_sigma(const str *s, const char *at, const char *next)
{
    bool before = false;
    for (const char *p = at; p > s->s;) {
        const char *q = p = utf8_back(p);
        uint32_t cp = utf8_next(&q);
        if (char_is_case_ignorable(cp))
            continue;
        before = char_is_cased(cp);
        break;
    }
    if (!before)
        return false;
    for (const char *p = next; p < s->s + s->n;) {
        uint32_t cp = utf8_next(&p);
        if (!char_is_case_ignorable(cp))
            return !char_is_cased(cp);
    }
    return true;
}

static void add_lower(text *t, const str *s, const char *at, const char *next, uint32_t cp)
{
    if (cp < 0x80) {
        text_add_char(t, cp >= 'A' && cp <= 'Z' ? cp + 32 : cp);
    } else if (cp == 0x3a3) {
        text_add_char(t, is_final_sigma(s, at, next) ? 0x3c2 : 0x3c3);
    } else if (cp == 0x130) {
        text_add_cstr(t, "i\xcc\x87");
    } else {
        text_add_char(t, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
    }
}

static void add_folded(text *t, uint32_t cp)
{
    utf8proc_int32_t folded[8];
    int state = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 8, UTF8PROC_CASEFOLD, &state);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; i++)
        text_add_char(t, (uint32_t)folded[i]);
}

const str *str_in_case(jinja_run *r, const str *s, str_case to)
{
    text out = {.r = r};
    bool in_word = false;
    jinja_run_spend(r, s->n / 8);
    for (const char *p = s->s; p < s->s + s->n;) {
        const char *at = p;
        uint32_t cp = utf8_next(&p);
        if (to == CASE_FOLDED)
            add_folded(&out, cp);
        else if (to == CASE_SWAPPED && !char_is_upper(cp) && !char_is_lower(cp))
            text_add_char(&out, cp);
        else if (to == CASE_UPPER || (to == CASE_SWAPPED && char_is_lower(cp)))
            add_upper(&out, cp);
        else if ((to == CASE_TITLE && !in_word) || (to == CASE_CAPITALIZED && at == s->s))
            add_title(&out, cp);
        else
            add_lower(&out, s, at, p, cp);
        in_word = char_is_cased(cp);
    }
    value v = text_value(&out);
    if (s->own == &own_all)
        ((str *)v.s)->own = s->own;
    return s->markup ? str_mark(r, v.s) : v.s;
}

bool str_is_title(jinja_run *r, const str *s)
{
    bool any = false, in_word = false;
    jinja_run_spend(r, s->n / 8);
    for (const char *p = s->s; p < s->s + s->n;) {
        uint32_t cp = utf8_next(&p);
        bool is_cased = char_is_cased(cp);
        if (is_cased && char_is_lower(cp) != in_word)
            return false;
        in_word = is_cased;
        any |= in_word;
    }
    return any;
}

bool str_has_case(jinja_run *r, const str *s, bool upper)
{
    bool any = false;
    jinja_run_spend(r, s->n / 8);
    for (const char *p = s->s; p < s->s + s->n;) {
        uint32_t cp = utf8_next(&p);
        if (!char_is_cased(cp))
            continue;
        any = true;
        if (upper ? !char_is_upper(cp) : !char_is_lower(cp))
            return false;
    }
    return any;
}
