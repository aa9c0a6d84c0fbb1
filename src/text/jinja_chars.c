/* jinja_chars.c - see jinja_chars.h
 *
 * Most follows from the general category, which utf8proc knows. The tables have the properties that do not, in Unicode
 * 14, which Python 3.11 has: a few hundred characters in ranges, in ascending order. */
#include "text/jinja_chars.h"

#include <stddef.h>
#include <utf8proc.h>

typedef struct { uint32_t lo, hi; } char_range;

/* Numeric_Type=Digit: circled, raised and the like; the category is No. */
static const char_range digits[] = {{0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
                                    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
                                    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
                                    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};

/* A Numeric_Value, though the category is Lo: ideographs of numbers. */
static const char_range numeric_letters[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382a, 0x382a},   {0x3b4d, 0x3b4d},   {0x4e00, 0x4e00},
    {0x4e03, 0x4e03},   {0x4e07, 0x4e07},   {0x4e09, 0x4e09},   {0x4e5d, 0x4e5d},   {0x4e8c, 0x4e8c},
    {0x4e94, 0x4e94},   {0x4e96, 0x4e96},   {0x4ebf, 0x4ec0},   {0x4edf, 0x4edf},   {0x4ee8, 0x4ee8},
    {0x4f0d, 0x4f0d},   {0x4f70, 0x4f70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516b, 0x516b},   {0x516d, 0x516d},   {0x5341, 0x5341},   {0x5343, 0x5345},   {0x534c, 0x534c},
    {0x53c1, 0x53c4},   {0x56db, 0x56db},   {0x58f1, 0x58f1},   {0x58f9, 0x58f9},   {0x5e7a, 0x5e7a},
    {0x5efe, 0x5eff},   {0x5f0c, 0x5f0e},   {0x5f10, 0x5f10},   {0x62fe, 0x62fe},   {0x634c, 0x634c},
    {0x67d2, 0x67d2},   {0x6f06, 0x6f06},   {0x7396, 0x7396},   {0x767e, 0x767e},   {0x8086, 0x8086},
    {0x842c, 0x842c},   {0x8cae, 0x8cae},   {0x8cb3, 0x8cb3},   {0x8d30, 0x8d30},   {0x9621, 0x9621},
    {0x9646, 0x9646},   {0x964c, 0x964c},   {0x9678, 0x9678},   {0x96f6, 0x96f6},   {0xf96b, 0xf96b},
    {0xf973, 0xf973},   {0xf978, 0xf978},   {0xf9b2, 0xf9b2},   {0xf9d1, 0xf9d1},   {0xf9d3, 0xf9d3},
    {0xf9fd, 0xf9fd},   {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121},
    {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c}, {0x20aea, 0x20aea},
    {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23b1b, 0x23b1b},
    {0x2626d, 0x2626d}, {0x2f890, 0x2f890}};

/* Other_Lowercase: modifier letters, small Roman numerals, circled small letters. */
static const char_range other_lowercase[] = {
    {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},     {0x345, 0x345},
    {0x37a, 0x37a},   {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
    {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};

/* Other_Uppercase: Roman numerals, circled and squared capitals. */
static const char_range other_uppercase[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

/* Word_Break of MidLetter, MidNumLet or Single_Quote: punctuation that is Case_Ignorable. */
static const char_range inside_words[] = {{0x27, 0x27},     {0x2e, 0x2e},     {0x3a, 0x3a},     {0xb7, 0xb7},
                                          {0x387, 0x387},   {0x55f, 0x55f},   {0x5f4, 0x5f4},   {0x2018, 0x2019},
                                          {0x2024, 0x2024}, {0x2027, 0x2027}, {0xfe13, 0xfe13}, {0xfe52, 0xfe52},
                                          {0xfe55, 0xfe55}, {0xff07, 0xff07}, {0xff0e, 0xff0e}, {0xff1a, 0xff1a}};

#define IS_IN(table, cp) is_in((table), sizeof(table) / sizeof *(table), (cp))

static bool is_in(const char_range *table, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > table[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= table[lo].lo;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool char_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool char_is_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool char_is_digit(uint32_t cp)
{
    return char_is_decimal(cp) || IS_IN(digits, cp);
}

bool char_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) || IS_IN(numeric_letters, cp);
}

bool char_is_lower(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'a' && cp <= 'z';
    return category(cp) == UTF8PROC_CATEGORY_LL || IS_IN(other_lowercase, cp);
}

bool char_is_upper(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z';
    return category(cp) == UTF8PROC_CATEGORY_LU || IS_IN(other_uppercase, cp);
}

bool char_is_title(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LT;
}

bool char_is_cased(uint32_t cp)
{
    return char_is_lower(cp) || char_is_upper(cp) || char_is_title(cp);
}

bool char_is_case_ignorable(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || IS_IN(inside_words, cp);
}
