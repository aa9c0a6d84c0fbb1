/* unicode.c - see unicode.h */
#include "text/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/err.h"
#include "base/mem.h"
#include "text/utf8.h"

/* Characters whose combining class or decomposition came with Unicode 10 or later. The reference
 * normalises by Unicode 9 and leaves them as they are. */
static const unicode_range after_unicode_9[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
    {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

/* General categories, and CJK ideographs apart because patterns name their script. */
enum { LU, LL, LM, LO, HAN, MN, MC, ND, NO, PD, PO, SM, SO, CF, N_CATEGORIES };

/* An older character of each category, of three bytes in UTF-8 (where one is needed) and of four. */
static const struct {
    uint32_t in_3, in_4;
} stand_in[N_CATEGORIES] = {
    [LU] = {0x2c00, 0x10400}, [LL] = {0x2c30, 0x10428}, [LM] = {0, 0x16b40},      [LO] = {0, 0x10280},
    [HAN] = {0, 0x20000},     [MN] = {0x135d, 0x101fd}, [MC] = {0x1a19, 0x1d165}, [ND] = {0, 0x104a0},
    [NO] = {0, 0x10107},      [PD] = {0, 0x10ead},      [PO] = {0x1361, 0x10100}, [SM] = {0, 0x1d6c1},
    [SO] = {0x2400, 0x10137}, [CF] = {0x200b, 0x110bd},
};

/* What Unicode 15.0, 15.1 and 16.0 assigned (U+1171E: moved from Mn to Mc); and U+180E, which only
 * PCRE2 takes for a space. */
static const struct {
    uint32_t lo, hi;
    int category;
} after_unicode_14[] = {
    {0x897, 0x897, MN},     {0xcf3, 0xcf3, MC},      {0xece, 0xece, MN},      {0x180e, 0x180e, CF},
    {0x1b4e, 0x1b4f, PO},   {0x1b7f, 0x1b7f, PO},    {0x1c89, 0x1c89, LU},    {0x1c8a, 0x1c8a, LL},
    {0x2427, 0x2429, SO},   {0x2ffc, 0x2fff, SO},    {0x31e4, 0x31e5, SO},    {0x31ef, 0x31ef, SO},
    {0xa7cb, 0xa7cc, LU},   {0xa7cd, 0xa7cd, LL},    {0xa7da, 0xa7da, LU},    {0xa7db, 0xa7db, LL},
    {0xa7dc, 0xa7dc, LU},   {0x105c0, 0x105f3, LO},  {0x10d40, 0x10d49, ND},  {0x10d4a, 0x10d4d, LO},
    {0x10d4e, 0x10d4e, LM}, {0x10d4f, 0x10d4f, LO},  {0x10d50, 0x10d65, LU},  {0x10d69, 0x10d6d, MN},
    {0x10d6e, 0x10d6e, PD}, {0x10d6f, 0x10d6f, LM},  {0x10d70, 0x10d85, LL},  {0x10d8e, 0x10d8f, SM},
    {0x10ec2, 0x10ec4, LO}, {0x10efc, 0x10eff, MN},  {0x1123f, 0x11240, LO},  {0x11241, 0x11241, MN},
    {0x11380, 0x11389, LO}, {0x1138b, 0x1138b, LO},  {0x1138e, 0x1138e, LO},  {0x11390, 0x113b5, LO},
    {0x113b7, 0x113b7, LO}, {0x113b8, 0x113ba, MC},  {0x113bb, 0x113c0, MN},  {0x113c2, 0x113c2, MC},
    {0x113c5, 0x113c5, MC}, {0x113c7, 0x113ca, MC},  {0x113cc, 0x113cd, MC},  {0x113ce, 0x113ce, MN},
    {0x113cf, 0x113cf, MC}, {0x113d0, 0x113d0, MN},  {0x113d1, 0x113d1, LO},  {0x113d2, 0x113d2, MN},
    {0x113d3, 0x113d3, LO}, {0x113d4, 0x113d5, PO},  {0x113d7, 0x113d8, PO},  {0x113e1, 0x113e2, MN},
    {0x116d0, 0x116e3, ND}, {0x1171e, 0x1171e, MC},  {0x11b00, 0x11b09, PO},  {0x11bc0, 0x11be0, LO},
    {0x11be1, 0x11be1, PO}, {0x11bf0, 0x11bf9, ND},  {0x11f00, 0x11f01, MN},  {0x11f02, 0x11f02, LO},
    {0x11f03, 0x11f03, MC}, {0x11f04, 0x11f10, LO},  {0x11f12, 0x11f33, LO},  {0x11f34, 0x11f35, MC},
    {0x11f36, 0x11f3a, MN}, {0x11f3e, 0x11f3f, MC},  {0x11f40, 0x11f40, MN},  {0x11f41, 0x11f41, MC},
    {0x11f42, 0x11f42, MN}, {0x11f43, 0x11f4f, PO},  {0x11f50, 0x11f59, ND},  {0x11f5a, 0x11f5a, MN},
    {0x1342f, 0x1342f, LO}, {0x13439, 0x1343f, CF},  {0x13440, 0x13440, MN},  {0x13441, 0x13446, LO},
    {0x13447, 0x13455, MN}, {0x13460, 0x143fa, LO},  {0x16100, 0x1611d, LO},  {0x1611e, 0x16129, MN},
    {0x1612a, 0x1612c, MC}, {0x1612d, 0x1612f, MN},  {0x16130, 0x16139, ND},  {0x16d40, 0x16d42, LM},
    {0x16d43, 0x16d6a, LO}, {0x16d6b, 0x16d6c, LM},  {0x16d6d, 0x16d6f, PO},  {0x16d70, 0x16d79, ND},
    {0x18cff, 0x18cff, LO}, {0x1b132, 0x1b132, LO},  {0x1b155, 0x1b155, LO},  {0x1cc00, 0x1ccef, SO},
    {0x1ccf0, 0x1ccf9, ND}, {0x1cd00, 0x1ceb3, SO},  {0x1d2c0, 0x1d2d3, NO},  {0x1df25, 0x1df2a, LL},
    {0x1e030, 0x1e06d, LM}, {0x1e08f, 0x1e08f, MN},  {0x1e4d0, 0x1e4ea, LO},  {0x1e4eb, 0x1e4eb, LM},
    {0x1e4ec, 0x1e4ef, MN}, {0x1e4f0, 0x1e4f9, ND},  {0x1e5d0, 0x1e5ed, LO},  {0x1e5ee, 0x1e5ef, MN},
    {0x1e5f0, 0x1e5f0, LO}, {0x1e5f1, 0x1e5fa, ND},  {0x1e5ff, 0x1e5ff, PO},  {0x1f6dc, 0x1f6dc, SO},
    {0x1f774, 0x1f776, SO}, {0x1f77b, 0x1f77f, SO},  {0x1f7d9, 0x1f7d9, SO},  {0x1f8b2, 0x1f8bb, SO},
    {0x1f8c0, 0x1f8c1, SO}, {0x1fa75, 0x1fa77, SO},  {0x1fa87, 0x1fa89, SO},  {0x1fa8f, 0x1fa8f, SO},
    {0x1faad, 0x1faaf, SO}, {0x1fabb, 0x1fabf, SO},  {0x1fac6, 0x1fac6, SO},  {0x1face, 0x1facf, SO},
    {0x1fada, 0x1fadc, SO}, {0x1fadf, 0x1fadf, SO},  {0x1fae8, 0x1fae9, SO},  {0x1faf7, 0x1faf8, SO},
    {0x1fbcb, 0x1fbef, SO}, {0x2b739, 0x2b739, HAN}, {0x2ebf0, 0x2ee5d, HAN}, {0x31350, 0x323af, HAN},
};

#define N_AFTER_9 (sizeof after_unicode_9 / sizeof after_unicode_9[0])
#define N_AFTER_14 (sizeof after_unicode_14 / sizeof after_unicode_14[0])
#define MAX_DECOMPOSED 32 /* code points one character can become; U+FDFA makes 18 */
#define SHORT_RUN 16      /* marks in a row up to which insertion sort is faster */

bool unicode_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool unicode_is_blank(uint32_t cp)
{
    return unicode_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

bool unicode_is_mark(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool unicode_in_ranges(const unicode_range *at, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > at[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= at[lo].lo;
}

static bool is_after_9(uint32_t cp)
{
    return cp >= after_unicode_9[0].lo && unicode_in_ranges(after_unicode_9, N_AFTER_9, cp);
}

typedef struct {
    utf8proc_int32_t *cp;
    size_t n, cap;
} code_points;

static int combining_class(utf8proc_int32_t cp)
{
    return cp < 0x300 ? 0 : utf8proc_get_property(cp)->combining_class;
}

/* Stable sort by combining class; counting sort, since a hostile text may be one long run. */
static void order_long_run(utf8proc_int32_t *cp, size_t n)
{
    size_t start[257] = {0};
    utf8proc_int32_t *sorted = xmalloc(n * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        start[combining_class(cp[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++)
        sorted[start[combining_class(cp[i])]++] = cp[i];
    for (size_t i = 0; i < n; i++)
        cp[i] = sorted[i];
    free(sorted);
}

static void order_short_run(utf8proc_int32_t *cp, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        utf8proc_int32_t x = cp[i];
        size_t j = i;
        for (; j > 0 && combining_class(cp[j - 1]) > combining_class(x); j--)
            cp[j] = cp[j - 1];
        cp[j] = x;
    }
}

/* Canonical ordering: sort each run of characters of non-zero combining class. */
static void order_marks(code_points *s)
{
    size_t at = 0;
    while (at < s->n) {
        size_t end = at;
        while (end < s->n && combining_class(s->cp[end]) != 0)
            end++;
        if (end - at > SHORT_RUN)
            order_long_run(s->cp + at, end - at);
        else if (end - at > 1)
            order_short_run(s->cp + at, end - at);
        at = end + 1;
    }
}

static void decompose(code_points *s, uint32_t cp, utf8proc_option_t options)
{
    s->cp = xgrow(s->cp, &s->cap, s->n + MAX_DECOMPOSED, sizeof *s->cp);
    int boundclass = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, s->cp + s->n, MAX_DECOMPOSED, options, &boundclass);
    CHECK(n > 0 && n <= MAX_DECOMPOSED);
    s->n += (size_t)n;
}

/* Orders, composes and writes the collected characters. */
static void flush(code_points *s, utf8proc_option_t options, buf *out)
{
    if (s->n == 0)
        return;
    order_marks(s);
    utf8proc_ssize_t n = (utf8proc_ssize_t)s->n;
    if (options & UTF8PROC_COMPOSE)
        n = utf8proc_normalize_utf32(s->cp, n, options);
    CHECK(n >= 0);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        utf8_add(out, (uint32_t)s->cp[i]);
    s->n = 0;
}

/* No form changes ASCII, and an ASCII character never composes with the one before it. So all of an
 * ASCII run but its last character is copied; only that one and what lies between runs is worked on. */
void unicode_normalize(unicode_form form, const char *text, size_t n, buf *out)
{
    utf8proc_option_t options = UTF8PROC_STABLE;
    options |= form == FORM_NFC || form == FORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (form == FORM_NFKC || form == FORM_NFKD)
        options |= UTF8PROC_COMPAT;
    code_points s = {0};
    const char *at = text, *end = text + n;
    while (at < end) {
        const char *run = at;
        while (at < end && (unsigned char)*at < 0x80)
            at++;
        if (at > run)
            flush(&s, options, out);
        if (at - run > 1)
            buf_add(out, run, (size_t)(at - run - 1));
        if (at > run)
            decompose(&s, (unsigned char)at[-1], options);
        while (at < end && (unsigned char)*at >= 0x80) {
            uint32_t cp = utf8_next(&at);
            if (!is_after_9(cp)) {
                decompose(&s, cp, options);
                continue;
            }
            flush(&s, options, out);
            utf8_add(out, cp);
        }
    }
    flush(&s, options, out);
    free(s.cp);
}

void unicode_lowercase(const char *text, size_t n, buf *out)
{
    for (const char *at = text; at < text + n;) {
        uint32_t cp = utf8_next(&at);
        if (cp == 0x130)
            buf_add_str(out, "i\xcc\x87"); /* the one character whose lower case is two */
        else
            utf8_add(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
    }
}

/* Returns the character, of as many bytes in UTF-8, that the regex engine gets instead of cp; 0: cp itself. */
static uint32_t regex_stand_in(uint32_t cp)
{
    size_t lo = 0, hi = N_AFTER_14;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > after_unicode_14[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == N_AFTER_14 || cp < after_unicode_14[lo].lo)
        return 0;
    int category = after_unicode_14[lo].category;
    return cp < 0x10000 ? stand_in[category].in_3 : stand_in[category].in_4;
}

const char *unicode_for_regex(const char *text, size_t n, buf *scratch)
{
    const char *copied = text;
    buf_clear(scratch);
    for (const char *at = text; at < text + n;) {
        if ((unsigned char)*at < 0xe0) { /* all characters that are replaced lie above U+0800 */
            at++;
            continue;
        }
        const char *here = at;
        uint32_t other = regex_stand_in(utf8_next(&at));
        if (!other)
            continue;
        buf_add(scratch, copied, (size_t)(here - copied));
        utf8_add(scratch, other);
        copied = at;
    }
    if (copied == text)
        return text;
    buf_add(scratch, copied, (size_t)(text + n - copied));
    return scratch->data;
}
